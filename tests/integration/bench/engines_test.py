"""engines_test.py BUILD: hdt-commbench's peers against its verifier, and how it starts and refuses them."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "bin", "hdt-commbench")
TIMEOUT_S = 240


def run(*command):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDT_", "OMPI_", "PMIX_"))}
    # Leak reports of the peers' libraries are not ours to judge.
    clean["ASAN_OPTIONS"] = "detect_leaks=0"
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=TIMEOUT_S, check=False, env=clean)


def built_engines():
    """Those that the program does not refuse to start."""
    engines = ["hdt", "raw"]
    for peer in ("gloo", "mpi"):
        done = run(PROGRAM, "allreduce", "--engine", "hdt," + peer, "--local", "2", "-b", "8", "-n", "1",
                   "-w", "0")
        if done.returncode == 0:
            engines.append(peer)
        elif "is not built in; install" not in done.stderr:
            raise AssertionError(done.stdout + done.stderr)
    return engines


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engines = built_engines()

    def measure(self, *arguments, engines=None):
        engines = engines or self.engines
        with tempfile.TemporaryDirectory(prefix="hdt-commbench-") as folder:
            path = os.path.join(folder, "result.json")
            done = run(PROGRAM, *arguments, "--engine", ",".join(engines), "--json", path, "-n", "2", "-w",
                       "1", "--rounds", "2", "--timeout", "60")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual([engine["name"] for engine in report["engines"]], engines)
        self.assertTrue(all(engine["version"] for engine in report["engines"]))
        self.assertEqual(report["wrong"], 0)
        self.check_rows(report, engines)
        return report

    def check_rows(self, report, engines):
        """Every engine has a row at every size; it was verified, or it says why there is no figure."""
        for row in report["rows"]:
            what = (row["engine"], row["collective"], row["type"], row["op"], row["bytes"])
            if row["lacks"] is not None:
                # HDT lacks nothing but what no library has.
                bitwise = row["op"] in ("band", "bor", "bxor") and "float" in row["type"]
                self.assertTrue(row["engine"] != "hdt" or bitwise, what)
                self.assertIsNone(row["out_of_place"], what)
                continue
            for placement in filter(None, (row["out_of_place"], row["in_place"])):
                verified = row["engine"] != "raw" and row["collective"] != "barrier"
                # wrong now and then on busy cores
                if row["engine"] != "gloo" or row["collective"] != "reduce_scatter":
                    self.assertEqual(placement["wrong"], 0 if verified else None, what)
                self.assertEqual(len(placement["round_p50_us"]), 2, what)
                self.assertGreater(placement["ratio"], 0, what)
        rows = [row["engine"] for row in report["rows"]]
        self.assertEqual(rows, engines * (len(rows) // len(engines)))

    def measured(self, report, engine, **wanted):
        return [row for row in report["rows"] if row["engine"] == engine and row["lacks"] is None
                and all(row[key] == value for key, value in wanted.items())]

    def test_every_call_between_nodes(self):
        report = self.measure("all", "--nodes", "2", "--local", "1", "-d", "all", "-o", "all", "-b", "8",
                              "-e", "64K", "-f", "128")
        self.assertTrue(self.measured(report, "raw", collective="allreduce"))
        for peer in set(self.engines) - {"hdt", "raw"}:
            for what in ("allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "alltoall",
                         "gather", "scatter", "sendrecv"):
                self.assertTrue(self.measured(report, peer, collective=what, type="float32"), (peer, what))
            self.assertFalse(self.measured(report, peer, op="avg"))
            self.assertFalse(self.measured(report, peer, collective="allreduce", type="bfloat16"))

    def test_three_ranks_of_a_node_and_odd_sizes(self):
        self.measure("all", "--local", "3", "-b", "12", "-e", "100008", "-i", "33332", "-r", "all")

    def test_two_nodes_of_two_ranks(self):
        self.measure("all", "--nodes", "2", "--local", "2", "-b", "1M", "--memory", "hdt")

    def test_large_messages(self):
        report = self.measure("allreduce", "reduce_scatter", "--nodes", "2", "-b", "16M")
        for row in report["rows"]:
            self.assertGreater(row["out_of_place"]["sent_bytes"].get("lo", 0), row["bytes"] / 4,
                               row["engine"])

    def test_a_ring_of_three_nodes_for_the_bound(self):
        self.measure("allreduce", "allgather", "--nodes", "3", "-b", "1M", engines=["raw", "hdt"])

    def test_peers_alone(self):
        self.measure("allreduce", "--nodes", "2", "-b", "4K", engines=[e for e in self.engines if e != "hdt"])

    def test_separate_daemons_count_as_processor_time(self):
        report = self.measure("allreduce", "--nodes", "2", "-b", "4M", "--daemon", "separate")
        for row in report["rows"]:
            self.assertGreater(row["out_of_place"]["cpu_s_per_gb"], 0, row["engine"])

    def test_mpi_needs_mpirun(self):
        if "mpi" not in self.engines:
            self.skipTest("built without Open MPI")
        done = run(PROGRAM, "allreduce", "-b", "8", "--engine", "mpi")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--engine: mpi needs ranks that were started by mpirun", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        environment = {"PATH": "/nowhere"}
        done = subprocess.run([PROGRAM, "allreduce", "-b", "8", "--engine", "mpi", "--local", "2"],
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr,
                         "hdt-commbench: --engine: mpi needs mpirun in PATH; install openmpi-bin\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
