"""What ended groups and jobs leave behind in two daemons with 1,024 descriptors: nothing. HDT_TEST_GROUPS and
HDT_TEST_JOBS set how many are made; the issue's figures are 2000 and 200."""

import os
import subprocess
import tempfile
import time
import unittest

from meeting_hosts import BUILD, PROGRAM, Rank, environment, start_daemon

GROUPS = int(os.environ.get("HDT_TEST_GROUPS", "160"))
JOBS = int(os.environ.get("HDT_TEST_JOBS", "24"))
WARM_JOBS = 10
GROUPS_A_JOB = 40
ENDINGS = ("destroy", "abort", "crash")
# A meeting place stays open for latecomers for some seconds, a dead process is noticed at once.
SETTLED_S = 30
JOB_S = 120


class Leftovers(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.daemons = []
        for node in range(2):
            self.daemons.append(start_daemon(
                ["prlimit", "--nofile=1024:1024"], f"n{node}", self.file(f"{node}.sock"),
                self.file(f"{node}.log"), "--nics.addresses", f"127.0.1.{node + 1}", "--nics.port", "0"))
        self.port = 31000
        with open(f"/proc/{self.daemons[0].pid}/maps", encoding="utf-8") as file:
            self.sanitized = any(library in line for line in file for library in ("libasan", "libtsan"))

    def tearDown(self):
        for daemon in self.daemons:
            daemon.terminate()
            self.assertEqual(daemon.wait(), 0)

    def file(self, name):
        return os.path.join(self.folder, name)

    def job(self, groups, ending):
        self.port = 31000 + (self.port - 31000 + 2) % 1000
        ranks = []
        for rank in range(2):
            # A rank that is killed leaves while the other one still works.
            variables = environment(HDT_SOCKET=self.file(f"{rank}.sock"), MASTER_ADDR="127.0.1.1",
                                    RANK=str(rank), MASTER_PORT=str(self.port), WORLD_SIZE="2")
            ranks.append(Rank(subprocess.Popen([PROGRAM, "groups", str(groups), ending], env=variables,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
        for number, rank in enumerate(ranks):
            code, wrong, own, count, output, _ = rank.result(JOB_S)
            self.assertEqual((code, wrong, own, count), (0, 0, number, 2), output)

    def used(self):
        """Of each daemon: descriptors, sockets that listen, shared memory mapped, memory in KiB."""
        table = []
        for daemon in self.daemons:
            folder = f"/proc/{daemon.pid}/fd"
            links = []
            for name in os.listdir(folder):
                try:
                    links.append(os.readlink(os.path.join(folder, name)))
                except FileNotFoundError:
                    pass
            with open(f"/proc/{daemon.pid}/maps", encoding="utf-8") as file:
                mapped = sum("memfd:" in line for line in file)
            with open(f"/proc/{daemon.pid}/status", encoding="utf-8") as file:
                memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            table.append({"descriptors": len(links), "memfds": sum("memfd:" in link for link in links),
                          "mappings": mapped, "memory": memory})
        return table

    def settled(self):
        """When a meeting place closes and sessions end, counts fall; they are taken when they no longer
        do."""
        before = self.used()
        deadline = time.monotonic() + SETTLED_S
        still = 0
        while still < 12 and time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.used()
            still = still + 1 if [n["descriptors"] for n in now] == [n["descriptors"] for n in before] else 0
            before = now
        return before

    def test_groups_and_jobs_of_every_ending(self):
        for number in range(WARM_JOBS):
            self.job(2, ENDINGS[number % 3])
        first = self.settled()
        files = sorted(os.listdir(self.folder))
        made = 0
        for number in range(max(JOBS, (GROUPS + GROUPS_A_JOB - 1) // GROUPS_A_JOB)):
            count = min(GROUPS_A_JOB, GROUPS - made)
            made += count
            self.job(count, ENDINGS[number % 3])
        self.assertEqual(made, GROUPS)
        last = self.settled()
        print(f"{GROUPS} groups, {number + 1} jobs: first {first}, last {last}")
        for before, after in zip(first, last):
            for what in ("descriptors", "memfds", "mappings"):
                self.assertLessEqual(after[what], before[what] * 1.02, f"{what}: {first} {last}")
            # The sanitizers keep what was freed.
            if not self.sanitized:
                self.assertLessEqual(after["memory"], before["memory"] * 1.02, f"{first} {last}")
        self.assertEqual(sorted(os.listdir(self.folder)), files)


if __name__ == "__main__":
    assert os.path.exists(os.path.join(BUILD, "bin", "hdtcommd")), BUILD
    unittest.main()
