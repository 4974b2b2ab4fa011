"""paths_test.py: two hosts with an MTU of 9000 on their NICs, and something between them that lets only
smaller packets through and tells nobody: jobs run, with packets that pass, and both daemons say so. And
networks that are in order are used in full."""

import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rails"))

from on_hosts import BUILD, OnHosts, RankProgram, TwoHosts, main  # noqa: E402

JUMBO = 9000
ETHERNET = 14  # bytes of a frame that the MTU does not count
PROMISED_S = 5  # within so much of each other all ranks know
DEADLINE_MS = 120_000  # of making a group: nothing here waits for it
HDT_ERR_RANK_LOST = 11
HDT_ERR_LINK = 12


class Jumbo(OnHosts):
    """NICs of MTU 9000. Packets over `narrow[host]` bytes that the host sends are dropped."""
    nics = 1
    narrow = (None, None)

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.hosts = self.enterContext(Hosts9000(self.folder, self.nics, self.narrow, self.flags))

    def started(self):
        ranks = [RankProgram(self.hosts, host) for host in range(2)]
        for rank in ranks:
            self.addCleanup(rank.process.communicate)
            self.addCleanup(rank.process.kill)
        return ranks

    def joining(self):
        """A rank on each host, on their ways into a group."""
        ranks = self.started()
        ranks[0].start("id")
        result, name = ranks[0].finish()
        self.assertEqual(result, 0, name)
        for number, rank in enumerate(ranks):
            rank.start(f"join 2 {number} {DEADLINE_MS} {name}")
        return ranks

    def assert_alike(self, ranks, words):
        """Both fail, with the same cause, within the promised time of each other."""
        ends = []
        for rank in ranks:
            result, said = rank.finish()
            self.assertEqual(result, HDT_ERR_LINK, said)
            self.assertRegex(said, words)
            ends.append(time.monotonic())
        self.assertLess(ends[1] - ends[0], PROMISED_S)

    def told(self, host, *words):
        return subprocess.run([os.path.join(BUILD, "bin", "hdtctl"), "--socket", self.hosts.socket(host),
                               *words],
                              capture_output=True, text=True, timeout=60, check=False).stdout

    def doctor(self, host):
        return self.told(host, "doctor", f"10.77.0.{2 - host}")

    def why(self, host):
        return self.told(host, "why")

    def works(self):
        ranks = self.group()
        for line in ("allreduce 100000 4 0", "allreduce 3000000 4 0", "destroy"):
            self.assertEqual(self.both(ranks, line), [(0, ""), (0, "")])

    def assert_both_say(self, passes):
        """Each host's log names NIC, path and what passes."""
        for host in range(2):
            log = self.hosts.read_log(host)
            self.assertRegex(log, rf"warning.*eth0: small packets pass between 10\.77\.0\.{host + 1}:\d+ "
                                  rf"and 10\.77\.0\.{2 - host}:\d+, but large ones vanish: those of \d+ "
                                  rf"bytes do not come, those of {passes} do and are used; "
                                  r".* NIC eth0 \(9000\): set the same MTU")

    def segments(self, host):
        """The largest that the host's connections to the other one send."""
        sockets = subprocess.run(self.hosts.command_on(host, ["ss", "-tiHO", "state", "established"]),
                                 capture_output=True, text=True, timeout=60, check=True).stdout
        return [int(mss) for mss in re.findall(r"10\.77\.0\.\d+:\d+ .* mss:(\d+)", sockets)]


class Hosts9000(TwoHosts):
    def __init__(self, folder, nics, narrow, flags):
        super().__init__(BUILD, folder, str(nics), "1g", flags)
        self.narrow = narrow

    def start_daemon(self, host):
        for nic in range(int(self.nics)):
            self.run_on(host, "ip", "link", "set", f"eth{nic}", "mtu", str(JUMBO))
            # Without offloading each packet is one of the wire.
            self.run_on(host, "ethtool", "-K", f"eth{nic}", "tso", "off", "gso", "off", "gro", "off")
            self.run_on(host, "tc", "qdisc", "del", "dev", f"eth{nic}", "root")
        if self.narrow[host] is not None:
            self.drop_over(host, self.narrow[host])
        return super().start_daemon(host)

    def run_on(self, host, *command):
        subprocess.run(self.command_on(host, list(command)), capture_output=True, text=True, timeout=60,
                       check=True)

    def drop_incoming(self, host, *which):
        """Packets to the host vanish when they have arrived."""
        self.run_on(host, "ip", "rule", "add", "pref", "200", "lookup", "local")
        self.run_on(host, "ip", "rule", "add", "pref", "10", "iif", "eth0", *which, "blackhole")
        self.run_on(host, "ip", "rule", "del", "pref", "0")

    def drop_over(self, host, packet, nic=0):
        """A token bucket drops what is larger than all its tokens."""
        self.run_on(host, "tc", "qdisc", "replace", "dev", f"eth{nic}", "root", "tbf", "rate", "1gbit",
                    "burst", str(packet + ETHERNET), "limit", "1000000")


