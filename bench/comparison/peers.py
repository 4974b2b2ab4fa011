"""peers.py: programs that time HDT's peers on this machine: each MPI by bench/peers/mpi_times.cc, built by
its own compiler when it is needed, and the gloo backend of PyTorch by bench/torch/gloo_times.

A peer is optional: missing() says why it cannot be measured. prepare() comes before its first turn. It is
started anew for each turn.
"""

import json
import os
import shutil
import subprocess

from processes import clean_environment, run_to_success

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.path.join("bench", "peers", "mpi_times.cc")
# The old C++ interface of MPI is not needed; each MPI has a name of its own for leaving it out.
COMPILER_FLAGS = ["-std=c++20", "-O3", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
TORCH_PYTHON = "/usr/bin/python3"
TORCH_TIMES = os.path.join(ROOT, "bench", "torch", "gloo_times")
CHROOT = os.path.join(ROOT, "tools", "openmpi-chroot")
RUN_LIMIT_S = 900
CHROOT_SOURCE = "/hdt"  # where that program shows ROOT
CHROOT_PROGRAM = "/var/tmp/mpi_times"


def open_mpi_launcher(mpirun, ranks, apart):
    """As hdt-commbench starts Open MPI: not bound, yielding only where cores are too few; between emulated
    nodes by TCP over loopback."""
    idle = "0" if ranks <= len(os.sched_getaffinity(0)) else "1"
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    network = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    return [mpirun, *root, "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "mpi_yield_when_idle",
            idle, *(network if apart else []), "-np", str(ranks)]


class Mpi:
    """An MPI of this system. Its commands are called by names that no other MPI's may take."""

    def __init__(self, name, compiler, launcher, packages):
        self.name = name
        self.compiler = compiler
        self.launcher = launcher
        self.packages = packages

    def missing(self, _):
        commands = (self.compiler, self.launcher)
        return None if all(map(shutil.which, commands)) else f"not installed (Debian: {self.packages})"

    def program(self, folder):
        return os.path.join(folder, f"mpi_times.{self.compiler}")

    def prepare(self, _, folder):
        if not os.path.exists(self.program(folder)):
            run_to_success([self.compiler, *COMPILER_FLAGS, os.path.join(ROOT, SOURCE), "-o",
                            self.program(folder)], clean_environment(), RUN_LIMIT_S)

    def command(self, _, folder, ranks, apart):
        return [*self.launch(ranks, apart), self.program(folder)]

    def launch(self, ranks, apart):
        return open_mpi_launcher(self.launcher, ranks, apart)


class Mpich(Mpi):
    def launch(self, ranks, apart):
        # No memory is shared between emulated nodes, and Debian's MPICH is built on UCX.
        network = ["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self", "-genv",
                   "UCX_NET_DEVICES", "lo"]
        return [self.launcher, "-launcher", "fork", "-bind-to", "none", *(network if apart else []), "-n",
                str(ranks)]


class ChrootOpenMpi:
    """Open MPI 5 of another Debian, in a folder that tools/openmpi-chroot has made."""

    name = "Open MPI 5"

    def missing(self, options):
        if options.openmpi5 is None:
            return "not installed (--openmpi5 names a folder that has it)"
        if os.geteuid() != 0:
            return "not measured: root only may enter its folder"
        if not os.access(os.path.join(options.openmpi5, "usr/bin/mpirun.openmpi"), os.X_OK):
            return f"not installed (tools/openmpi-chroot {options.openmpi5} makes it)"
        return None

    def prepare(self, options, _):
        fresh = f"{CHROOT_PROGRAM}.{os.getpid()}"
        build = ["mpicxx.openmpi", *COMPILER_FLAGS, f"{CHROOT_SOURCE}/{SOURCE}", "-o", fresh]
        for command in (build, ["mv", fresh, CHROOT_PROGRAM]):
            run_to_success([CHROOT, "--enter", options.openmpi5, *command], clean_environment(), RUN_LIMIT_S)

    def command(self, options, _, ranks, apart):
        return [CHROOT, "--enter", options.openmpi5, *open_mpi_launcher("mpirun.openmpi", ranks, apart),
                CHROOT_PROGRAM]


class TorchGloo:
    """What dist.all_reduce() and its like cost in PyTorch, by its backend for processors."""

    name = "PyTorch's Gloo"

    def missing(self, _):
        look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        try:
            found = subprocess.run([TORCH_PYTHON, "-c", look], check=False).returncode == 0
        except FileNotFoundError:
            found = False
        return None if found else "not installed (Debian: python3-torch)"

    def prepare(self, _, __):
        pass

    def command(self, _, __, ranks, ___):
        return [TORCH_PYTHON, "-B", TORCH_TIMES, "--ranks", str(ranks)]


PEERS = {
    "openmpi": Mpi("Open MPI", "mpicxx.openmpi", "mpirun.openmpi", "libopenmpi-dev and openmpi-bin"),
    "mpich": Mpich("MPICH", "mpicxx.mpich", "mpiexec.mpich", "libmpich-dev and mpich"),
    "openmpi5": ChrootOpenMpi(),
    "torch": TorchGloo(),
}


def times(peer, options, folder, ranks, work, apart=False):
    """(version, measurements) of one turn; the work is tuples of collective, bytes, warm-up, iterations.
    `apart`: each rank is an emulated node."""
    command = peer.command(options, folder, ranks, apart) + ["--apart"] * apart
    command += [":".join(map(str, each)) for each in work]
    # One thread a rank: there is a rank for each core, or more.
    output = run_to_success(command, clean_environment(OMP_NUM_THREADS="1"), RUN_LIMIT_S)
    # Only one rank prints the version, and others may be faster.
    lines = [json.loads(line) for line in output.splitlines()]
    version = next(line["version"] for line in lines if "version" in line)
    return version, [line for line in lines if "version" not in line]
