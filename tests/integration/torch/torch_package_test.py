"""torch_package_test.py BUILD: pip builds bindings/torch against libhdt of the build folder, without network,
and installs it into a folder; ranks that import it from there reduce. The interpreter must have torch.

Compiling takes half a minute of one core, and with ccache less from the second time on."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from torch_job import BUILD, FOLDER, ROOT, TorchJobs

BINDINGS = os.path.join(ROOT, "bindings", "torch")
CCACHE = "/usr/lib/ccache"
SKIPPED = 77
BUILD_S = 500


def make_prefix(prefix):
    """libhdt and libhdttrain as if they were installed there: hdt.pc refers to what is beside it."""
    packages = os.path.join(prefix, "lib", "pkgconfig")
    os.makedirs(packages)
    shutil.copy(os.path.join(BUILD, "hdt.pc"), packages)
    headers = os.path.join(prefix, "include", "hdt")
    os.makedirs(headers)
    for folder in ("libclient", "training/api"):
        shutil.copytree(os.path.join(ROOT, folder, "include", "hdt"), headers, dirs_exist_ok=True)
    for name in ("libhdt.so", "libhdt.so.0", "libhdttrain.so", "libhdttrain.so.0"):
        os.symlink(os.path.join(BUILD, "lib", name), os.path.join(prefix, "lib", name))
    return packages


class Package(TorchJobs):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hdt-torch-package-")
        cls.addClassCleanup(cls.folder.cleanup)
        name = cls.folder.name
        cls.target = os.path.join(name, "target")
        # pip builds in the source folder, which has to stay as it is.
        source = os.path.join(name, "source")
        shutil.copytree(BINDINGS, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        packages = make_prefix(os.path.join(name, "prefix"))
        # Not optimised, as it is not measured: half of the compiler's time.
        environment = os.environ | {"PKG_CONFIG_PATH": packages, "CFLAGS": "-O0", "CCACHE_BASEDIR": name,
                                    "CCACHE_NOHASHDIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                                    "PATH": CCACHE + os.pathsep + os.environ["PATH"]}
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
             "--target", cls.target, source], env=environment, cwd=name, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BUILD_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"pip ended with {done.returncode}:\n{done.stdout}")

    def test_it_reduces(self):
        for rank, (code, output) in enumerate(
                self.job([os.path.join(FOLDER, "torch_package_rank.py"), self.target], 1, 2,
                         PYTHONPATH=self.target)):
            self.assertEqual(code, 0, f"rank {rank}:\n{output}")

    def test_torch_finds_it_by_its_entry_point(self):
        found, = importlib.metadata.distributions(path=[self.target])
        self.assertEqual(found.metadata["Name"].replace("-", "_"), "hdt_torch")
        points = [(point.name, point.value) for point in found.entry_points
                  if point.group == "torch.distributed.backends"]
        self.assertEqual(points, [("hdt", "hdt_torch:_register")])

    def test_all_of_its_modules_are_there(self):
        def modules(folder):
            return sorted(os.path.relpath(os.path.join(at, name), folder)
                          for at, _, names in os.walk(folder) for name in names if name.endswith(".py"))
        self.assertEqual(modules(os.path.join(self.target, "hdt_torch")),
                         modules(os.path.join(BINDINGS, "hdt_torch")))


def main():
    missing = [name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name) is None]
    missing += [] if shutil.which("pkg-config") else ["pkg-config"]
    if missing:
        print(f"SKIPPED: {sys.executable} has no {', '.join(missing)} "
              "(Debian: python3-pip, python3-setuptools, python3-wheel, pkg-config)")
        return SKIPPED
    return unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