class AsItShouldBe(Jumbo):
    def test_large_packets_are_used_and_later_on_smaller_ones(self):
        """A network that is in order is used in full; when it is not any more, a group goes on."""
        ranks = self.group()
        self.assertEqual(self.both(ranks, "allreduce 1000000 4 0"), [(0, ""), (0, "")])
        for host in range(2):
            segments = self.segments(host)
            self.assertTrue(segments)
            self.assertGreater(min(segments), JUMBO - 100)
            self.assertNotIn("vanish", self.hosts.read_log(host))
        self.assertIn("packets of 9000 bytes pass between NIC eth0 and node h1, both ways", self.doctor(0))
        for host in range(2):
            self.hosts.drop_over(host, 1500)
        self.assertEqual(self.both(ranks, "allreduce 1000000 4 0"), [(0, ""), (0, "")])
        self.assert_both_say(1500)


class OneDirection(Jumbo):
    narrow = (None, 1500)

    def test_a_job_runs_and_both_say_why_its_packets_are_small(self):
        self.works()
        self.assert_both_say(1500)
        for host in range(2):
            self.assertRegex(self.doctor(host),
                             r"warning +mtu .*those of 2000 bytes do not come, those of 1500 do")


class SomethingBetween(Jumbo):
    narrow = (4100, 4100)

    def test_as_much_as_passes_is_used(self):
        self.works()
        self.assert_both_say(4000)


class SmallBursts(Jumbo):
    def test_losses_are_no_narrow_path(self):
        """A policer that takes two large packets at a time: slow, but in full."""
        for host in range(2):
            self.hosts.run_on(host, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "200mbit",
                              "burst", "20000", "limit", "20000")
        ranks = self.group()
        self.assertEqual(self.both(ranks, "allreduce 100000 4 0"), [(0, ""), (0, "")])
        for host in range(2):
            self.assertNotIn("vanish", self.hosts.read_log(host))


class DataPortsShut(Jumbo):
    def test_doctor_and_why_name_the_port_and_both_ranks_fail(self):
        """A firewall that lets the control port through and no other."""
        for host in range(2):
            self.hosts.drop_incoming(host, "ipproto", "tcp", "sport", "32768-60999", "dport", "32768-60999")
        for host in range(2):
            told = self.doctor(host)
            self.assertRegex(told, rf"problem +reach +NIC eth0 \(10\.77\.0\.{host + 1}\) "
                                   rf"reaches no NIC of node h{1 - host}")
            self.assertRegex(told, rf"eth0 \(10\.77\.0\.{2 - host}\) of node h{1 - host} "
                                   rf"does not reach data port eth0")
            self.assertNotIn("packets of", told)
        ranks = self.joining()
        self.wait_for("why", lambda: re.search(r"tcp dials eth0 \(10\.77\.0\.\d\) to 10\.77\.0\.\d:\d+",
                                               self.why(0) + self.why(1)))
        for host in range(2):
            self.assertRegex(self.why(host),
                             r"group [0-9a-f]{8} \(class default\) is being made: "
                             r"all 2 ranks have joined; node h")
        self.assert_alike(ranks, r"no answer within 3000 ms")

    flags = ("--timeouts.connect_ms", "3000")


class ADeadWay(Jumbo):
    flags = ("--timeouts.connect_ms", "3000", "--link.wait_ms", "500")

    def test_both_ranks_fail_when_it_dies_while_the_group_is_made(self):
        """Nothing more arrives, at neither host, and nobody is told: long before the deadline both know."""
        ranks = self.joining()
        time.sleep(0.04)
        for host in range(2):
            self.hosts.drop_incoming(host)
        for rank in ranks:
            result, words = rank.finish()
            if result == 0:  # it was made before
                rank.start("allreduce 1000 4 0")
                result, words = rank.finish()
            self.assertIn(result, (HDT_ERR_LINK, HDT_ERR_RANK_LOST), words)


class OneMissing(Jumbo):
    def test_why_says_who_has_not_joined(self):
        ranks = self.started()
        ranks[0].start("id")
        _, name = ranks[0].finish()
        ranks[1].start(f"join 2 1 30000 {name}")
        for host in range(2):
            self.wait_for("why", lambda at=host: re.search(
                r"is being made: rank 0 of 2 has not joined; 1 \(node h1\) has; it is given up in \d",
                self.why(at)))
            self.assertNotIn("nothing to do", self.why(host))


if __name__ == "__main__":
    main()
