"""backends_bench_test.py BUILD: bench/backends from end to end, with few messages. Figures are not judged
here."""

import os
import re
import shutil
import subprocess
import sys
import unittest

BUILD = os.path.abspath(sys.argv[1])
BACKENDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench", "backends")
TIMEOUT_S = 200


def backends(*arguments):
    return subprocess.run([sys.executable, "-B", BACKENDS, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class Backends(unittest.TestCase):
    @unittest.skipUnless(shutil.which("iperf3"), "iperf3 is not installed")
    def test_a_row_has_both_figures_and_a_verdict(self):
        done = backends("--build", BUILD, "--rows", "tcp-1,tcp-4", "--rounds", "1", "--writes", "50")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        rows = re.findall(r"^(tcp-\d) +iperf3 +(\d+) +(\d+) +([\d.]+) +0\.90  (met|missed)$", done.stdout,
                          re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["tcp-1", "tcp-4"], done.stdout)
        for _, ours, theirs, figure, verdict in rows:
            self.assertGreater(int(ours), 0)
            self.assertGreater(int(theirs), 0)
            self.assertEqual(verdict, "met" if float(figure) >= 0.9 else "missed", done.stdout)
        self.assertEqual(done.returncode, 0 if all(row[4] == "met" for row in rows) else 1)

    def test_what_cannot_be_measured_is_said(self):
        done = subprocess.run([sys.executable, "-B", BACKENDS, "--build", BUILD, "--rows", "tcp-1",
                               "--rounds", "1", "--writes", "10"],
                              env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("tcp-1    not measured: iperf3 is not installed", done.stdout)

    def test_wrong_usage(self):
        for arguments, expected in ((("--rows", "tcp-9"), "--rows: 'tcp-9' is not known; expected one of"),
                                    (("--rounds", "0"), "--rounds: 0 given; expected 1..100"),
                                    (("--build", "/nowhere"),
                                     "--build: no backend_bandwidth in /nowhere/bin")):
            done = backends("--build", BUILD, *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
