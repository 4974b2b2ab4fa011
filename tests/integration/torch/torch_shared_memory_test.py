"""torch_shared_memory_test.py BUILD: tensors in memory that ranks share, by processes that host or find an
embedded daemon. The interpreter must be the one that has torch."""

import os
import sys
import unittest

from torch_job import FOLDER, TorchJobs

RANK = os.path.join(FOLDER, "shared_memory_rank.py")


class SharedMemory(TorchJobs):
    def test_one_node(self):
        self.passes(RANK, 1, 2, "no_copies", "views", "threads", "workers", "refused", "training")

    def test_three_ranks(self):
        self.passes(RANK, 1, 3, "no_copies", "views", "training")

    def test_two_nodes(self):
        self.passes(RANK, 2, 1, "views", "training", "workers", "refused")

    def test_exit_without_destroying(self):
        self.passes(RANK, 1, 2, "left_open")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
