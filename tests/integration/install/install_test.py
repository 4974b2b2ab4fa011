"""install_test.py ROOT BUILD [SANITIZERS]: an installed tree is complete, can be moved, and the C program of
the user guide builds against it with pkg-config and with find_package, and runs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = map(os.path.abspath, sys.argv[1:3])
SANITIZE = ["-fsanitize=" + sys.argv[3]] if len(sys.argv) > 3 and sys.argv[3] else []
sys.path.insert(0, os.path.join(ROOT, "tests", "integration", "docs"))
import doc_blocks  # noqa: E402  (found by the line above)

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(hdt 0.1 REQUIRED)
add_executable(allreduce allreduce.c)
target_link_libraries(allreduce PRIVATE hdt::hdt)
"""

TRAIN_CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(user C)
set(CMAKE_C_STANDARD 99)
find_package(hdt 0.1 REQUIRED)
add_executable(one_weight one_weight.c)
target_compile_options(one_weight PRIVATE -Wall -Wextra -Werror)
target_link_libraries(one_weight PRIVATE hdt::train)
"""

PLANNER_CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(user CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(hdt 0.1 REQUIRED)
add_executable(search search.cc)
target_link_libraries(search PRIVATE hdt::plan)
"""


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hdt-install-")
        first = os.path.join(cls.folder.name, "first")
        run(["cmake", "--install", BUILD, "--prefix", first])
        # Nothing may remember where it was installed.
        cls.prefix = os.path.join(cls.folder.name, "moved")
        os.rename(first, cls.prefix)
        cls.library_folder = os.path.dirname(cls.find("libhdt.so"))
        cls.source = os.path.join(cls.folder.name, "allreduce.c")
        with open(cls.source, "w", encoding="utf-8") as file:
            file.write(doc_blocks.file_block(os.path.join(ROOT, "docs", "guide.md"), "allreduce.c"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def find(cls, name):
        for folder, _, names in os.walk(cls.prefix):
            if name in names:
                return os.path.join(folder, name)
        raise AssertionError(f"{name} was not installed")

    def run_alone(self, program):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HDT_", "OMPI_", "PMIX_"))}
        environment.update(LD_LIBRARY_PATH=self.library_folder, HDT_NODE_NAME=f"install-test-{os.getpid()}",
                           HDT_NICS_ADDRESSES="127.0.0.1")
        return run([program], env=environment)

    def test_holds_what_it_should(self):
        for name in ("hdt.h", "hdt.hpp", "buffer.hpp", "libhdt.so", "libhdt.so.0", "hdt.pc",
                     "hdtConfig.cmake", "hdtConfigVersion.cmake", "hdtcommd", "hdtctl", "hdt-commbench",
                     "hdt-data", "hdt-plan", "plan.hpp", "libhdtplan.so", "train.h", "libhdttrain.so",
                     "768-cluster.toml", "hdt-backend-test", "libhdt-backend.a"):
            self.find(name)

    def test_programs_find_their_library(self):
        self.assertIn("hdt-commbench", run([self.find("hdt-commbench"), "--version"]))

    def test_a_backend_builds_and_passes_as_the_guide_says(self):
        modules = os.path.join(self.folder.name, "modules")
        os.mkdir(modules)
        # The command of docs/backend-guide.md.
        run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", *SANITIZE,
             "-I" + os.path.join(self.prefix, "include", "hdt", "backend"),
             os.path.join(ROOT, "docs", "examples", "backend", "local.cc"), "-L" + self.library_folder,
             "-lhdt-backend", "-o", os.path.join(modules, "libhdt-transport-local.so")])
        environment = dict(os.environ, HDT_TRANSPORT_PATH=modules)
        told = run([self.find("hdt-backend-test"), "local", "--option", "addresses=127.0.5.1,127.0.5.2"],
                   env=environment)
        self.assertIn("backend local on lo1 (127.0.5.2)", told)
        self.assertIn("1 test, listed below", told)  # skipped: nobody said which address never answers
        self.assertNotIn("FAILED", told)

    def test_builds_with_pkg_config(self):
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(self.find("hdt.pc")))
        flags = run(["pkg-config", "--cflags", "--libs", "hdt"], env=environment).split()
        program = os.path.join(self.folder.name, "with-pkg-config")
        run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", self.source, "-o", program, *SANITIZE, *flags])
        self.assertIn("sum", self.run_alone(program))

    def test_builds_with_find_package(self):
        with open(os.path.join(self.folder.name, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(CMAKE_LISTS)
        build = os.path.join(self.folder.name, "build")
        run(["cmake", "-S", self.folder.name, "-B", build, "-DCMAKE_PREFIX_PATH=" + self.prefix,
             "-DCMAKE_C_FLAGS=" + " ".join(SANITIZE)])
        run(["cmake", "--build", build])
        self.assertIn("sum", self.run_alone(os.path.join(build, "allreduce")))

    def test_the_training_engine_is_a_library(self):
        folder = os.path.join(self.folder.name, "train")
        os.mkdir(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(TRAIN_CMAKE_LISTS)
        shutil.copy(os.path.join(ROOT, "tests", "integration", "install", "one_weight.c"), folder)
        build = os.path.join(folder, "build")
        run(["cmake", "-S", folder, "-B", build, "-DCMAKE_PREFIX_PATH=" + self.prefix,
             "-DCMAKE_C_FLAGS=" + " ".join(SANITIZE)])
        run(["cmake", "--build", build])
        self.assertIn("weight 2.0000, loss 0.0000", self.run_alone(os.path.join(build, "one_weight")))

    def test_the_planner_is_a_library(self):
        folder = os.path.join(self.folder.name, "planner")
        os.mkdir(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PLANNER_CMAKE_LISTS)
        with open(os.path.join(folder, "search.cc"), "w", encoding="utf-8") as file:
            file.write(doc_blocks.file_block(os.path.join(ROOT, "docs", "predictor.md"), "search.cc"))
        build = os.path.join(folder, "build")
        run(["cmake", "-S", folder, "-B", build, "-DCMAKE_PREFIX_PATH=" + self.prefix,
             "-DCMAKE_CXX_FLAGS=" + " ".join(SANITIZE)])
        run(["cmake", "--build", build])
        examples = os.path.dirname(self.find("768-cluster.toml"))
        printed = run([os.path.join(build, "search"), examples + "/amd-nvidia-cluster.toml",
                       examples + "/llama-8b-model.toml", examples + "/llama-8b-profile.toml"])
        self.assertIn("[[replica.stage]]", printed)
        self.assertRegex(printed, r"# \d+\.\d+ s a step")
        self.assertRegex(printed, r"layers = \d+\n")
        refused = subprocess.run([os.path.join(build, "search"), "no.toml", "no.toml", "no.toml"], text=True,
                                 stdout=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("no.toml", refused.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
