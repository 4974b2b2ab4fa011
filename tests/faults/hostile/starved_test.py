"""starved_test.py: an allocation fails in a daemon (starved.cc), at any moment of a job's beginning, work and
end. The job may fail, with a reason and soon; the daemon lives, a group that has no part in it works on, and
the next job is served."""

import contextlib
import mmap
import os
import random
import select
import struct
import subprocess
import time
from unittest import mock

import daemons
from daemons import Daemon, HostileTest, Job, main, wait_for

SECONDS = float(os.environ.get("HDT_TEST_SECONDS", "12"))
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
USER = 65532
# Allocations of a thread while one job lives: about so many are enough to get from its first word to its
# last.
MOST = {0: 600, 1: 400}
# Whose allocations fail: 0: the control thread's, 1: the engines'.
THREADS = [0, 1]


class Starved(Daemon):
    """A daemon of which one allocation fails when it is told so."""
    program = os.path.join("tests", "starved")

    def __init__(self, folder, name, address, *flags):
        path = os.path.join(folder, f"{name}.order")
        with open(path, "wb") as file:
            file.write(bytes(8))
        with open(path, "r+b") as file:
            self.order = mmap.mmap(file.fileno(), 8)
        # starved.cc replaces operator new, but libraries free what theirs have allocated.
        asan = os.environ.get("ASAN_OPTIONS", "")
        with mock.patch.dict(os.environ,
                             {"STARVE_FILE": path, "ASAN_OPTIONS": f"{asan}:alloc_dealloc_mismatch=0"}):
            super().__init__(folder, name, address, *flags)

    def starve(self, thread, count):
        self.order[:] = struct.pack("<Ii", thread, count)

    def feed(self):
        """True if something has failed."""
        count = struct.unpack("<Ii", self.order[:])[1]
        self.order[:] = bytes(8)
        return count <= 0


class StarvedJob(Job):
    """One that may be told that it has failed, but not wait for ever."""
    has_begun = False  # some rank has joined

    def hear(self, rank):
        deadline = time.monotonic() + daemons.WAIT_S
        while not select.select([self.processes[rank].stdout], [], [], 0.01)[0]:
            # Where one fails alone, others hear of it if they are in a group with it.
            if not self.has_begun and any(process.poll() for process in self.processes):
                raise AssertionError("a rank could not join")
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} hears nothing")
        return super().hear(rank)

    def join(self):
        super().join()
        self.has_begun = True

    def wait(self):
        """Until all ranks have heard that there is no more to do, or that the job has failed."""
        if not self.has_begun:
            return
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdin = None
        for rank, process in enumerate(self.processes):
            try:
                process.wait(daemons.WAIT_S)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"rank {rank} does not hear that the job has failed") from error


class StarvedDaemons(HostileTest):
    with_jobs = False
    daemon_class = Starved

    def serve_job(self):
        """True if a job of both nodes does its work."""
        job = StarvedJob(self.daemons, ranks=1, user=USER)
        try:
            job.start()
            job.stop()
            return True
        except AssertionError:
            return False
        finally:
            job.end()

    def test_what_fails_ends_with_itself(self):
        print(f"starved: HDT_TEST_SEED={SEED}", flush=True)
        dice = random.Random(SEED)
        bystander = Job(self.daemons[:1])
        self.addCleanup(bystander.end)
        bystander.start()
        self.serve_job()
        # Descriptors are counted with those that the bystander shares: two memories of each of two ranks.
        wait_for("the bystander's memory is shared",
                 lambda: sum(count for kind, count in self.daemons[0].open_files().items()
                             if "hdt-memory" in kind) == 4,
                 self.daemons[0].words)
        self.before = [daemon.descriptors() for daemon in self.daemons]
        self.open_before = [daemon.open_files() for daemon in self.daemons]
        counts = {"jobs": 0, "starved": 0, "failed": 0}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            daemon, thread = dice.choice(self.daemons), dice.choice(THREADS)
            count = dice.randrange(1, MOST[thread])
            job = StarvedJob(self.daemons, ranks=1, user=USER)
            daemon.starve(thread, count)
            try:
                try:
                    job.start()
                    job.stop()
                except (AssertionError, BrokenPipeError):
                    counts["failed"] += 1
                job.wait()
            except TimeoutError as error:
                words = "\n".join(f"{other.status()['groups']}\n{other.words()[-4000:]}"
                                  for other in self.daemons)
                self.fail(f"{error}: thread {thread} of {daemon.name}, allocation {count}\n{words}")
            finally:
                job.end()
            counts["jobs"] += 1
            counts["starved"] += daemon.feed()
            for other in self.daemons:
                self.assertTrue(other.alive(),
                                f"thread {thread}, allocation {count}: {other.words()[-4000:]}")
        print(counts, flush=True)
        self.assertGreater(counts["starved"], 0)
        # A link that failed may have been ended under the last job's feet, too.
        wait_for("a job is served", self.serve_job, self.daemons[0].words)
        wait_for("all groups but the bystander's have ended",
                 lambda: [len(daemon.status()["groups"]) for daemon in self.daemons] == [1, 0],
                 lambda: f"{[daemon.status()['groups'] for daemon in self.daemons]}")
        self.jobs = [bystander]
        self.assert_unharmed()


if __name__ == "__main__":
    main()
