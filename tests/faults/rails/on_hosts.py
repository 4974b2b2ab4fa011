"""on_hosts.py: what tests on two hosts made of network namespaces share. They are skipped where the
machine does not permit namespaces."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import clean_environment  # noqa: E402
from rails.two_hosts import NotPossible, TwoHosts  # noqa: E402

# The build whose programs are tested.
BUILD = os.path.join(ROOT, "build", "release") if len(sys.argv) < 2 else sys.argv.pop(1)
SKIPPED = 77
NICS = 3
WAIT_S = 15  # for what happens within moments


class RankProgram:
    """A rank on a host that is told by lines what to call (tests/faults/communicator/rank_program.cc)."""

    def __init__(self, hosts, host):
        self.process = hosts.on(host, os.path.join(BUILD, "tests", "rank_program"), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=clean_environment(HDT_SOCKET=hosts.socket(host)))

    def start(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self):
        """The result's number, and the library's words."""
        result, words = self.process.stdout.readline().rstrip("\n").split(" ", 1)
        return int(result), words


class OnHosts(unittest.TestCase):
    nics = NICS
    flags = ()

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.hosts = self.enterContext(TwoHosts(BUILD, self.folder, str(self.nics), "400m", self.flags))

    def wait_for(self, what, done):
        deadline = time.monotonic() + WAIT_S
        while not done():
            self.assertLess(time.monotonic(), deadline,
                            f"{what}\n{self.hosts.read_log(0)}\n{self.hosts.read_log(1)}")
            time.sleep(0.02)

    def group(self):
        """A rank on each host, in a group."""
        ranks = [RankProgram(self.hosts, host) for host in range(2)]
        for rank in ranks:
            self.addCleanup(rank.process.communicate)
            self.addCleanup(rank.process.kill)
        ranks[0].start("id")
        result, name = ranks[0].finish()
        self.assertEqual(result, 0, name)
        for number, rank in enumerate(ranks):
            rank.start(f"join 2 {number} 30000 {name}")
        for rank in ranks:
            self.assertEqual(rank.finish()[0], 0)
        return ranks

    def up(self, host=0):
        return sum(rail["state"] == "up" for rail in self.hosts.rails(host))

    def both(self, ranks, line):
        for rank in ranks:
            rank.start(line)
        return [rank.finish() for rank in ranks]


def main():
    try:
        with tempfile.TemporaryDirectory() as tried, TwoHosts(BUILD, tried, "1", "1g"):
            pass
    except NotPossible as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main()
