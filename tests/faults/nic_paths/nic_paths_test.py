"""nic_paths_test.py: hosts that have NICs which do not lead to each other, beside one that does, or alone.

A group is made over what connects them, whatever stands first; who answers must be who was meant; and where
nothing leads there the failure names what was tried.
"""

import contextlib
import os
import sys
import tempfile
import unittest

from wired_hosts import ROOT, NotPossible, WiredHosts

# The build whose programs are tested.
BUILD = os.path.join(ROOT, "build", "release") if len(sys.argv) < 2 else sys.argv.pop(1)
SKIPPED = 77
HDT_ERR_LINK = 12

ETH0 = (("eth0", "eth0"), ("10.9.0.1/24", "10.9.0.2/24"))
OVER_ETH0 = [("10.9.0.1", "10.9.0.2")]


def ask(ranks, line):
    """What all of them answer to a line."""
    for rank in ranks:
        rank.stdin.write(line + "\n")
        rank.stdin.flush()
    answers = [rank.stdout.readline().rstrip("\n").split(" ", 1) for rank in ranks]
    return [(int(answer[0]), answer[-1]) for answer in answers]


class Paths(unittest.TestCase):
    def setUp(self):
        self.blocks = self.enterContext(contextlib.ExitStack())
        self.start()

    def start(self):
        """Two hosts, in place of those before."""
        self.blocks.close()
        folder = self.blocks.enter_context(tempfile.TemporaryDirectory())
        self.hosts = self.blocks.enter_context(WiredHosts(BUILD, folder))

    def logs(self):
        return "\n".join(daemon.log() for daemon in self.hosts.daemons)

    def ranks(self, daemons, rendezvous="10.9.0.1"):
        ranks = [daemon.rank(number, len(daemons), rendezvous) for number, daemon in enumerate(daemons)]
        for rank in ranks:
            self.blocks.callback(rank.communicate)
            self.blocks.callback(rank.kill)
        return ranks

    def works(self, daemons, rails, rendezvous="10.9.0.1"):
        """A group is made, computes, and the rails of the first daemon are these."""
        ranks = self.ranks(daemons, rendezvous)
        self.assertEqual(ask(ranks, "init"), [(0, "")] * len(ranks), self.logs())
        self.assertEqual(ask(ranks, "allreduce 100000 4 0"), [(0, "")] * len(ranks), self.logs())
        self.assertEqual(daemons[0].rails(), rails, self.logs())
        self.assertEqual(ask(ranks, "destroy"), [(0, "")] * len(ranks), self.logs())

    def fails(self, daemons, words, rendezvous="10.9.0.1"):
        """Not by the deadline, and all say why."""
        for code, text in ask(self.ranks(daemons, rendezvous), "init"):
            self.assertEqual(code, HDT_ERR_LINK, f"{text}\n{self.logs()}")
            self.assertRegex(text, words)

    def daemons(self, *flags):
        return [self.hosts.daemon(host, *flags) for host in range(2)]

    def test_the_same_address_on_a_nic_of_each_host(self):
        for nic, address, flags in (("usb0", "169.254.3.1/24", ()),
                                    ("docker0", "172.17.0.1/16", ("--nics.exclude", "lo")),
                                    ("dns0", "169.254.20.10/32", ())):
            for first in (True, False):
                with self.subTest(nic=nic, first=first):
                    self.start()
                    if first:
                        for host in range(2):
                            self.hosts.island(host, nic, address)
                    self.hosts.cable(*ETH0)
                    if not first:
                        for host in range(2):
                            self.hosts.island(host, nic, address)
                    self.works(self.daemons(*flags), OVER_ETH0)

    def test_who_answers_there_is_another_daemon(self):
        """It listens at the port that the other one has on its NIC: this host's own daemon, or a second
        one of it."""
        for other, alone in ((False, False), (False, True), (True, False), (True, True)):
            with self.subTest(other=other, alone=alone):
                self.start()
                for host in range(2):
                    self.hosts.island(host, "usb0", "169.254.3.1/24")
                    self.hosts.system(host, "net.ipv4.ip_local_port_range=40000 40000")
                self.hosts.cable(*ETH0)
                if other:  # it has the port; the one that takes part gets another
                    self.hosts.daemon(0, "--nics.port", "18521", name="c")
                    self.hosts.system(0, "net.ipv4.ip_local_port_range=41000 60999")
                flags = ("--class.default.nics", "usb0") if alone else ()
                both = self.daemons(*flags)
                for host in range(2):
                    self.hosts.system(host, "net.ipv4.ip_local_port_range=41000 60999")
                if not alone:
                    self.works(both, OVER_ETH0)
                    continue
                self.fails(both, r"usb0 169\.254\.3\.1 - usb0 169\.254\.3\.1:40000: " +
                           ("node c answers there" if other else "this node answers there itself"))

    def test_nothing_but_an_address_that_both_have(self):
        for host in range(2):
            self.hosts.island(host, "usb0", "169.254.3.1/24")
        self.hosts.cable(*ETH0)
        self.fails(self.daemons("--class.default.nics", "usb0"),
                   r"usb0 169\.254\.3\.1 - usb0 169\.254\.3\.1:\d+: this host has that address itself")

    def test_a_network_that_does_not_connect_them(self):
        """Its addresses look as if it did."""
        for first in (True, False):
            with self.subTest(first=first):
                self.start()
                if not first:
                    self.hosts.cable(*ETH0)
                for host in range(2):
                    self.hosts.island(host, "ib0", f"10.5.0.{host + 1}/24")
                    self.hosts.island(host, "ib1", f"10.4.0.{host + 1}/24", carrier=False)
                if first:
                    self.hosts.cable(*ETH0)
                self.works(self.daemons(), OVER_ETH0)

    def test_nothing_but_networks_that_do_not_connect_them(self):
        for host in range(2):
            self.hosts.island(host, "ib0", f"10.5.0.{host + 1}/24")
            self.hosts.island(host, "ib1", f"10.6.0.{host + 1}/24")
        self.hosts.cable(*ETH0)
        self.fails(self.daemons("--class.default.nics", "ib*"),
                   r"ib0 10\.5\.0\.1 - ib0 10\.5\.0\.2:\d+.*ib1 10\.6\.0\.1 - ib")

    def test_nics_that_are_wired_crosswise(self):
        """The first NIC of each leads to the second one of the other, but all have addresses of one
        subnet."""
        hosts = self.hosts
        hosts.cable(("ctl", "ctl"), ("10.1.0.1/24", "10.1.0.2/24"))
        hosts.island(1, "eth0", "10.9.0.2/24")
        hosts.cable(("eth0", "eth1"), ("10.9.0.1/24", "10.9.0.12/24"))
        hosts.island(0, "eth1", "10.9.0.11/24")
        for host, far, nic in ((0, "10.9.0.12", "eth0"), (0, "10.9.0.2", "eth1"), (1, "10.9.0.1", "eth1"),
                               (1, "10.9.0.11", "eth0")):
            hosts.ip(host, "route", "add", far, "dev", nic)
        self.works(self.daemons("--class.default.nics", "eth*"), [("10.9.0.1", "10.9.0.12")], "10.1.0.1")

    def test_two_addresses_of_a_nic_are_one_nic(self):
        self.hosts.cable(*ETH0, (["10.7.0.1/24"], ["10.7.0.2/24", "10.7.0.100/32"]))
        self.works(self.daemons(), OVER_ETH0)

    def test_the_second_address_of_a_nic_is_the_one_that_fits(self):
        self.hosts.cable(("eth0", "eth0"), ("10.8.0.1/24", "10.7.0.2/24"), (["10.9.0.1/24"], ["10.9.0.2/24"]))
        self.works(self.daemons(), OVER_ETH0)

    def test_two_nics_in_one_subnet(self):
        self.hosts.cable(*ETH0)
        self.hosts.cable(("eth1", "eth1"), ("10.9.0.11/24", "10.9.0.12/24"))
        for host in range(2):
            self.hosts.ip(host, "route", "add", f"10.9.0.1{2 - host}", "dev", "eth1")
        self.works(self.daemons(), OVER_ETH0 + [("10.9.0.11", "10.9.0.12")])

    def test_hosts_of_one_name(self):
        self.hosts.cable(*ETH0)
        self.works([self.hosts.daemon(host, name="clone") for host in range(2)], OVER_ETH0)
        self.assertIn("two of its nodes have the name clone", self.logs())

    def test_two_daemons_of_one_host(self):
        self.hosts.cable(*ETH0)
        self.works([self.hosts.daemon(0, name="c"), self.hosts.daemon(0, "--nics.port", "18521", name="d")],
                   [("10.9.0.1", "10.9.0.1")])

    def test_the_same_at_each_start(self):
        """Who dials, and so which NICs are paired and what a firewall sees, does not depend on chance."""
        self.hosts.cable(*ETH0)
        self.hosts.cable(("eth1", "eth1"), ("10.8.0.1/24", "10.8.0.2/24"))
        self.hosts.island(0, "eth2", "10.6.0.1/24")
        seen = set()
        for _ in range(4):
            daemons = self.daemons()
            self.works(daemons, [("10.8.0.1", "10.8.0.2")] + OVER_ETH0)
            seen.add(tuple("not made" in daemon.log() for daemon in daemons))
            for daemon in daemons:
                daemon.process.terminate()
                daemon.process.wait()
        self.assertEqual(len(seen), 1, seen)


def main():
    try:
        with tempfile.TemporaryDirectory() as folder, WiredHosts(BUILD, folder) as hosts:
            hosts.cable(*ETH0)
    except NotPossible as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main()


if __name__ == "__main__":
    main()
