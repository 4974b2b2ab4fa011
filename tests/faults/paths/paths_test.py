"""paths_test.py: two hosts with an MTU of 9000 on their NICs, and something between them that lets only smaller packets through and tells
nobody: jobs run, with packets that pass, and both daemons say so. And networks that are in order are used in full."""

import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rails"))

from on_hosts import BUILD, OnHosts, TwoHosts, main  # noqa: E402

JUMBO = 9000
ETHERNET = 14  # bytes of a frame that the MTU does not count
PROMISED_S = 5  # within so much all ranks know


class Jumbo(OnHosts):
    """NICs of MTU 9000. Packets over `narrow[host]` bytes that the host sends are dropped."""
    nics = 1
    narrow = (None, None)

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.hosts = self.enterContext(Hosts9000(self.folder, self.nics, self.narrow, self.flags))

    def joined(self, seconds=PROMISED_S):
        begun = time.monotonic()
        ranks = self.group()
        self.assertLess(time.monotonic() - begun, seconds)
        return ranks

    def both(self, ranks, line):
        for rank in ranks:
            rank.start(line)
        return [rank.finish() for rank in ranks]

    def works(self):
        ranks = self.joined()
        for line in ("allreduce 100000 4 0", "allreduce 3000000 4 0", "destroy"):
            self.assertEqual(self.both(ranks, line), [(0, ""), (0, "")])

    def assert_both_say(self, passes):
        """Each host's log names NIC, path and what passes."""
        for host in range(2):
            log = self.hosts.read_log(host)
            self.assertRegex(log, rf"warning.*eth0: small packets pass between 10\.77\.0\.{host + 1}:\d+ and 10\.77\.0\.{2 - host}:\d+, "
                                  rf"but large ones vanish: those of \d+ bytes do not come, those of {passes} do and are used; "
                                  r".* NIC eth0 \(9000\): set the same MTU")

    def segments(self, host):
        """The largest that the host's connections to the other one send."""
        sockets = subprocess.run(self.hosts.command_on(host, ["ss", "-tiHO", "state", "established"]), capture_output=True,
                                 text=True, timeout=60, check=True).stdout
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
        subprocess.run(self.command_on(host, list(command)), capture_output=True, text=True, timeout=60, check=True)

    def drop_over(self, host, packet, nic=0):
        """A token bucket drops what is larger than all its tokens."""
        self.run_on(host, "tc", "qdisc", "replace", "dev", f"eth{nic}", "root", "tbf", "rate", "1gbit", "burst",
                    str(packet + ETHERNET), "limit", "1000000")


class AsItShouldBe(Jumbo):
    def test_large_packets_are_used_and_nothing_is_said(self):
        ranks = self.joined()
        self.assertEqual(self.both(ranks, "allreduce 1000000 4 0"), [(0, ""), (0, "")])
        for host in range(2):
            segments = self.segments(host)
            self.assertTrue(segments)
            self.assertGreater(min(segments), JUMBO - 100)
            self.assertNotIn("vanish", self.hosts.read_log(host))


class ASwitchOf1500(Jumbo):
    narrow = (1500, 1500)

    def test_a_job_runs_and_both_say_why_its_packets_are_small(self):
        self.works()
        self.assert_both_say(1500)


class OneDirection(Jumbo):
    narrow = (None, 1500)

    def test_a_job_runs(self):
        self.works()
        self.assert_both_say(1500)


class TheOtherDirection(Jumbo):
    narrow = (1500, None)

    def test_a_job_runs(self):
        self.works()
        self.assert_both_say(1500)


class SomethingBetween(Jumbo):
    narrow = (4100, 4100)

    def test_as_much_as_passes_is_used(self):
        self.works()
        self.assert_both_say(4000)


class LaterOn(Jumbo):
    def test_a_path_that_becomes_narrow_while_a_group_works(self):
        ranks = self.joined()
        self.assertEqual(self.both(ranks, "allreduce 1000000 4 0"), [(0, ""), (0, "")])
        for host in range(2):
            self.hosts.drop_over(host, 1500)
        self.assertEqual(self.both(ranks, "allreduce 1000000 4 0"), [(0, ""), (0, "")])
        self.assert_both_say(1500)


if __name__ == "__main__":
    main()
