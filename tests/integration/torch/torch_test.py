"""torch_test.py BUILD: torch.distributed over HDT, by processes that host or find an embedded daemon. The
interpreter must be the one that has torch."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_rank.py")
EXAMPLE = os.path.join(ROOT, "docs", "examples", "torch", "ddp.py")
TIMEOUT_S = 90
ALL = ["reductions", "exchanges", "messages", "groups", "class_map", "newer", "training", "wrong_calls"]


class Torch(unittest.TestCase):
    def job(self, arguments, nodes, local):
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
                             "OMP_NUM_THREADS": "1",
                             "USE_LIBUV": "0"}))  # Debian's torch 2.6 has none
        self.addCleanup(lambda: [process.kill() for process in processes if process.poll() is None])
        ended = []
        for process in processes:
            output, _ = process.communicate(timeout=TIMEOUT_S)
            ended.append((process.returncode, output))
        return ended

    def passes(self, nodes, local, *cases):
        with self.subTest(cases=cases, nodes=nodes, local=local):
            for rank, (code, output) in enumerate(self.job([RANK, *cases], nodes, local)):
                self.assertEqual(code, 0, f"rank {rank}:\n{output}")

    def test_one_node(self):
        self.passes(1, 2, *ALL)

    def test_two_nodes(self):
        self.passes(2, 2, *ALL)

    def test_example(self):
        for rank, (code, output) in enumerate(self.job([EXAMPLE], 1, 2)):
            self.assertEqual(code, 0, output)
            self.assertIn("loss" if rank == 0 else "", output)

    def test_exit_without_destroying(self):
        self.passes(1, 2, "left_open")

    def test_a_rank_that_is_lost(self):
        for nodes, local in ((1, 3), (2, 1)):
            *others, lost = self.job([RANK, "lost_rank"], nodes, local)
            self.assertEqual(lost[0], -9, lost[1])
            for code, output in others:
                self.assertEqual(code, 0, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
