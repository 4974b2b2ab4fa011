"""training_bench_test.py BUILD: bench/torch/training at its smallest: every type of numbers has its row, and
both models learn."""

import os
import re
import subprocess
import sys
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
BENCH = os.path.join(ROOT, "bench", "torch", "training")
ROW = re.compile(r"^(\S+) +([\d,]+) t/s +([\d,]+) t/s .*; ([\d.]+) +"
                 r"\(last losses ([\d.]+) and ([\d.]+)\)$", re.MULTILINE)
UNTRAINED = 5.55  # the logarithm of 257


def bench(*flags):
    return subprocess.run([sys.executable, "-B", BENCH, "--build", BUILD, *flags], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300, check=False)


class Training(unittest.TestCase):
    def test_each_type_has_a_row_and_both_learn(self):
        done = bench("--hidden-size", "32", "--steps", "20", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = ROW.findall(done.stdout)
        self.assertEqual([row[0] for row in rows], ["fp32", "bf16", "bf16-gradients"], done.stdout)
        for _, plain, hdt, ratio, plain_loss, hdt_loss in rows:
            rates = [int(rate.replace(",", "")) for rate in (plain, hdt)]
            self.assertAlmostEqual(float(ratio), rates[1] / rates[0], delta=.01)
            for loss in (plain_loss, hdt_loss):
                self.assertLess(float(loss), UNTRAINED - .3)

    def test_wrong_usage_and_failed_runs_are_told_apart(self):
        done = bench("--hidden-size", "33")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a multiple of 32", done.stderr)
        done = bench("--types", "fp32", "--steps", "4", "--rounds", "1", "--text", os.devnull)
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status", done.stderr)


if __name__ == "__main__":
    unittest.main()
