"""torch_job.py: a job of torch.distributed over HDT, whose ranks host or find an embedded daemon on each node
(a node is a loopback address)."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv[1])
FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(FOLDER, "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import free_port  # noqa: E402  pylint: disable=wrong-import-position

TIMEOUT_S = 90


class Job:
    """The ranks of one job, `local` on each of `nodes`, and the daemons that a test starts for it. Ends with
    the context."""

    def __init__(self, nodes, local, **variables):
        self._folder = tempfile.TemporaryDirectory(prefix="hdt-torch-")
        self.local, self.size = local, nodes * local
        self.ranks = []
        self._daemons = {}  # by node
        port = free_port("127.0.0.1")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HDT_")}
        self._environment = clean | {
            "PYTHONPATH": os.path.join(BUILD, "python"), "WORLD_SIZE": str(self.size),
            "MEETING": os.path.join(self._folder.name, "store"), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
            "USE_LIBUV": "0"} | variables  # Debian's torch 2.6 has no libuv

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.ranks, *self._daemons.values()):
            if process.poll() is None:
                process.kill()
            process.wait()
        self._folder.cleanup()

    def _of_node(self, node):
        runtime = os.path.join(self._folder.name, f"node{node}")
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        daemon = {"HDT_SOCKET": os.path.join(runtime, "hdtcommd.sock")} if node in self._daemons else {}
        return self._environment | daemon | {"XDG_RUNTIME_DIR": runtime,
                                             "HDT_NICS_ADDRESSES": f"127.0.0.{node + 1}"}

    def start(self, arguments):
        for rank in range(self.size):
            # A file, not a pipe: nobody reads before the ranks end, and a full pipe would stop them.
            with open(self._output_of(rank), "wb") as output:
                self.ranks.append(subprocess.Popen(
                    [sys.executable, "-B", *arguments], stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, env=self._of_node(rank // self.local) | {"RANK": str(rank)}))

    def _output_of(self, rank):
        return os.path.join(self._folder.name, f"rank{rank}.out")

    def output(self, rank):
        """What the rank has printed up to now."""
        with open(self._output_of(rank), encoding="utf-8", errors="replace") as output:
            return output.read()

    def _why(self, rank):
        """What hdtctl says about the groups of the rank's node."""
        try:
            why = subprocess.run([os.path.join(BUILD, "bin", "hdtctl"), "why"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=30,
                                 env=self._of_node(rank // self.local))
        except subprocess.TimeoutExpired:
            return "no answer within 30 s"
        return why.stdout.decode(errors="replace")

    def ended(self, timeout=TIMEOUT_S):
        """[(exit code, output)] by rank, when all have ended. Ranks that are late say where they are."""
        ended, late, why, end = [], [], "", time.monotonic() + timeout
        for rank, process in enumerate(self.ranks):
            try:
                process.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                why = why or f"\nhdtctl why:\n{self._why(rank)}"  # before the first of them is gone
                late.append(rank)
                process.send_signal(signal.SIGABRT)
                process.wait()
            ended.append((process.returncode, self.output(rank)))
        if late:
            outputs = "".join(f"\nrank {rank}: exit code {code}\n{output}"
                              for rank, (code, output) in enumerate(ended))
            raise AssertionError(f"ranks {late} did not end in {timeout} s; all outputs:{why}{outputs}")
        return ended

    def start_daemon(self, node):
        """In the place of the one that a rank would host; returns when it answers."""
        environment = self._of_node(node)
        place = os.path.join(environment["XDG_RUNTIME_DIR"], "hdtcommd.sock")
        log = open(os.path.join(self._folder.name, f"daemon{node}.log"), "ab")
        with log:
            self._daemons[node] = subprocess.Popen(
                [os.path.join(BUILD, "bin", "hdtcommd"), "--node.name", f"node{node}",
                 "--node.socket", place],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + TIMEOUT_S
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            while probe.connect_ex(place) != 0:
                if self._daemons[node].poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"daemon of node {node} does not answer: {self.log_of(node)}")
                time.sleep(0.01)

    def kill_daemon(self, node):
        self._daemons[node].kill()
        self._daemons[node].wait()

    def log_of(self, node):
        with open(os.path.join(self._folder.name, f"daemon{node}.log"), encoding="utf-8",
                  errors="replace") as log:
            return log.read()


class TorchJobs(unittest.TestCase):
    def job(self, arguments, nodes, local, **variables):
        """Runs a script by `local` ranks on each of `nodes`; returns [(exit code, output)] by rank."""
        with Job(nodes, local, **variables) as job:
            job.start(arguments)
            return job.ended()

    def example_passes(self, script, nodes, local):
        """A script of the manual, whose rank 0 prints the loss."""
        for rank, (code, output) in enumerate(self.job([script], nodes, local)):
            self.assertEqual(code, 0, output)
            self.assertIn("loss" if rank == 0 else "", output)

    def passes(self, script, nodes, local, *cases, **variables):
        with self.subTest(cases=cases, nodes=nodes, local=local):
            for rank, (code, output) in enumerate(self.job([script, *cases], nodes, local, **variables)):
                self.assertEqual(code, 0, f"rank {rank}:\n{output}")
