"""unequal_links_test.py: where hosts have NICs of unequal rates, allreduce has parts that are as unequal, and
every value is right; and bench/unequal measures it."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

from on_hosts import BUILD, ROOT, WAIT_S, main

sys.path.insert(0, os.path.join(ROOT, "tests"))

from program_module import load_program  # noqa: E402

PROGRAM = os.path.join(ROOT, "bench", "unequal")


class UnequalLinks(unittest.TestCase):
    def setUp(self):
        self.unequal = load_program(PROGRAM)

    def explained(self, hosts):
        """What hdtctl explains of a large allreduce, once the group has measured its links."""
        deadline = time.monotonic() + WAIT_S
        explained = {}
        while "predicted_for" not in explained:
            self.assertLess(time.monotonic(), deadline, explained)
            time.sleep(0.05)
            try:
                explained = hosts.control(0, "explain", "allreduce", "64M", "--group", "default")
            except subprocess.CalledProcessError as error:  # there is no such group yet
                explained = error.stdout
        return explained

    def test_parts_follow_the_links_and_all_values_are_right(self):
        options = self.unequal.parse(["--build", BUILD])
        with tempfile.TemporaryDirectory() as folder, \
                self.unequal.UnequalHosts(options, folder, (800, 800, 200), "auto") as hosts:
            figures = os.path.join(folder, "figures.json")
            with self.unequal.Commbench(hosts, figures, "-b", "1M", "-n", "2", "-w", "0", "-d",
                                        "int32,bfloat16,float64", "-o", "sum,max,avg") as ranks:
                explained = self.explained(hosts)
                ranks.finish()
            with open(figures, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
        self.assertEqual(explained["picked"], "pairwise", explained)
        parts = {node["node"]: node["part"] for node in explained["owned"]}
        self.assertEqual(sorted(parts), ["h0", "h1", "h2"])
        self.assertAlmostEqual(sum(parts.values()), 1)
        self.assertLess(parts["h2"], 0.05)
        self.assertLess(abs(parts["h0"] - parts["h1"]), 0.2)
        self.assertGreaterEqual(len(rows), 8)
        for row in rows:
            for way in ("in_place", "out_of_place"):
                self.assertEqual(row[way]["wrong"], 0, row)

    def test_the_bound_is_that_of_the_slowest_link_or_of_all(self):
        second = 1e6 / 8 * self.unequal.PAYLOAD_SHARE  # payload of 1 Mbit/s
        self.assertAlmostEqual(self.unequal.bound_s(second, (1, 1, 1, 0.75)), 2 * 3 / 3.75)
        self.assertAlmostEqual(self.unequal.bound_s(second, (1, 1, 0.25)), 4)

    def test_a_row_has_the_times_the_bound_and_a_verdict(self):
        done = subprocess.run([PROGRAM, "--build", BUILD, "--rows", "three", "--megabytes", "2", "--rounds",
                               "1", "--iterations", "1"], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertIn(done.returncode, (0, 1), done)
        self.assertEqual(done.stderr, "")
        head, row = done.stdout.splitlines()
        self.assertEqual(head.split()[0], "row")
        self.assertRegex(row, r"^three +(\d+\.\d{3} +){3}\d+\.\d% +\d+\.\d\d +85% of bound +(met|missed)$")
        self.assertEqual(row.endswith("met"), done.returncode == 0)


if __name__ == "__main__":
    main()
