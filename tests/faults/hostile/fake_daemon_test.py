"""fake_daemon_test.py: a whole daemon of the cluster lies to the others (liar.cc): about groups, calls,
chunks, rails and facts. The others live, and jobs that it has no part in compute what they should."""

import os
import random
import secrets
import tempfile
import threading
import time

import daemons
from daemons import Daemon, HostileTest, Job, main

SECONDS = float(os.environ.get("HDT_TEST_SECONDS", "8"))
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
JOB_S = 1.5
LIAR = 65532  # whose jobs run on the liar's node as well


class Liar(Daemon):
    """Such a daemon; one that has ended of what it was told in answer is started again."""
    program = os.path.join("tests", "liar")


class FakeDaemon(HostileTest):
    def setUp(self):
        # The liar is one of the cluster, and knows its key.
        key = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "cluster.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        self.flags = ("--security.cluster_key_file", key)
        super().setUp()

    def test_its_lies_harm_nobody_else(self):
        print(f"fake_daemon: HDT_TEST_SEED={SEED}", flush=True)
        os.environ["LIAR_SEED"] = str(SEED)
        self.addCleanup(os.environ.pop, "LIAR_SEED")
        dice = random.Random(SEED)
        begun = time.monotonic()
        jobs = made = number = 0
        end = begun + SECONDS
        while time.monotonic() < end or made == 0:
            self.assertLess(time.monotonic(), end + daemons.SLACK * daemons.WAIT_S,
                            "no group was made with it")
            number += 1
            with Liar(self.folder, f"liar{number}", "127.0.1.3", *self.flags) as liar:
                while liar.alive() and (time.monotonic() < end or made == 0):
                    jobs += 1
                    # Either may coordinate.
                    nodes = dice.sample([dice.choice(self.daemons), liar], 2)
                    made += self.work_for_a_while(nodes, dice)
                    for daemon in self.daemons:
                        self.assertTrue(daemon.alive(), daemon.words()[-8000:])
        print(f"{made} of {jobs} jobs made a group with the liar; it was started {number} times", flush=True)
        self.assert_unharmed()

    def work_for_a_while(self, nodes, dice):
        """A job with ranks on each, which ends in the middle; 1 if it has begun to work."""
        job = Job(nodes, ranks=dice.choice([1, 2]), user=LIAR)
        met = []

        def start():
            try:
                job.start()
                met.append(1)
            except (AssertionError, OSError):
                pass  # it was lied to, or is ended below

        starting = threading.Thread(target=start)
        starting.start()
        starting.join(2 * JOB_S * (4 if daemons.SANITIZERS else 1))
        time.sleep(dice.uniform(0, JOB_S) if met else 0)
        for process in job.processes:
            process.kill()
        starting.join()
        job.end()
        return len(met)


if __name__ == "__main__":
    main()
