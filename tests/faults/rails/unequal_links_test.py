"""unequal_links_test.py: where hosts have NICs of unequal rates, allreduce has parts that are as unequal, and
so are suggested counts, and every value is right; and bench/unequal measures it."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

from on_hosts import BUILD, ROOT, WAIT_S, main
from processes import clean_environment
from rails.two_hosts import PORT, Hosts

sys.path.insert(0, os.path.join(ROOT, "tests"))

from program_module import load_program  # noqa: E402

PROGRAM = os.path.join(ROOT, "bench", "unequal")
RUN_S = 300  # or until the test has seen enough


class KnownHosts(Hosts):
    """Hosts whose daemons have measured their links before: on a busy machine they would measure other rates.
    `rates`: of each host's links, in bytes a second."""

    def __init__(self, folder, rates, nics, flags=()):
        super().__init__(BUILD, folder, len(rates), str(nics), "200m", flags)
        for host, own in enumerate(rates):
            os.mkdir(self.state(host))
            links = [{"node": f"h{peer}", "engine": 0, "latency_ns": 50_000, "bytes_s": min(own, rate),
                      "duplex_bytes_s": min(own, rate)} for peer, rate in enumerate(rates) if peer != host]
            with open(os.path.join(self.state(host), "measurements.json"), "w", encoding="utf-8") as file:
                json.dump({"format": 2, "links": links}, file)

    def state(self, host):
        return os.path.join(self.folder, f"state{host}")

    def environment(self, host):
        return clean_environment(HDT_NODE_STATE_FOLDER=self.state(host))


