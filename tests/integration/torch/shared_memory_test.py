"""shared_memory_test.py BUILD: tensors in memory that ranks share, by processes that host or find an embedded
daemon. The interpreter must be the one that has torch."""

import os
import sys
import unittest

import torch_test

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shared_memory_rank.py")


class SharedMemory(unittest.TestCase):
    job = torch_test.Torch.job

    def passes(self, nodes, local, *cases):
        ended = self.job([RANK, *cases], nodes, local)
        self.assertEqual([code for code, _ in ended], [0] * len(ended),
                         "\n".join(f"rank {rank}:\n{output}" for rank, (_, output) in enumerate(ended)))

    def test_one_node(self):
        self.passes(1, 2, "no_copies", "views", "threads", "workers", "refused", "training")

    def test_three_ranks(self):
        self.passes(1, 3, "no_copies", "views", "training")

    def test_two_nodes(self):
        self.passes(2, 1, "views", "training", "workers", "refused")

    def test_exit_without_destroying(self):
        self.passes(1, 2, "left_open")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
