"""commbench_test.py BUILD [LARGE]: hdt-commbench over real ranks and nodes: started by itself and by mpirun,
every collective, type and reduction; what it says and returns when something is wrong. LARGE is the size of
large messages.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "bin", "hdt-commbench")
LARGE = sys.argv[2] if len(sys.argv) > 2 else "64M"
TIMEOUT_S = 240


def environment(**extra):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HDT_", "OMPI_", "PMIX_"))}
    clean.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **extra)
    return clean


def run(command, **extra):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=TIMEOUT_S, check=False, env=environment(**extra))


class Commbench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="hdt-commbench-")
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "result.json")

    def measure(self, launcher, *arguments, iterations=3):
        """Runs to success; returns the JSON report."""
        done = run([*launcher, PROGRAM, *arguments, "--json", self.json, "-n", str(iterations), "-w", "1",
                    "--timeout", "60"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        with open(self.json, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(report["wrong"], 0)
        return report

    def test_everything_over_two_nodes_of_two_ranks(self):
        report = self.measure([], "all", "--nodes", "2", "--local", "2", "-d", "all", "-o", "all", "-b", "8",
                              "-e", "64K", "-f", "64")
        self.assertEqual([rank["node"] for rank in report["ranks"]], [0, 0, 1, 1])
        self.assertEqual(len({rank["pid"] for rank in report["ranks"]}), 4)
        self.assertEqual(len(report["rows"]), 3 * 14 * (3 * 8 + 6) + 1)  # one barrier

    def test_large_messages_over_two_nodes_of_two_ranks(self):
        self.measure([], "all", "--nodes", "2", "--local", "2", "-d", "bfloat16,int64", "-b", LARGE,
                     iterations=1)

    def test_one_node_and_every_root(self):
        report = self.measure([], "broadcast", "reduce", "--local", "3", "-r", "all", "-b", "40", "-e", "1M",
                              "-f", "30")
        self.assertEqual({rank["node"] for rank in report["ranks"]}, {0})
        self.assertEqual({row["root"] for row in report["rows"]}, {0, 1, 2})

    def test_shared_memory_buffers_and_odd_sizes(self):
        self.measure([], "all", "--nodes", "3", "--local", "1", "--memory", "hdt", "-b", "4", "-e", "1000004",
                     "-i", "333333")

    def test_an_end_right_after_leaving_is_no_failure(self):
        for _ in range(20):  # the process may end before its daemon has heard that it has left
            done = run([PROGRAM, "allreduce", "-b", "8", "-n", "1", "-w", "0"])
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_one_rank_alone(self):
        self.assertEqual(len(self.measure([], "all", "-b", "1K", "-e", "1K")["ranks"]), 1)

    def test_under_mpirun(self):
        report = self.measure(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "4"], "allreduce",
                              "sendrecv", "-b", "8", "-e", "4M", "-f", "64")
        self.assertEqual(len(report["ranks"]), 4)

    def test_wrong_usage_is_one_line_and_exit_code_2(self):
        done = run([PROGRAM, "allreduce", "--local", "2", "-r", "5"])
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "hdt-commbench: -r: '5' given; expected a rank of the group, 0 to 1, "
                                      "or all\n")
        done = run([PROGRAM, "allreduce", "-d", "float31"])
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_daemon_that_is_not_there_is_named(self):
        socket = os.path.join(self.folder.name, "none.sock")
        done = run([PROGRAM, "allreduce", "-b", "8"], HDT_RANK="0", HDT_SIZE="2",
                   HDT_RENDEZVOUS="127.0.1.1:9", HDT_SOCKET=socket)
        self.assertEqual(done.returncode, 1)
        self.assertIn(socket, done.stderr)

    def test_a_killed_rank_ends_the_run(self):
        # No operation's deadline passes within this test's: only the loss itself can end the run.
        command = [PROGRAM, "allreduce", "--nodes", "2", "--local", "2", "-b", "1M", "-n", "1000000",
                   "--timeout", "3600"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        pid = None
        for line in process.stdout:  # the header comes when all ranks have joined
            if line.startswith("#  Rank   3"):
                pid = int(line.split()[6])
            if line.startswith("#        (B)"):
                break
        self.assertIsNotNone(pid)
        os.kill(pid, 9)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("rank 3 (pid %d) was ended by signal 9" % pid, errors)
        # If rank 3 hosted its node's daemon, that whole node is gone.
        self.assertRegex(errors, r"rank 0: .*rank (2, )?3\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
