"""torch_endurance_test.py BUILD: the same thing many times over: batches of sends and receives, groups, and
steps of training while daemons are killed. The interpreter must be the one that has torch. HDT_TEST_SEED:
what is random. HDT_TEST_BATCHES, HDT_TEST_GROUPS, HDT_TEST_STEPS: how often, few by default."""

import os
import random
import sys
import tempfile
import time
import unittest

from torch_job import FOLDER, Job

RANK = os.path.join(FOLDER, "endurance_rank.py")
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
BATCHES, GROUPS, STEPS = (int(os.environ.get(f"HDT_TEST_{name}", default))
                          for name, default in (("BATCHES", 600), ("GROUPS", 30), ("STEPS", 400)))
# The limit of the longest job: none that does its work needs so long.
LIMIT_S = 60 + 0.2 * BATCHES + 2 * GROUPS + STEPS


class Endurance(unittest.TestCase):
    def run_job(self, nodes, local, case, count, daemons=False, beside=lambda job: None):
        """The last line of each rank."""
        with tempfile.NamedTemporaryFile(prefix="hdt-steps-") as progress, \
                Job(nodes, local, SEED=str(SEED), PROGRESS=progress.name) as job:
            job.progress = progress.name
            for node in range(nodes if daemons else 0):
                job.start_daemon(node)
            job.start([RANK, case, str(count)])
            beside(job)
            ended = job.ended(LIMIT_S)
            for rank, (code, output) in enumerate(ended):
                logs = [job.log_of(node)[-4000:] for node in range(nodes if daemons else 0)]
                self.assertEqual(code, 0, "\n".join([f"rank {rank}, seed {SEED}:", output, *logs]))
            last = [output.splitlines()[-1] for _, output in ended]
            print(f"{case} by {nodes} x {local} ranks, seed {SEED}: {last[0]}", flush=True)
            return last

    def test_batches(self):
        self.run_job(1, 3, "batches", BATCHES)
        self.run_job(2, 2, "batches", BATCHES)

    def test_groups(self):
        self.run_job(1, 3, "groups", GROUPS)
        self.run_job(2, 1, "groups", GROUPS)

    def wait_for_a_step(self, job):
        """Returns when a step has ended, or a rank."""
        with open(job.progress, encoding="ascii") as steps:
            first = steps.read()
            while all(rank.poll() is None for rank in job.ranks):
                steps.seek(0)
                if steps.read() != first:
                    return
                time.sleep(0.01)

    def test_training_outlives_daemons(self):
        expected = self.run_job(2, 1, "training", STEPS)
        dice, kills = random.Random(SEED), [0]

        def kill_daemons(job):
            while "begun" not in job.output(0) and job.ranks[0].poll() is None:
                time.sleep(0.02)
            while all(rank.poll() is None for rank in job.ranks):
                # Every other time the next kill comes while the ranks may still recover from the last one. A
                # busy machine would never get a step done if it were so each time.
                if dice.random() < 0.5:
                    self.wait_for_a_step(job)
                time.sleep(dice.uniform(0.05, 0.4))
                node = dice.randrange(2)
                job.kill_daemon(node)
                time.sleep(dice.choice([0, 0.1]))
                job.start_daemon(node)
                kills[0] += 1

        found = self.run_job(2, 1, "training", STEPS, daemons=True, beside=kill_daemons)
        print(f"{kills[0]} daemons were killed", flush=True)
        self.assertGreater(kills[0], 0)
        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
