"""elastic_test.py BUILD: runs with --elastic that lose ranks and go on with the others. Losses and
checkpoints are those of a run that nobody has disturbed, to rounding. HDT_TEST_SEED repeats which ranks are
killed, and when."""

import array
import json
import math
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from train_job import BUILD, LAYOUTS, MODEL, RUN_S, SEED, SHARDED, TRAIN, TrainCase, losses

STEPS = 24
EVALUATED = ["--split", "90,10", "--eval-interval", "8", "--eval-iters", "2"]
LAYOUTS.update({
    # Chunks that stay, and chunks that the ranks that are left cannot have.
    "chunks": (4, ["--use-tp-pp-dp-mapping", "--schedule", "interleaved", "--hetero-pipeline-stages", "3",
                   "1", "1", "1", "1", "2", "1", "--hetero-pipeline-stages", "1", "7",
                   "--num-virtual-stages-per-pipeline-rank", "2", "1", "--num-layers", "7",
                   "--micro-batch-size", "1", "--num-micro-batches-per-dp", "1", "6", "1", "6"]),
    # Numbered stage by stage: the loss of rank 0 makes another replica the first one.
    "by stage": (4, ["--pipeline-model-parallel-size", "2", "--micro-batch-size", "2"]),
})


# The runs that nobody has disturbed, by their flags.
UNDISTURBED = tempfile.TemporaryDirectory(prefix="hdt-undisturbed-")


PLAN = """schedule = "1f1b"
[[replica]]
micro_batch_size = 2
micro_batches = 4
  [[replica.stage]]
  layers = 4
  node = "a"
[[replica]]
micro_batch_size = 2
micro_batches = 2
  [[replica.stage]]
  layers = 2
  recompute_layers = 1
  node = "b"
  [[replica.stage]]
  layers = 2
  node = "b"
"""


def tensors(folder):
    """The parameters of a checkpoint, in fp32, by name."""
    found = {}
    for name in os.listdir(folder):
        if not (name.startswith("model") and name.endswith(".safetensors")):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            start = file.tell()
            for tensor, facts in header.items():
                if tensor == "__metadata__":
                    continue
                first, end = facts["data_offsets"]
                file.seek(start + first)
                found[tensor] = array.array("f", file.read(end - first))
    return found


