"""train_job.py: what the tests of runs of hdt-train have in common that are killed: a small model, layouts of
some ranks, and how the ranks are started and looked at. A test's first argument is the build folder."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
TRAIN = os.path.join(BUILD, "bin", "hdt-train")
ROOT = os.path.dirname(os.path.dirname(BUILD))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import free_port  # noqa: E402  pylint: disable=wrong-import-position

TEXT = os.path.join(ROOT, "LICENSE")
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(10 ** 9)))
# The bound of a wait, far above what a busy machine needs.
RUN_S = 120

MODEL = ["--text", TEXT, "--num-layers", "4", "--hidden-size", "32", "--num-attention-heads", "4",
         "--ffn-hidden-size", "64", "--seq-length", "32", "--global-batch-size", "12", "--lr", "1e-3",
         "--lr-warmup-iters", "2", "--log-interval", "1"]
# Ranks, and flags. Each makes 12 samples a step.
LAYOUTS = {
    "one": (1, ["--micro-batch-size", "12"]),
    "pipeline": (2, ["--pipeline-model-parallel-size", "2", "--micro-batch-size", "4"]),
    "uneven": (3, ["--use-tp-pp-dp-mapping", "--hetero-pipeline-stages", "1", "4",
                   "--hetero-pipeline-stages", "2", "1", "3", "--micro-batch-size", "2",
                   "--num-micro-batches-per-dp", "1", "2", "1", "4"]),
    "four": (4, ["--use-tp-pp-dp-mapping", "--hetero-pipeline-stages", "1", "3", "1", "1",
                 "--hetero-pipeline-stages", "2", "2", "2", "--micro-batch-size", "2",
                 "--num-micro-batches-per-dp", "1", "4", "1", "2"]),
    # The replicas of "four" with fewer stages.
    "whole": (2, ["--use-tp-pp-dp-mapping", "--hetero-pipeline-stages", "1", "4",
                  "--hetero-pipeline-stages", "1", "4", "--micro-batch-size", "2",
                  "--num-micro-batches-per-dp", "1", "4", "1", "2"]),
    "half": (3, ["--use-tp-pp-dp-mapping", "--hetero-pipeline-stages", "1", "4",
                 "--hetero-pipeline-stages", "2", "3", "1", "--micro-batch-size", "2",
                 "--num-micro-batches-per-dp", "1", "4", "1", "2"]),
}
# Layouts with the same replicas and micro-batches: in fp64 the same bits.
ALIKE = ["four", "half", "whole"]
SHARDED = ["--use-distributed-optimizer"]
# Replica and stage of each rank of "four".
PLACES_OF_FOUR = [(0, 0), (0, 1), (1, 0), (1, 1)]


def node_of(nodes, rank):
    """The variables with which a rank plays a node."""
    if nodes is None:
        return {}
    return {"HDT_NODE_NAME": f"elastic-{nodes[rank]}", "HDT_NICS_ADDRESSES": f"127.0.1.{nodes[rank] + 1}"}


class Job:
    """The ranks of one run, started without a launcher, which would end the others when one is killed."""

    def __init__(self, folder, layout, arguments, prepare=None, nodes=None, variables=None):
        """nodes: the number of the node that each rank plays; without it all are one node. variables: more
        of them, by rank."""
        size, flags = LAYOUTS[layout]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HDT_", "OMPI_", "SLURM_"))}
        environment.update(HDT_SIZE=str(size), HDT_RENDEZVOUS=f"127.0.0.1:{free_port('127.0.0.1')}",
                           OMP_NUM_THREADS="1", HDT_LOG_LEVEL="error", XDG_RUNTIME_DIR=folder)
        self.files = [tempfile.TemporaryFile(mode="w+", errors="replace") for _ in range(size)]
        self.ranks = [
            subprocess.Popen([TRAIN, *MODEL, *flags, *map(str, arguments)],
                             env=dict(environment, HDT_RANK=str(rank), **node_of(nodes, rank),
                                      **(variables or {}).get(rank, {})),
                             stdout=self.files[rank], stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             preexec_fn=prepare)
            for rank in range(size)]

    def end(self):
        """Ends what a failed test has left running."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()

    def output(self, rank):
        self.files[rank].seek(0)
        return self.files[rank].read()

    def wait(self):
        """Exit codes and outputs, by rank."""
        deadline = time.monotonic() + RUN_S
        try:
            codes = [rank.wait(max(0.1, deadline - time.monotonic())) for rank in self.ranks]
        except subprocess.TimeoutExpired:
            self.end()
            outputs = map(self.output, range(len(self.ranks)))
            raise AssertionError("not ended:\n" + "\n".join(outputs)) from None
        outputs = [self.output(rank) for rank in range(len(self.ranks))]
        for file in self.files:
            file.close()
        return codes, outputs


def losses(path):
    """The loss of each step; where a step was repeated, the last one counts. Evaluations are left out."""
    with open(path, encoding="utf-8") as file:
        return {line["step"]: line["loss"] for line in map(json.loads, file) if "loss" in line}


class TrainCase(unittest.TestCase):
    """A test with a folder of its own, whose runs are ended with it."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="hdt-train-")
        self.addCleanup(self.scratch.cleanup)
        self.save = self.path("checkpoints")

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def start(self, layout, arguments, **more):
        job = Job(self.scratch.name, layout, arguments, **more)
        self.addCleanup(job.end)
        return job

    def run_whole(self, layout, *arguments, code=0):
        codes, outputs = self.start(layout, arguments).wait()
        self.assertEqual(codes, [code] * len(codes), "\n".join(outputs))
        return "".join(outputs)

    def undisturbed(self, steps):
        log = self.path(f"undisturbed-{steps}")
        if not os.path.exists(log):
            self.run_whole("one", "--train-iters", steps, "--loss-log", log)
        return losses(log)

    def expect_losses(self, log, steps):
        expected, found = self.undisturbed(steps), losses(log)
        self.assertEqual(sorted(found), list(range(1, steps + 1)))
        for step, loss in expected.items():
            self.assertLess(abs(found[step] - loss), 2e-5 * loss, f"step {step}")
        self.assertLess(found[steps], found[1] - 0.05)  # it did learn, so there was something to compare

    def wait_for(self, condition, job):
        deadline = time.monotonic() + RUN_S
        while not condition():
            self.assertTrue(all(rank.poll() is None for rank in job.ranks), "ended early:\n" + job.output(0))
            self.assertLess(time.monotonic(), deadline, job.output(0))
            time.sleep(0.001)

    @staticmethod
    def steps_in(log):
        if not os.path.exists(log):
            return 0
        with open(log, encoding="utf-8") as file:
            return sum(line.endswith("\n") for line in file)

    def checkpoints(self):
        return sorted(name for name in os.listdir(self.save) if name.startswith("iter_"))
