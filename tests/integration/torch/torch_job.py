"""torch_job.py: a job of torch.distributed over HDT, whose ranks host or find an embedded daemon on each node
(a node is a loopback address)."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(FOLDER, "..", "..", ".."))
TIMEOUT_S = 90


class TorchJobs(unittest.TestCase):
    def job(self, arguments, nodes, local, **variables):
        """Runs a script by `local` ranks on each of `nodes`; returns [(exit code, output)] by rank."""
        folder = tempfile.TemporaryDirectory(prefix="hdt-torch-")
        self.addCleanup(folder.cleanup)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HDT_")}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(nodes * local):
            node = rank // local
            runtime = os.path.join(folder.name, f"node{node}")
            os.makedirs(runtime, mode=0o700, exist_ok=True)
            processes.append(subprocess.Popen(
                [sys.executable, "-B", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
                env=clean | {"PYTHONPATH": os.path.join(BUILD, "python"), "RANK": str(rank),
                             "WORLD_SIZE": str(nodes * local), "MEETING": os.path.join(folder.name, "store"),
                             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                             "XDG_RUNTIME_DIR": runtime, "HDT_NICS_ADDRESSES": f"127.0.0.{node + 1}",
                             "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
                             "USE_LIBUV": "0"}  # Debian's torch 2.6 has none
                | variables))
        self.addCleanup(lambda: [process.kill() for process in processes if process.poll() is None])
        ended, late = [], []
        for rank, process in enumerate(processes):
            try:
                output, _ = process.communicate(timeout=1 if late else TIMEOUT_S)
            except subprocess.TimeoutExpired:
                late.append(rank)
                process.send_signal(signal.SIGABRT)  # it says where it is
                output, _ = process.communicate()
            ended.append((process.returncode, output))
        outputs = "".join(f"\nrank {rank}: exit code {code}\n{output}"
                          for rank, (code, output) in enumerate(ended))
        self.assertEqual(late, [], f"ranks that did not end in {TIMEOUT_S} s; all outputs:{outputs}")
        return ended

    def passes(self, script, nodes, local, *cases, **variables):
        with self.subTest(cases=cases, nodes=nodes, local=local):
            for rank, (code, output) in enumerate(self.job([script, *cases], nodes, local, **variables)):
                self.assertEqual(code, 0, f"rank {rank}:\n{output}")
