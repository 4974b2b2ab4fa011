"""torch_test.py BUILD: torch.distributed over HDT, by processes that host or find an embedded daemon. The
interpreter must be the one that has torch."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from torch_job import BUILD, FOLDER, ROOT, TorchJobs, free_port

sys.path.insert(0, os.path.join(ROOT, "tests", "integration", "docs"))
import doc_blocks  # noqa: E402  pylint: disable=wrong-import-position

RANK = os.path.join(FOLDER, "torch_rank.py")
NEWER = os.path.join(FOLDER, "newer_rank.py")
LAYERS = os.path.join(FOLDER, "layers_rank.py")
RECONFIGURED = os.path.join(FOLDER, "reconfigured_rank.py")
SKIPPED = 77
# In the place of Slurm's srun, which is not here: as many processes on this machine, with its variables.
SRUN = """#!/bin/sh
[ "$1" = -n ] || exit 2
export SLURM_NTASKS=$2 SLURM_PROCID=0
shift 2
while [ "$SLURM_PROCID" -lt "$((SLURM_NTASKS - 1))" ]; do
  "$@" &
  SLURM_PROCID=$((SLURM_PROCID + 1))
done
exec "$@"
"""
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

    def launched(self, name, **variables):
        """The output of a block of the manual that launches ddp.py."""
        text = doc_blocks.file_block(os.path.join(ROOT, "docs", "pytorch.md"), name)
        with tempfile.TemporaryDirectory(prefix="hdt-launch-") as folder:
            text = text.replace("29511", str(free_port("127.0.0.1")))
            shutil.copy(os.path.join(EXAMPLES, "ddp.py"), folder)
            os.symlink(sys.executable, os.path.join(folder, "python3"))
            with open(os.path.join(folder, "srun"), "w", encoding="utf-8") as srun:
                srun.write(SRUN)
            os.chmod(srun.name, 0o755)
            clean = {key: value for key, value in os.environ.items()
                     if not key.startswith(("HDT_", "SLURM_"))}
            done = subprocess.run(
                ["bash", "-euc", text], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False, timeout=90,
                env=clean | {"PATH": f"{folder}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": folder,
                             "PYTHONPATH": os.path.join(BUILD, "python"), "OMP_NUM_THREADS": "1",
                             "USE_LIBUV": "0", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                             "OMPI_MCA_rmaps_base_oversubscribe": "1"} | variables)
            self.assertEqual(done.returncode, 0, done.stdout)
            return done.stdout

    def test_launchers_of_the_manual(self):
        for name, program in (("by_hand.sh", "bash"), ("slurm.sh", "bash"), ("mpirun.sh", "mpirun"),
                              ("torchrun.sh", "torchrun")):
            with self.subTest(name=name):
                if shutil.which(program) is None:
                    self.skipTest(f"no {program} here")
                self.assertEqual(self.launched(name).count("loss "), 1)

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
        # One process says whether it is there: each rank would load torch only to say the same.
        [(code, output)] = self.job([program, case, "asked"], 1, 1)
        if code == SKIPPED:
            self.skipTest(output)
        self.assertEqual(code, 0, output)
        for nodes, local in layouts:
            ended = self.job([program, case], nodes, local)
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

    def test_flight_recorder(self):
        self.newer("flight_recorder", ((1, 3), (2, 1)))

    def test_abort_hooks(self):
        self.newer("abort_hooks", ((1, 3), (2, 1)))

    def test_shrink_group_of_torch(self):
        self.newer("shrunk_when_lost", ((1, 4), (2, 2)), lost=[1, 3])

    def test_shrink_group_of_torch_without_a_loss(self):
        self.newer("shrunk_while_all_live", ((1, 4), (2, 2)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
