"""torch_test.py BUILD: torch.distributed over HDT, by processes that host or find an embedded daemon. The
interpreter must be the one that has torch."""

import os
import sys
import unittest

from torch_job import FOLDER, ROOT, TorchJobs

RANK = os.path.join(FOLDER, "torch_rank.py")
NEWER = os.path.join(FOLDER, "newer_rank.py")
LAYERS = os.path.join(FOLDER, "layers_rank.py")
RECONFIGURED = os.path.join(FOLDER, "reconfigured_rank.py")
SKIPPED = 77
EXAMPLES = os.path.join(ROOT, "docs", "examples", "torch")
ALL = ["reductions", "exchanges", "messages", "groups", "class_map", "newer", "training", "wrong_calls"]


class Torch(TorchJobs):
    def test_one_node(self):
        self.passes(RANK, 1, 2, *ALL)

    def test_two_nodes(self):
        self.passes(RANK, 2, 2, *ALL)

    def test_example(self):
        for rank, (code, output) in enumerate(self.job([os.path.join(EXAMPLES, "ddp.py")], 1, 2)):
            self.assertEqual(code, 0, output)
            self.assertIn("loss" if rank == 0 else "", output)

    def test_example_of_lost_ranks(self):
        lost, first, second = self.job([os.path.join(EXAMPLES, "survive.py")], 1, 3, LOSE="0")
        self.assertEqual(lost[0], -9, lost[1])
        for code, output in (first, second):
            self.assertEqual(code, 0, output)
            self.assertIn("ranks [1, 2] go on", output)
        self.assertIn("2 ranks, loss", first[1])

    def test_exit_without_destroying(self):
        self.passes(RANK, 1, 2, "left_open")

    def test_a_thread_that_is_refused(self):
        self.passes(RANK, 1, 3, "refused_thread")

    def test_destroyed_in_a_callback(self):
        self.passes(RANK, 1, 2, "destroyed_in_a_callback")

    def test_a_rank_that_is_lost(self):
        for case, nodes, local in (("lost_rank", 1, 3), ("lost_rank", 2, 1), ("lost_sender", 1, 3),
                                   ("lost_sender", 2, 1)):
            *others, lost = self.job([RANK, case], nodes, local)
            self.assertEqual(lost[0], -9, lost[1])
            for code, output in others:
                self.assertEqual(code, 0, output)

    def test_those_that_are_left_go_on(self):
        for nodes, local in ((1, 4), (2, 2)):
            ended = self.job([RANK, "survivors"], nodes, local)
            for rank, (code, output) in enumerate(ended):
                self.assertEqual(code, -9 if rank < 2 else 0, f"rank {rank}:\n{output}")

    def newer(self, case, layouts, lost=(), program=NEWER):
        """A case of what newer versions of torch have; the ranks in `lost` kill themselves."""
        for nodes, local in layouts:
            ended = self.job([program, case], nodes, local)
            if all(code == SKIPPED for code, _ in ended):
                self.skipTest(ended[0][1])
            with self.subTest(case=case, nodes=nodes, local=local):
                codes = [code for code, _ in ended]
                outputs = "".join(f"\nrank {rank}:\n{output}" for rank, (_, output) in enumerate(ended))
                self.assertEqual(codes, [-9 if rank in lost else 0 for rank in range(len(ended))], outputs)

    def test_results_of_futures(self):
        self.newer("future_results", ((1, 3),), lost=[2])
        self.newer("future_results", ((2, 1),), lost=[1])

    def test_zero_of_torch(self):
        self.newer("zero", ((1, 4), (2, 2)), program=LAYERS)

    def test_fsdp2_of_torch(self):
        for case in ("fsdp2", "hybrid", "checkpoints"):
            self.newer(case, ((1, 4), (2, 2)), program=LAYERS)

    def test_pipelining_of_torch(self):
        self.newer("pipelining", ((1, 4), (2, 2)), program=LAYERS)

    def test_reconfigured(self):
        for case in ("changes", "one_comes_late", "under_way"):
            self.newer(case, ((1, 3), (2, 2)), program=RECONFIGURED)
        self.newer("one_is_lost", ((1, 3), (2, 2)), lost=[1], program=RECONFIGURED)

    def test_abort_hooks(self):
        self.newer("abort_hooks", ((1, 3), (2, 1)))

    def test_shrink_group_of_torch(self):
        self.newer("shrunk_when_lost", ((1, 4), (2, 2)), lost=[1, 3])

    def test_shrink_group_of_torch_without_a_loss(self):
        self.newer("shrunk_while_all_live", ((1, 4), (2, 2)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