class Elastic(TrainCase):
    def setUp(self):
        super().setUp()
        print(f"HDT_TEST_SEED={SEED}", flush=True)
        self.chance = random.Random(SEED)
        self.log = self.path("log")

    def flags(self, *more, interval=3):
        return ["--elastic", "--save", self.save, "--save-interval", interval, "--loss-log", self.log, *more]

    def begin(self, layout, *flags, interval=3, **more):
        return self.start(layout, self.flags("--train-iters", STEPS, *flags, interval=interval), **more)

    def lose(self, job, ranks, line):
        """Kills them when the log has so many lines. Lines of steps that are done again count, too."""
        victims = [job.ranks[rank] for rank in ranks]
        self.wait_for_lines(job, line)
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()

    def wait_for_lines(self, job, line):
        living = [rank for rank in job.ranks if rank.poll() is None]
        job.ranks, everyone = living, job.ranks
        self.wait_for(lambda: self.steps_in(self.log) >= line, job)
        job.ranks = everyone

    def finish(self, job, killed):
        codes, outputs = job.wait()
        everything = "\n".join(outputs)
        self.assertEqual(codes, [-signal.SIGKILL if rank in killed else 0 for rank in range(len(codes))],
                         everything)
        # Nothing is left of how the ranks have found each other.
        self.assertEqual([name for name in os.listdir(self.save) if name.startswith(".elastic")], [])
        return outputs

    def expect_undisturbed(self, *flags):
        folder = os.path.join(UNDISTURBED.name, "-".join(["run", *map(str, flags)]).replace("/", ""))
        log, save = os.path.join(folder, "log"), os.path.join(folder, "checkpoints")
        if not os.path.exists(folder):
            os.mkdir(folder)
            self.run_whole("one", "--train-iters", STEPS, "--loss-log", log, "--save", save, *flags)
        expected, found = losses(log), losses(self.log)
        self.assertEqual(sorted(found), list(range(1, STEPS + 1)))
        for step, loss in expected.items():
            self.assertLess(abs(found[step] - loss), 1e-5 * loss, f"step {step}")
        last = f"iter_{STEPS:07}"
        expected, found = (tensors(os.path.join(folder, last)) for folder in (save, self.save))
        self.assertEqual(sorted(found), sorted(expected))
        for name, values in expected.items():
            norm = math.sqrt(sum(value * value for value in values))
            difference = math.sqrt(sum((one - other) ** 2 for one, other in zip(found[name], values)))
            self.assertLess(difference, 1e-4 * norm, name)

    def test_a_rank_is_lost_at_a_random_step(self):
        layout = self.chance.choice(["four", "uneven", "by stage"])
        victim = self.chance.randrange(LAYOUTS[layout][0])
        job = self.begin(layout, *self.chance.choice(([], SHARDED)))
        self.lose(job, [victim], self.chance.randrange(1, STEPS - 3))
        outputs = self.finish(job, {victim})
        # Each of the others names it; one of them speaks for all from then on.
        for rank, output in enumerate(outputs):
            if rank != victim:
                self.assertRegex(output, rf"rank {rank}: .*because of rank {victim} \(replica \d, stage "
                                         r"\d\): .*--elastic: the ranks that are left go on\n")
        speaker = outputs[0 if victim else 1]
        size = LAYOUTS[layout][0]
        self.assertRegex(speaker, rf"elastic: goes on without rank {victim} \(replica \d, stage \d\): "
                                  rf"{size - 1} of {size} ranks are left")
        self.assertIn(f"layout: {size - 1} ranks; ", speaker)
        self.assertIn(f" | {size - 1} of {size} ranks | ", speaker)
        self.assertIn("elastic: ranks were lost 1 time, and ", speaker)
        self.assertIn(f"checkpoint: {self.save}/iter_{STEPS:07}", speaker)
        self.expect_undisturbed()

    # The first one hosts the node's daemon, has the log and the lock of the checkpoints.
    def test_rank_0_and_then_another_one_are_lost(self):
        job = self.begin("four", *SHARDED, "--optimizer-shard-weights", 3, 1, 0, 2, "--check-weights", 1,
                         *EVALUATED)
        self.lose(job, [0], 7)
        self.lose(job, [3], 16)
        outputs = self.finish(job, {0, 3})
        self.assertIn("elastic: goes on without rank 0 (replica 0, stage 0): 3 of 4 ranks are left; rank 1 "
                      "is rank 0 now, rank 2 is rank 1 now, rank 3 is rank 2 now", outputs[1])
        self.assertRegex(outputs[1], r"the ranks, measured in \d+ steps: \d")
        self.assertIn("elastic: goes on without rank 2 (replica 1, stage 1): 2 of 3 ranks are left",
                      outputs[1])
        self.assertIn("replica 0: 4 layers, ", outputs[1])
        self.assertIn("elastic: ranks were lost 2 times, and ", outputs[1])
        self.assertIn(f"validation at step {STEPS}: loss ", outputs[1])
        self.expect_undisturbed(*EVALUATED)

    # The failure names one of its ranks only.
    def test_a_node_is_lost(self):
        job = self.begin("four", nodes=[0, 1, 0, 1])
        self.lose(job, [1, 3], 8)
        outputs = self.finish(job, {1, 3})
        # The second one may count as a further loss.
        self.assertRegex(outputs[0], r"elastic: goes on without rank \d \(replica \d, stage \d\)")
        self.assertIn("layout: 2 ranks; replica 0: 4 layers, ", outputs[0])
        self.expect_undisturbed()

    def test_another_one_is_lost_while_the_others_find_each_other(self):
        job = self.begin("four")
        self.lose(job, [1], 8)
        everyone, job.ranks = job.ranks, [job.ranks[0]]
        self.wait_for(lambda: "--elastic: the ranks that are left go on" in job.output(0), job)
        job.ranks = everyone
        job.ranks[3].kill()
        self.finish(job, {1, 3})
        self.expect_undisturbed()

    def lose_two(self, *moments):
        """Kills rank 1, and then another one at a moment that die_in_call.cc knows."""
        moment, value = self.chance.choice(moments)
        doomed = self.chance.choice([0, 2, 3])
        nodes = self.chance.choice([None, [0, 1, 0, 1], [0, 0, 1, 1]])
        print(f"rank {doomed}, {moment}={value}, nodes {nodes}", flush=True)
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        job = self.begin("four", *self.chance.choice(([], SHARDED)), nodes=nodes, variables={doomed: {
            "LD_PRELOAD": os.path.join(BUILD, "tests", "libdie_in_call.so"), moment: str(value),
            "ASAN_OPTIONS": sanitizer.lstrip(":")}})
        self.lose(job, [1], 8)
        outputs = self.finish(job, {1, doomed})
        self.assertIn("layout: 2 ranks; ", outputs[2 if doomed == 0 else 0])
        self.expect_undisturbed()
        return outputs

    # Nobody has done anything in the new group: the others have it, and find each other all the same.
    def test_another_one_is_lost_when_the_new_group_was_just_made(self):
        outputs = self.lose_two(("HDT_TEST_DIE_BEFORE_CALL", 1))
        self.assertIn("another loss before the new layout was complete: ", "".join(outputs))

    # Some ranks may have the new layout, and train in it, when others learn of the loss.
    def test_another_one_is_lost_on_the_way_to_the_new_layout(self):
        self.lose_two(("HDT_TEST_DIE_BEFORE_CALL", self.chance.randrange(2, 30)))

    # Some ranks may have the new group, and others none.
    def test_another_one_is_lost_while_the_new_group_is_made(self):
        self.lose_two(("HDT_TEST_DIE_IN_SHRINK_US", self.chance.randrange(20_000)))

    # The stage that recomputes layers keeps no more activations than before.
    def test_with_a_plan_before_the_first_checkpoint_it_begins_anew(self):
        plan = self.path("plan.toml")
        with open(plan, "w", encoding="utf-8") as file:
            file.write(PLAN)
        LAYOUTS["plan"] = (3, ["--plan", plan])
        job = self.begin("plan", interval=1000)
        self.lose(job, [2], 4)
        outputs = self.finish(job, {2})
        self.assertIn("elastic: no checkpoint was written yet, so training begins anew, from the start "
                      "values", outputs[0])
        self.assertIn("recomputed layers: replica 0: 0; replica 1: 3\n", outputs[0])
        self.expect_undisturbed()

    def test_chunks_stay_where_they_can(self):
        job = self.begin("chunks", "--num-layers", 7)
        self.lose(job, [1], 5)
        self.lose(job, [0], 14)
        outputs = self.finish(job, {0, 1})
        self.assertRegex(outputs[0], r"layout: 3 ranks; replica 0: \d \+ \d \+ \d \+ \d layers on 2 stages "
                                     r"with 2 chunks each")
        self.assertIn("has one chunk on each stage in place of 2", outputs[2])
        self.assertIn("elastic: the schedule is 1f1b, as no stage has several chunks any more", outputs[2])
        self.expect_undisturbed("--num-layers", 7)

    # A machine that hangs, with its daemon: the others cannot tell whether it lives. It must not come back.
    def test_a_rank_that_the_others_have_left_behind_ends_itself(self):
        job = self.begin("four", "--bf16", nodes=[0, 0, 1, 0])
        self.wait_for_lines(job, 8)
        job.ranks[2].send_signal(signal.SIGSTOP)
        self.lose(job, [1], 8)
        self.wait_for_lines(job, 16)
        job.ranks[2].send_signal(signal.SIGCONT)
        codes, outputs = job.wait()
        self.assertEqual(codes, [0, -signal.SIGKILL, 1, 0], "\n".join(outputs))
        self.assertIn("the other ranks take this one for lost, and go on without it", outputs[2])
        self.assertIn("elastic: goes on without rank 1 (replica 0, stage 1), rank 2 (replica 1, ", outputs[0])
        self.assertEqual(sorted(losses(self.log)), list(range(1, STEPS + 1)))

    # With --enable-recovery the others go on: docs/training.md runs that.
    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
    def test_mpirun_ends_the_others_unless_it_is_told_otherwise(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HDT_", "OMPI_", "SLURM_"))}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMP_NUM_THREADS="1", HDT_LOG_LEVEL="error", XDG_RUNTIME_DIR=self.scratch.name)
        size, layout = LAYOUTS["four"]
        command = [TRAIN, *MODEL, *layout, *map(str, self.flags("--train-iters", 10 ** 6))]
        with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
            mpirun = subprocess.Popen(
                ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(size), "sh", "-c",
                 'echo $$ > "$0-$OMPI_COMM_WORLD_RANK"; exec "$@"', self.path("pid"), *command],
                env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            try:
                deadline = time.monotonic() + RUN_S
                while self.steps_in(self.log) < 8:
                    self.assertTrue(mpirun.poll() is None and time.monotonic() < deadline)
                    time.sleep(0.01)
                with open(self.path("pid-1"), encoding="utf-8") as file:
                    os.kill(int(file.read()), signal.SIGKILL)
                code = mpirun.wait(RUN_S)
            finally:
                mpirun.terminate()
                mpirun.wait()
            output.seek(0)
            self.assertNotEqual(code, 0, output.read())

    def test_what_cannot_work_is_refused(self):
        output = self.run_whole("one", "--elastic", "--train-iters", 2, "--save", self.save, code=2)
        self.assertIn("--elastic: expected --save and --save-interval", output)
        self.run_whole("one", "--train-iters", 2, "--save", self.save)
        more = ["--elastic", "--train-iters", 4, "--save", self.save, "--save-interval", 1]
        output = self.run_whole("one", *more, code=1)
        self.assertIn(f"--elastic: --save {self.save} has checkpoints of another run", output)
        self.assertIn(f"give --load {self.save}", output)
        self.run_whole("one", *more, "--load", self.save)


if __name__ == "__main__":
    unittest.main(verbosity=2)
