"""torch_pipeline_test.py BUILD: modules of torch in HDT's training engine (hdt_torch.pipeline), as unequal
replicas and stages. The interpreter must be the one that has torch."""

import os
import random
import sys
import unittest

from torch_job import FOLDER, ROOT, TorchJobs

RANK = os.path.join(FOLDER, "pipeline_rank.py")
EXAMPLE = os.path.join(ROOT, "docs", "examples", "torch", "stages.py")
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 31)))


def setUpModule():  # pylint: disable=invalid-name
    print(f"torch_pipeline_test: HDT_TEST_SEED={SEED}", flush=True)


class Pipelines(TorchJobs):
    def test_as_one_process(self):
        cases = "as_one_process", "without_weights", "resumed", "frozen_and_empty"
        self.passes(RANK, 1, 3, *cases, SEED=str(SEED))

    def test_wrong_use_and_failures(self):
        self.passes(RANK, 1, 3, "wrong", "states", "diverged", "failures", SEED=str(SEED))

    def test_ranks_on_nodes_of_their_own(self):
        self.passes(RANK, 3, 1, "as_one_process", "failures", SEED=str(SEED))

    def test_a_rank_is_killed(self):
        for nodes, local in ((1, 3), (3, 1)):
            ended = self.job([RANK, "killed"], nodes, local, SEED=str(SEED))
            self.assertEqual([code for code, _ in ended], [0, 0, -9], ended)

    def test_example(self):
        self.example_passes(EXAMPLE, 1, 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
