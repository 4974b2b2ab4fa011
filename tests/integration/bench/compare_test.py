"""compare_test.py BUILD: bench/compare from end to end, on few and quick rows, and the programs that time
peers which have one of their own. Figures are not judged here."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import types
import unittest

BUILD = os.path.abspath(sys.argv[1])
BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench")
COMPARE = os.path.join(BENCH, "compare")
TIMEOUT_S = 300

sys.path.insert(0, BENCH)

from comparison import peers  # noqa: E402  the path comes first


def compare(*arguments):
    return subprocess.run([sys.executable, "-B", COMPARE, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class Compare(unittest.TestCase):
    def test_rows_of_every_kind(self):
        rows = ["node-bound", "net-bound", "idle-cpu", "group-memory"]
        with tempfile.TemporaryDirectory(prefix="hdt-compare-test-") as folder:
            path = os.path.join(folder, "figures.json")
            done = compare("--build", BUILD, "--quick", "--rows", ",".join(rows), "--daemon", "separate",
                           "--json", path)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        self.assertEqual([row["name"] for row in document["rows"]], rows)
        for row in document["rows"]:
            self.assertIn(row["verdict"], ("met", "missed"), row)
            self.assertIn(f"| {row['name']} | ", done.stdout)
        self.assertEqual(len(document["rows"][1]["points"]), 3)
        self.assertGreater(document["rows"][0]["figure"], 0)
        self.assertEqual(done.returncode, 0 if all(row["verdict"] == "met" for row in document["rows"])
                         else 1)

    def test_a_row_against_every_peer(self):
        with tempfile.TemporaryDirectory(prefix="hdt-compare-test-") as folder:
            path = os.path.join(folder, "figures.json")
            done = compare("--build", BUILD, "--quick", "--rows", "node-best-small", "--openmpi5", folder,
                           "--json", path)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            missing = {peer.name: peer.missing(types.SimpleNamespace(openmpi5=folder))
                       for peer in peers.PEERS.values()}
        self.assertIsNotNone(missing["Open MPI 5"])
        row = document["rows"][0]
        self.assertEqual(row["notes"], [f"{name}: {why}" for name, why in missing.items() if why])
        present = {name for name, why in missing.items() if not why}
        if not present:
            self.assertEqual((row["verdict"], done.returncode), ("not installed", 0))
            self.skipTest("no peer is installed")
        self.assertIn(row["verdict"], ("met", "missed"), row)
        allreduces = [point for point in row["points"] if point["collective"] == "allreduce"]
        self.assertEqual([point["bytes"] for point in allreduces], [8, 64 << 10])
        for point in allreduces:
            self.assertEqual(set(point["ratios"]), present)
            self.assertEqual(point["ratios"][point["peer"]], min(point["ratios"].values()))
            self.assertGreater(point["ratio"], 0)
        self.assertIn("# node-best-small: best peer of allreduce: 8 B", done.stdout)

    def test_an_interruption_loses_no_row_that_was_measured(self):
        with tempfile.TemporaryDirectory(prefix="hdt-compare-test-") as folder:
            path = os.path.join(folder, "figures.json")
            with subprocess.Popen([sys.executable, "-B", COMPARE, "--build", BUILD, "--quick", "--rows",
                                   "node-bound,net-bound,node-large", "--json", path],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as process:
                for line in process.stderr:
                    if line.startswith("measuring net-bound"):
                        process.send_signal(signal.SIGINT)
                        break
                output, errors = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 130, errors)
            self.assertIn("interrupted: not measured are net-bound, node-large", errors)
            self.assertIn("| node-bound | ", output)
            with open(path, encoding="utf-8") as file:
                self.assertEqual([row["name"] for row in json.load(file)["rows"]], ["node-bound"])

    def test_wrong_usage(self):
        for arguments, expected in ((("--rows", "node-hugest"),
                                     "--rows: 'node-hugest' is not known; expected one of"),
                                    (("--build", "/nowhere"), "--build: no hdt-commbench in /nowhere/bin")):
            done = compare(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)

    def test_the_list_needs_no_build(self):
        done = compare("--list", "--build", "/nowhere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("node-large", done.stdout)


# What an MPI that loses a bit of an allgather would be like.
BROKEN_MPI = """
#include <mpi.h>
extern "C" int MPI_Allgather(const void* send, int count, MPI_Datatype type, void* recv, int recv_count,
                             MPI_Datatype recv_type, MPI_Comm comm) {
  const int result = PMPI_Allgather(send, count, type, recv, recv_count, recv_type, comm);
  static_cast<char*>(recv)[5] ^= 1;
  return result;
}
"""


# Says at the end on which cores a rank may run.
TELLING_MPI = """
#include <mpi.h>
#include <sched.h>
#include <cstdio>
extern "C" int MPI_Finalize() {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  std::printf("{\\"cores\\": %d, \\"first\\": %d}\\n", CPU_COUNT(&cores), first);
  std::fflush(stdout);
  return PMPI_Finalize();
}
"""


class PeerPrograms(unittest.TestCase):
    WORK = [(collective, size, 2, 5) for collective in ("allreduce", "reduce_scatter", "allgather")
            for size in (12, 12 << 10)]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hdt-compare-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.options = types.SimpleNamespace(openmpi5=None)

    def measure(self, key, ranks, work, apart=False):
        peer = peers.PEERS[key]
        if reason := peer.missing(self.options):
            self.skipTest(f"{peer.name}: {reason}")
        peer.prepare(self.options, self.folder)
        return peers.times(peer, self.options, self.folder, ranks, work, apart)

    def build_with(self, text):
        """An MPI's program with a call of the MPI replaced; the MPI's key."""
        keys = [key for key in ("openmpi", "mpich") if not peers.PEERS[key].missing(self.options)]
        if not keys:
            self.skipTest("no MPI is installed")
        peer = peers.PEERS[keys[0]]
        replaced = os.path.join(self.folder, "replaced.cc")
        with open(replaced, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run([peer.compiler, *peers.COMPILER_FLAGS, replaced,
                        os.path.join(BENCH, "peers", "mpi_times.cc"), "-o", peer.program(self.folder)],
                       check=True, timeout=TIMEOUT_S)
        return keys[0]

    def check(self, key, version):
        """Every piece of work has a time, or the peer lacks it. Results are right: the programs verify."""
        named, lines = self.measure(key, 3, self.WORK)
        self.assertIn(version, named)
        self.assertEqual([(line["collective"], line["bytes"]) for line in lines],
                         [each[:2] for each in self.WORK])
        for line in lines:
            self.assertTrue("lacks" in line or line["p50_us"] > 0, line)
        self.assertGreater(sum("p50_us" in line for line in lines), 3)
        _, lines = self.measure(key, 2, [("allgather", 64 << 10, 2, 5)], apart=True)
        self.assertGreater(lines[0]["p50_us"], 0)
        with self.assertRaisesRegex(RuntimeError, "ended with"):
            self.measure(key, 3, [("allreduce", 8, 2, 5)])  # no equal parts

    def test_open_mpi(self):
        self.check("openmpi", "Open MPI v")

    def test_mpich(self):
        self.check("mpich", "MPICH")

    def test_pytorch(self):
        self.check("torch", "PyTorch")

    def test_a_wrong_result_is_no_time(self):
        key = self.build_with(BROKEN_MPI)
        self.measure(key, 2, [("allreduce", 64, 2, 5)])
        with self.assertRaisesRegex(RuntimeError, "allgather of 64 bytes: wrong result"):
            self.measure(key, 2, [("allgather", 64, 2, 5)])

    def test_emulated_nodes_share_no_core(self):
        cores = len(os.sched_getaffinity(0))
        if cores < 2:
            self.skipTest("one core only")
        key = self.build_with(TELLING_MPI)
        for apart, expected in ((False, cores), (True, cores // 2)):
            _, lines = self.measure(key, 2, [("allreduce", 64, 2, 5)], apart)
            told = [line for line in lines if "cores" in line]
            self.assertEqual([line["cores"] for line in told], [expected] * 2)
            self.assertEqual(len({line["first"] for line in told}), 2 if apart else 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
