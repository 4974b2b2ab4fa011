"""strangers_test.py: connections to the ports of daemons that never show whose they are: they write nothing,
they take the places of strangers and no more, and daemons find one another meanwhile."""

import os
import secrets
import socket
import struct
import tempfile
import time
import unittest

import attackers
from daemons import SECONDS, SLACK, SPARE_DESCRIPTORS, WAIT_S, Daemon, HostileTest, Job, main, wait_for
from protocol import FRAME_MAGIC, FRAME_VERSION, WRITE

ETH_P_ALL = 3
MOST_SEEN = 4096  # bytes of a write that is repeated


def writes_on_the_wire(address):
    """{(region, offset, length)} of writes to that address, as anybody sees them who sees the packets."""
    try:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    except PermissionError as why:
        raise unittest.SkipTest("packets cannot be looked at here") from why
    seen = set()
    begins = struct.pack("<IBB", FRAME_MAGIC, FRAME_VERSION, WRITE)
    deadline = time.monotonic() + WAIT_S
    with wire:
        wire.bind(("lo", 0))
        wire.settimeout(WAIT_S)
        while len(seen) < 3:
            if time.monotonic() > deadline:
                raise AssertionError(f"nobody writes to {address}")
            packet = wire.recv(1 << 17)
            ip = packet[14:]
            if (packet[12:14] != b"\x08\x00" or ip[9] != socket.IPPROTO_TCP
                    or socket.inet_ntoa(ip[16:20]) != address):
                continue
            tcp = ip[(ip[0] & 15) * 4:]
            data = tcp[(tcp[12] >> 4) * 4:]
            if data.startswith(begins) and len(data) >= 32:
                length, _, region, offset = struct.unpack_from("<IIQQ", data, 8)
                if length:
                    seen.add((region, offset, min(length, MOST_SEEN)))
    return seen


class Strangers(HostileTest):
    def with_key(self):
        key = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "cluster.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        return ("--security.cluster_key_file", key)

    def assert_writes_nothing(self):
        victim = self.daemons[1]
        seen = writes_on_the_wire(victim.address)
        refused, told = self.attack(attackers.write_unasked, victim.ports(), SECONDS, seen)
        self.assertGreater(refused, len(victim.ports()))
        print(f"{refused} connections were refused: {told}", flush=True)
        self.assert_unharmed()


class OfTheNode(Strangers):
    def test_they_write_nothing(self):
        self.assert_writes_nothing()


class OfTheCluster(Strangers):
    def setUp(self):
        self.flags = (*self.with_key(), "--security.transport", "none")
        super().setUp()

    def test_they_write_nothing(self):
        self.assert_writes_nothing()


class Many(Strangers):
    places, per_address = 40, 10

    def setUp(self):
        self.flags = (*self.with_key(), "--limits.strangers", str(self.places),
                      "--limits.strangers_per_address", str(self.per_address))
        super().setUp()

    def hold_all_places(self, sources, each, named):
        victim = self.daemons[0]
        before, resident = victim.descriptors(), victim.resident_bytes()
        attacker = self.begin(attackers.half_open, victim.ports(), 3 * SECONDS, sources, each)
        wait_for("the log names the limit", lambda: named in victim.words(), victim.words)
        # A daemon that nobody knows yet finds the one that is attacked, and a job its ranks.
        with Daemon(self.folder, "third", "127.0.1.3", *self.flags) as third:
            job = Job([third, victim])
            self.addCleanup(job.end)
            job.start()
            self.assertLessEqual(victim.descriptors(),
                                 before + self.places * len(victim.ports()) + 16 * SPARE_DESCRIPTORS)
            rounds, _ = job.stop()
            self.assertGreater(rounds, 0)
        self.assertLess(victim.resident_bytes(), resident + (64 << 20) * SLACK)
        self.assertGreater(attacker.result(), 0, "nobody was turned out")
        self.assert_unharmed()

    def test_of_one_address(self):
        self.hold_all_places(["127.0.0.1"], 3 * self.per_address,
                             f"limits.strangers_per_address = {self.per_address}")

    def test_of_many_addresses(self):
        sources = [f"127.0.2.{host}" for host in range(1, 13)]
        self.hold_all_places(sources, self.per_address // 2, f"limits.strangers = {self.places}")


if __name__ == "__main__":
    main()
