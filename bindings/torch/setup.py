"""setup.py: builds hdt_torch._C against the installed torch and libhdt, which pkg-config finds (hdt.pc)."""

import shlex
import subprocess
import sys

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = ["src/class_map.cc", "src/handle.cc", "src/membership.cc", "src/module.cc", "src/operation.cc",
           "src/pipeline.cc", "src/process_group.cc", "src/process_group_2.cc",
           "src/shared_allocator.cc", "src/shared_pool.cc"]


def pkg_config(*flags):
    """What pkg-config says of libhdt, as words."""
    try:
        done = subprocess.run(["pkg-config", *flags, "hdt"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("hdt_torch: pkg-config does not find libhdt: "
                 f"{getattr(error, 'stderr', None) or error}\n"
                 "Install HDT (cmake --install build/release --prefix PREFIX) and set PKG_CONFIG_PATH to the "
                 "folder of its hdt.pc.")
    return shlex.split(done.stdout)


FOLDERS = [word[2:] for word in pkg_config("--libs-only-L")]

setup(
    ext_modules=[
        CppExtension(
            "hdt_torch._C",
            SOURCES,
            extra_compile_args=["-std=c++20", "-g1", *pkg_config("--cflags")],
            libraries=["hdt", "hdttrain"],
            library_dirs=FOLDERS,
            # An installed HDT is found where it was when this was built.
            runtime_library_dirs=FOLDERS,
        )
    ],
    # Without ninja: one file takes more than a GB of memory.
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
