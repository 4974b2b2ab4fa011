"""killed_while_joining_test.py: processes of jobs end at any moment of their beginning. The others of the job
hear of it, and nothing is left of it."""

import os
import random
import time

import daemons
from daemons import SECONDS, HostileTest, Job, main, wait_for

SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
USER = 65532
JOIN_S = 15  # so long a rank waits for one that ended before it could say that it joins


class KilledWhileJoining(HostileTest):
    def test_nothing_is_left(self):
        print(f"killed_while_joining: HDT_TEST_SEED={SEED}", flush=True)
        dice = random.Random(SEED)
        groups = [len(daemon.status()["groups"]) for daemon in self.daemons]
        end = time.monotonic() + 2 * SECONDS
        while time.monotonic() < end:
            job = Job(self.daemons, ranks=1, user=USER)
            self.addCleanup(job.end)
            # Both have started when they answer: a rank that ends before it joins costs the other JOIN_S.
            for rank in range(2):
                job.tell(rank, "id")
            name, _ = [job.hear(rank) for rank in range(2)]
            for rank in range(2):
                job.tell(rank, f"join 2 {rank} {name} {JOIN_S * 1000}")
            time.sleep(dice.uniform(0, 0.15))
            victim = dice.randrange(2)
            job.processes[victim].kill()
            job.processes[victim].wait()
            # The other one hears of it: with its join, or with its next call.
            other = job.processes[1 - victim]
            if other.stdout.readline().startswith("0"):
                job.tell(1 - victim, "work")
            self.assertNotEqual(other.wait(timeout=JOIN_S + daemons.WAIT_S), 0)
            job.end()
        for daemon, before in zip(self.daemons, groups):
            wait_for(f"the groups of {daemon.name} have ended",
                     lambda daemon=daemon, before=before: len(daemon.status()["groups"]) == before,
                     lambda daemon=daemon: f"{daemon.status()['groups']}\n{daemon.words()[-4000:]}")
        self.assert_unharmed()


if __name__ == "__main__":
    main()
