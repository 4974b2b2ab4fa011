"""daemon_cost.py: what a hdtcommd costs while its sessions are idle, and for every further group.

One daemon, eight processes (hdt-bench-groups) that form a group of eight and, for the memory, 1,000 more by
hdtCommSplit. Processor time: nanoseconds of all the daemon's threads. Memory: the daemon's anonymous memory
(smaps_rollup) and the allocated pages of all shared memory it holds open or mapped, whoever has written to
it.
"""

import os
import select
import socket
import subprocess
import time

from comparison import report
from processes import clean_environment, end, free_port

RANKS = 8
GROUPS = 1000
QUICK_GROUPS = 50
START_LIMIT_S = 30
READY_LIMIT_S = 300
END_LIMIT_S = 60
IDLE_S = 10
QUICK_IDLE_S = 2
SETTLE_S = 1  # after the last call of a session, before idle time is measured
ADDRESS = "127.0.1.1"


class Daemon:
    """A hdtcommd of its own on a loopback address, ended with the block."""

    def __init__(self, options, folder):
        self.socket = os.path.join(folder, "hdtcommd.sock")
        self.log = os.path.join(folder, "hdtcommd.log")
        self.command = [os.path.join(options.bin, "hdtcommd"), "--node.name", f"compare-{os.getpid()}",
                        "--node.socket", self.socket, "--nics.addresses", ADDRESS, "--nics.port", "0",
                        "--log.file", self.log]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=clean_environment(), stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_LIMIT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError("hdtcommd does not start")
            time.sleep(0.01)
        return self

    def answers(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as attempt:
            return attempt.connect_ex(self.socket) == 0

    def __exit__(self, *_):
        end([self.process], END_LIMIT_S)

    def cpu_ns(self):
        total = 0
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/schedstat", encoding="utf-8") as file:
                total += int(file.read().split()[0])
        if total == 0:
            raise RuntimeError("this kernel does not count the time of threads "
                               "(/proc/PID/task/TID/schedstat)")
        return total

    def anonymous_bytes(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="utf-8") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Anonymous:"))

    def shared_bytes(self):
        """Pages that the memfds and /dev/shm files it has open or mapped take, each file once."""
        files = {}
        for kind in ("fd", "map_files"):
            folder = f"/proc/{self.process.pid}/{kind}"
            for name in os.listdir(folder):
                try:
                    path = os.path.join(folder, name)
                    if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                        status = os.stat(path)
                        files[(status.st_dev, status.st_ino)] = status.st_blocks * 512
                except FileNotFoundError:
                    continue  # closed meanwhile
        return sum(files.values())


class Sessions:
    """Eight ranks on one daemon. Each makes what groups it is told to and answers on its output."""

    def __init__(self, options, daemon):
        port = free_port(ADDRESS)
        self.ranks = []
        for rank in range(RANKS):
            environment = clean_environment(HDT_RANK=str(rank), HDT_SIZE=str(RANKS),
                                            HDT_RENDEZVOUS=f"{ADDRESS}:{port}", HDT_SOCKET=daemon.socket)
            self.ranks.append(subprocess.Popen([os.path.join(options.bin, "hdt-bench-groups")],
                                               env=environment, text=True,
                                               stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def __enter__(self):
        try:
            self.wait_ready()
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.stdin.close()  # tells it to leave
        end(self.ranks, END_LIMIT_S)
        for rank in self.ranks:
            rank.stdout.close()

    def wait_ready(self):
        deadline = time.monotonic() + READY_LIMIT_S
        for number, rank in enumerate(self.ranks):
            readable, _, _ = select.select([rank.stdout], [], [], max(0, deadline - time.monotonic()))
            if not readable or rank.stdout.readline() != "ready\n":
                raise RuntimeError(f"rank {number} of the groups did not get ready")

    def make(self, groups):
        for rank in self.ranks:
            rank.stdin.write(f"{groups}\n")
            rank.stdin.flush()
        self.wait_ready()


def idle_cpu(row, options, folder):
    seconds = QUICK_IDLE_S if options.quick else IDLE_S
    with Daemon(options, folder) as daemon, Sessions(options, daemon):
        time.sleep(SETTLE_S)
        before = daemon.cpu_ns()
        time.sleep(seconds)
        used_ms = (daemon.cpu_ns() - before) / 1e6
    return report.Result(row, used_ms * IDLE_S / seconds, details={"seconds": seconds, "cpu_ms": used_ms})


def group_memory(row, options, folder):
    groups = QUICK_GROUPS if options.quick else GROUPS
    with Daemon(options, folder) as daemon, Sessions(options, daemon) as sessions:
        sessions.make(1)  # what is made once, at the first further group, is not counted
        before = daemon.anonymous_bytes(), daemon.shared_bytes()
        sessions.make(groups)
        after = daemon.anonymous_bytes(), daemon.shared_bytes()
    anonymous, shared = (last - first for first, last in zip(before, after))
    return report.Result(row, (anonymous + shared) / groups / 1024,
                         details={"groups": groups, "anonymous_bytes": anonymous, "shared_bytes": shared})


def measure(row, options, folder):
    return {"idle-cpu": idle_cpu, "group-memory": group_memory}[row.name](row, options, folder)