class UnequalLinks(unittest.TestCase):
    def setUp(self):
        self.unequal = load_program(PROGRAM)

    def parts_of_right_values(self, hosts, algorithm, size, rows, *arguments):
        """The nodes' parts of an allreduce of that size by that algorithm, while hdt-commbench verifies at
        least so many rows."""
        figures = os.path.join(hosts.folder, "figures.json")
        with self.unequal.Commbench(hosts, figures, "-n", "2", "-w", "0", *arguments) as ranks:
            explained = hosts.explained(size)
            ranks.finish()
        with open(figures, encoding="utf-8") as file:
            found = json.load(file)["rows"]
        self.assertGreaterEqual(len(found), rows)
        for row in found:
            for way in ("in_place", "out_of_place"):
                self.assertEqual(row[way]["wrong"], 0, row)
        self.assertEqual(explained["picked"], algorithm, explained)
        parts = {node["node"]: node["part"] for node in explained["owned"]}
        self.assertAlmostEqual(sum(parts.values()), 1)
        return parts

    def test_parts_follow_the_links_and_all_values_are_right(self):
        options = self.unequal.parse(["--build", BUILD])
        with tempfile.TemporaryDirectory() as folder, \
                self.unequal.UnequalHosts(options, folder, (800, 800, 200), "auto") as hosts:
            parts = self.parts_of_right_values(hosts, "pairwise", "64M", 8, "-b", "1M", "-d",
                                               "int32,bfloat16,float64", "-o", "sum,max,avg")
        self.assertEqual(sorted(parts), ["h0", "h1", "h2"])
        self.assertLess(parts["h2"], 0.05)
        self.assertLess(abs(parts["h0"] - parts["h1"]), 0.2)

    def await_part(self, hosts, of_host, what):
        """Until that host combines little of a call, or, without a host, all have equal parts. The call is of
        many chunks: in one of few, a host at 5/8 of the others' rate has a ring, as phases overlap less."""
        deadline = time.monotonic() + WAIT_S
        parts = None
        while time.monotonic() < deadline:
            time.sleep(0.05)
            try:
                owned = hosts.control(0, "explain", "allreduce", "64M", "--group", "default").get("owned", [])
            except subprocess.CalledProcessError:  # a daemon that was started again has no group yet
                continue
            parts = [node["part"] for node in owned]
            if not parts if of_host is None else parts and parts[of_host] < 0.15:
                return
        self.fail(f"{what}: {parts}\n" + "\n".join(hosts.read_log(host) for host in range(hosts.count)))

    def test_parts_follow_a_rail_that_is_lost_and_comes_back_also_over_restarts(self):
        with tempfile.TemporaryDirectory() as folder, KnownHosts(folder, [48_000_000] * 3, 2) as hosts:
            ranks = hosts.ranks("allreduce", RUN_S, 1024)
            self.await_part(hosts, None, "equal parts of equal hosts")
            hosts.link(2, 1, "down")
            self.await_part(hosts, 2, "less for the third host")
            # The daemon that proposes changes, and the one with the lost rail.
            for host in (0, 2):
                hosts.restart_daemon(host)
            self.await_part(hosts, 2, "as before the restart")
            hosts.link(2, 1, "up")
            hosts.restart_daemon(2)  # it has only the NICs that were there when it was started
            self.await_part(hosts, None, "equal parts again")
            # In the midst of a change: wherever it is then.
            hosts.link(1, 0, "down")
            time.sleep(random.uniform(0.25, 0.4))
            hosts.restart_daemon(0)
            self.await_part(hosts, 1, "less for the second host")
            hosts.link(1, 0, "up")
            self.await_part(hosts, None, "equal parts at last")
            ranks.end_soon()
            self.assertGreater(len(ranks.results(60)), 5)
            self.assertIn("has other rates from call", hosts.read_log(1))

    def test_parts_follow_a_class_that_moves_to_other_nics(self):
        flags = ["--class.default.nics", "eth1"]
        with tempfile.TemporaryDirectory() as folder, KnownHosts(folder, [24_000_000] * 3, 2, flags) as hosts:
            ranks = hosts.ranks("allreduce", RUN_S, 1024)
            self.await_part(hosts, None, "equal parts of equal hosts")

            def move(nics):
                hosts.control(0, "class", "set", "default", "nics=" + nics)

            # Addresses end in the numbers of the NIC, from 0, and of the host, from 1. The first two get a
            # second NIC, which the measured links did not have.
            net = hosts.address().rsplit(".", 2)[0]
            move(net + ".*[12]*")
            self.await_part(hosts, 2, "more for the hosts with two NICs")
            # The daemon that proposes changes, and one with more than was measured.
            for host in (0, 1):
                hosts.restart_daemon(host)
            self.await_part(hosts, 2, "as before the restart")
            move("eth0,eth1")
            self.await_part(hosts, None, "equal parts with two NICs each")
            move(net + ".*[13]*")
            self.await_part(hosts, 1, "less for the host that has lost a NIC")
            move("eth1")
            self.await_part(hosts, None, "equal parts with one NIC each")
            ranks.end_soon()
            self.assertGreater(len(ranks.results(60)), 5)

    def test_parts_follow_another_class_on_a_port_and_return_after_it(self):
        with tempfile.TemporaryDirectory() as folder, KnownHosts(folder, [24_000_000] * 4, 1) as hosts:
            ranks = hosts.ranks("allreduce", RUN_S, 1024, on=(0, 1, 2))
            self.await_part(hosts, None, "equal parts of equal hosts")
            others = hosts.ranks("allreduce", RUN_S, 8192, "other", port=PORT + 1, on=(2, 3))
            self.await_part(hosts, 2, "less for the host that another class uses")
            others.end_soon()
            self.assertGreater(len(others.results(60)), 1)
            self.await_part(hosts, None, "equal parts again")
            ranks.end_soon()
            self.assertGreater(len(ranks.results(60)), 5)

    def test_many_hosts_exchange_in_two_levels(self):
        rates = [24_000_000] * 12
        rates[4] //= 2
        with tempfile.TemporaryDirectory() as folder, \
                KnownHosts(folder, rates, 1, ["--class.default.algorithm", "two_level"]) as hosts:
            parts = self.parts_of_right_values(hosts, "two_level", "1M", 4, "-b", "300001", "-d",
                                               "int32,bfloat16", "-o", "sum,max")
        self.assertEqual(len(parts), 12)
        self.assertEqual(min(parts, key=parts.get), "h4")

    def test_suggested_counts_follow_the_links_and_all_values_are_right(self):
        options = self.unequal.parse(["--build", BUILD])
        with tempfile.TemporaryDirectory() as folder, \
                self.unequal.UnequalHosts(options, folder, (200, 800, 800), "auto") as hosts:
            ranks = hosts.ranks("suggested", 1, 6 << 10)
            outputs = [process.communicate(timeout=WAIT_S) for process in ranks.processes]
        for output, errors in outputs:
            self.assertTrue(output.endswith("wrong 0\n"), (output, errors))
        counts = [[int(line.split()[1]) for line in output.splitlines() if line.startswith("count ")]
                  for output, _ in outputs]
        self.assertEqual(counts, [counts[0]] * 3)
        self.assertEqual(sum(counts[0]), 6 << 18)
        self.assertGreater(counts[0][0], 0.45 * (6 << 18))
        self.assertLess(abs(counts[0][1] - counts[0][2]), 0.1 * (6 << 18))

    def test_no_counts_are_faster_than_their_bound(self):
        second = 1e6 / 8 * self.unequal.PAYLOAD_SHARE
        self.assertAlmostEqual(self.unequal.holders_bound_s(second, (1, 1, 1, 0.5)), 2)
        self.assertAlmostEqual(self.unequal.holders_bound_s(second, (0.5, 1, 0.5, 0.5)), 2 * 2 / 1.5)
        self.assertAlmostEqual(self.unequal.holders_bound_s(second, (1, 1, 1, 1)), 2 * 3 / 4)

    def test_the_bound_is_that_of_the_slowest_link_or_of_all(self):
        second = 1e6 / 8 * self.unequal.PAYLOAD_SHARE  # payload of 1 Mbit/s
        self.assertAlmostEqual(self.unequal.bound_s(second, (1, 1, 1, 0.75)), 2 * 3 / 3.75)
        self.assertAlmostEqual(self.unequal.bound_s(second, (1, 1, 0.25)), 4)

    def row_of_the_benchmark(self, name, iterations):
        """The exit code and the line of one row of 2 MiB, in one round."""
        done = subprocess.run([PROGRAM, "--build", BUILD, "--rows", name, "--megabytes", "2", "--rounds", "1",
                               "--iterations", str(iterations)], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertIn(done.returncode, (0, 1), done)
        self.assertEqual(done.stderr, "")
        head, row = done.stdout.splitlines()
        self.assertEqual(head.split()[0], "row")
        return done.returncode, row

    def test_a_row_has_the_times_the_bound_and_a_verdict(self):
        code, row = self.row_of_the_benchmark("three", 1)
        self.assertRegex(row, r"^three +(\d+\.\d{3} +){3}\d+\.\d% +\d+\.\d\d +85% of bound +(met|missed)"
                              r" +[+-]\d+\.\d% +15% +(met|missed)$")
        self.assertEqual("missed" not in row, code == 0)

    def test_the_row_of_counts_compares_them_with_equal_ones(self):
        _, row = self.row_of_the_benchmark("counts", 3)
        self.assertRegex(row, r"^counts +(\d+\.\d{3} +){3}\d+\.\d% +\d+\.\d\d +125% of equal +(met|missed)$")


if __name__ == "__main__":
    main()
