"""rails_test.py: NICs go down and up, packets vanish and connections are reset at random moments while two ranks on two hosts
exchange and compare every result. While one rail is left no operation fails."""

import os
import random
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from rails.two_hosts import PORT, NotPossible, TwoHosts  # noqa: E402

BUILD = os.path.join(ROOT, "build", "release")
SKIPPED = 77
NICS = 3
RUN_S = 12
WAIT_S = 10


class Rails(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.hosts = self.enterContext(TwoHosts(BUILD, self.folder, str(NICS), "400m"))

    def wait_for(self, what, done):
        deadline = time.monotonic() + WAIT_S
        while not done():
            self.assertLess(time.monotonic(), deadline, f"{what}\n{self.hosts.read_log(0)}\n{self.hosts.read_log(1)}")
            time.sleep(0.02)

    def up(self, host=0):
        return sum(rail["state"] == "up" for rail in self.hosts.rails(host))

    def test_every_fault_while_a_rail_is_left(self):
        seed = int(os.environ.get("HDT_TEST_SEED", "20261121"))
        print(f"seed {seed}", flush=True)
        chance = random.Random(seed)
        ranks = self.hosts.ranks("both", RUN_S, 2048)
        end = time.monotonic() + RUN_S - 1
        broken = {}  # NIC -> host
        faults = 0
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.05, 0.4))
            nic, host = chance.randrange(NICS), chance.randrange(2)
            if nic in broken:
                self.hosts.link(broken.pop(nic), nic, "up")
            elif len(broken) < NICS - 1:
                action = chance.choice(["down", "blackhole", "reset"])
                self.hosts.link(host, nic, action)
                faults += 1
                if action != "reset":
                    broken[nic] = host
        for nic, host in broken.items():
            self.hosts.link(host, nic, "up")
        operations = ranks.results(RUN_S + 60)
        self.assertGreater(len(operations), 20)
        self.assertGreater(faults, 5)
        self.assertIn("lost", self.hosts.read_log(0))

    def test_a_rail_is_lost_named_and_back(self):
        ranks = self.hosts.ranks("allreduce", 6, 1024)
        self.wait_for("all rails up", lambda: self.up() == NICS)
        self.hosts.link(1, 2, "down")
        self.wait_for("one rail down", lambda: self.up() == NICS - 1)
        down = [rail for rail in self.hosts.rails(0) if rail["state"] == "down"]
        self.assertEqual([rail["local"].split(":")[0] for rail in down], ["10.77.2.1"])
        self.hosts.link(1, 2, "up")
        self.wait_for("all rails up again", lambda: self.up() == NICS)
        before = {rail["local"].split(":")[0]: rail["bytes_out"] for rail in self.hosts.rails(0)}["10.77.2.1"]
        self.wait_for("it carries again", lambda: before < next(
            rail["bytes_out"] for rail in self.hosts.rails(0) if rail["local"].startswith("10.77.2.1:")))
        ranks.results(60)
        self.assertRegex(self.hosts.read_log(0), r"rail to node h1 lost: 10\.77\.2\.1:\d+ - 10\.77\.2\.2:\d+ on eth2: .*; 2 left")
        self.assertRegex(self.hosts.read_log(0), r"rail to node h1 back: 10\.77\.2\.1:\d+ - 10\.77\.2\.2:\d+ on eth2")

    def test_a_group_that_dies_with_much_under_way_leaves_the_others_their_link(self):
        other = self.hosts.ranks("sendrecv", 5, 256)
        dying = self.hosts.ranks("allreduce", 60, 65536, port=PORT + 1)
        for nic in range(NICS - 1):  # so that much of it is sent again
            time.sleep(0.4)
            self.hosts.link(0, nic, "blackhole")
        dying.processes[0].kill()
        self.assertNotEqual(dying.processes[1].wait(WAIT_S), 0)
        for nic in range(NICS - 1):
            self.hosts.link(0, nic, "up")
        other.results(60)
        dying.end()
        for host in range(2):
            self.assertNotIn("outside of registered memory", self.hosts.read_log(host))

    def test_all_rails_lost_for_a_moment(self):
        ranks = self.hosts.ranks("both", 5, 256)
        for nic in range(NICS):
            self.hosts.link(0, nic, "down")
        self.wait_for("no rail", lambda: self.up() == 0)
        for nic in range(NICS):
            self.hosts.link(0, nic, "up")
        ranks.results(60)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BUILD = sys.argv.pop(1)
    try:
        with tempfile.TemporaryDirectory() as tried, TwoHosts(BUILD, tried, "1", "1g"):
            pass
    except NotPossible as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main()
