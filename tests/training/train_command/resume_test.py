"""resume_test.py BUILD: runs that are interrupted in every way and go on from their checkpoints, on other
layouts. The losses are always those of a run that nobody has disturbed. HDT_TEST_KILLS sets how often a run
is killed."""

import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import time
import unittest

from train_job import ALIKE, LAYOUTS, PLACES_OF_FOUR, SEED, SHARDED, TEXT, TrainCase, losses

KILLS = int(os.environ.get("HDT_TEST_KILLS", "4"))


def change_a_norm(process):
    """Adds to the weight of a norm in memory that the process shares with others, where messages are fastest.
    Whether there was one: a row of ones."""
    ones = struct.pack("f", 1.0) * 32
    with open(f"/proc/{process}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        for line in maps:
            bounds, rights, *_ = line.split()
            if rights != "rw-s":
                continue
            first, end = (int(bound, 16) for bound in bounds.split("-"))
            memory.seek(first)
            at = memory.read(end - first).find(ones)
            if at >= 0:
                memory.seek(first + at)
                memory.write(struct.pack("f", 1.5))
                return True
    return False


class Resume(TrainCase):
    def test_goes_on_on_any_layout_with_the_same_losses(self):
        for first, second in (("four", "one"), ("one", "uneven"), ("uneven", "four"),
                              ("pipeline", "pipeline")):
            with self.subTest(first=first, second=second):
                log = self.path("log")
                shutil.rmtree(self.save, ignore_errors=True)
                self.run_whole(first, "--train-iters", 12, "--save", self.save, "--save-interval", 6,
                               "--loss-log", log)
                self.assertEqual(self.checkpoints(), ["iter_0000006", "iter_0000012"])
                # As if the run had been killed after step 6.
                shutil.rmtree(os.path.join(self.save, "iter_0000012"))
                output = self.run_whole(second, "--train-iters", 12, "--save", self.save, "--load", self.save,
                                        "--loss-log", log)
                self.assertIn("goes on from " + self.save + "/iter_0000006, after step 6", output)
                self.assertNotIn("step 6/12", output)
                self.assertIn("checkpoint: " + self.save + "/iter_0000012", output)
                self.expect_losses(log, 12)
        # At its end there is nothing to do.
        self.assertIn("nothing to train", self.run_whole("one", "--train-iters", 12, "--load", self.save))

    def test_goes_on_with_other_shards_of_the_optimizer_or_none(self):
        weighted = [*SHARDED, "--optimizer-shard-weights"]
        # Each goes on from the checkpoint of the one before.
        parts = (("four", [*weighted, "3", "1", "0", "2"]), ("uneven", SHARDED), ("four", []),
                 ("uneven", [*weighted, "2", "0", "1"]), ("one", SHARDED))
        log, steps = self.path("log"), 3 * len(parts)
        for number, (layout, flags) in enumerate(parts, start=1):
            output = self.run_whole(layout, "--train-iters", steps, "--save", self.save, "--save-interval", 3,
                                    "--load", self.save, "--loss-log", log, *flags)
            if number > 1:
                self.assertIn(f"after step {3 * number - 3}\n", output)
            if number < len(parts):
                # As if the run had been killed after its first checkpoint.
                for step in range(3 * number + 3, steps + 1, 3):
                    shutil.rmtree(os.path.join(self.save, f"iter_{step:07}"))
        self.assertEqual(self.checkpoints(), [f"iter_{step:07}" for step in range(3, steps + 1, 3)])
        self.expect_losses(log, steps)

    # A bit in the memory of a rank, as faulty memory would have it. Weights of the norms start at 1, and stay
    # there with so small a rate.
    def test_replicas_that_differ_end_the_run_by_name(self):
        log = self.path("log")
        job = self.start("four", ["--train-iters", 10 ** 6, "--lr", "1e-12", "--check-weights", 1, "--save",
                                  self.save, "--save-interval", 3, "--loss-log", log])
        self.wait_for(lambda: os.path.isdir(self.save) and "iter_0000003" in os.listdir(self.save), job)
        self.assertTrue(change_a_norm(job.ranks[3].pid), "the rank's memory has no norm")
        codes, outputs = job.wait()
        self.assertEqual(codes, [1] * 4, "\n".join(outputs))
        found = re.search(r"after step (\d+) the replicas hold different models: tensor (\S+) of rank \d "
                          r"\(replica 1, stage \d\) differs from that of rank \d \(replica 0, ", outputs[0])
        self.assertTrue(found, outputs[0])
        self.assertIn("norm.weight", found[2])
        newest = self.checkpoints()[-1]
        self.assertIn(f"The newest checkpoint is {self.save}/{newest}", outputs[0])
        # No checkpoint was made of the models that differ.
        self.assertLess(int(newest.removeprefix("iter_")), int(found[1]))

    def test_sigterm_to_one_rank_saves_and_ends_all(self):
        log = self.path("log")
        steps = 200
        job = self.start("four", ["--train-iters", steps, "--save", self.save, "--loss-log", log])
        self.wait_for(lambda: self.steps_in(log) >= 3, job)
        job.ranks[2].send_signal(signal.SIGTERM)
        codes, outputs = job.wait()
        self.assertEqual(codes, [0] * 4, "\n".join(outputs))
        done = max(losses(log))
        self.assertLess(done, steps)
        self.assertIn(f"stopped by SIGTERM after step {done} of {steps}", outputs[0])
        self.assertEqual(self.checkpoints(), [f"iter_{done:07}"])
        # Another length would be another learning rate; so a few steps more are compared, and no whole run.
        self.run_whole("uneven", "--train-iters", steps, "--load", self.save, "--loss-log", log)
        expected, found = self.undisturbed(steps), losses(log)
        for step in range(1, done + 20):
            self.assertLess(abs(found[step] - expected[step]), 2e-5 * expected[step], f"step {step}")

    def run_and_kill(self, kills, layouts, log, flags):
        """Starts the run on one of the layouts after the other, and kills it each time; then runs it to its
        end. Every second time it is killed while a checkpoint is being written."""
        print(f"HDT_TEST_SEED={SEED}", flush=True)
        chance = random.Random(SEED)
        for kill in range(kills):
            job = self.start(chance.choice(layouts), flags + chance.choice(([], SHARDED)))
            target = self.steps_in(log) + chance.randint(1, 6)
            self.wait_for(lambda: self.steps_in(log) >= target, job)
            if kill % 2:  # while a checkpoint is being written
                self.wait_for(lambda: any(name.endswith(".writing") for name in os.listdir(self.save)), job)
            else:
                time.sleep(chance.uniform(0, 0.03))
            victims = job.ranks if chance.random() < 0.5 else [chance.choice(job.ranks)]
            for victim in victims:
                victim.kill()
            codes, outputs = job.wait()
            for rank, code in enumerate(codes):
                self.assertEqual(code, -signal.SIGKILL if job.ranks[rank] in victims else 1, outputs[rank])
        self.run_whole("four", *flags)
        self.assertEqual([name for name in os.listdir(self.save) if name.startswith(".iter")], [])

    def test_killed_at_random_moments(self):
        log, steps = self.path("log"), 14 * KILLS + 10
        self.run_and_kill(KILLS, sorted(LAYOUTS), log, [
            "--train-iters", steps, "--save", self.save, "--save-interval", 2, "--keep-checkpoints", 2,
            "--load", self.save, "--loss-log", log])
        self.assertEqual(self.checkpoints(), [f"iter_{step:07}" for step in (steps - 2, steps)])
        self.expect_losses(log, steps)

    def test_killed_in_fp64_and_resumed_with_the_same_bits(self):
        kills = (KILLS + 1) // 2
        log, whole, steps = self.path("log"), self.path("undisturbed"), 14 * kills + 10
        common = ["--train-iters", steps, "--fp64"]
        self.run_and_kill(kills, ALIKE, log, common + [
            "--save", self.save, "--save-interval", 2, "--keep-checkpoints", 2, "--load", self.save,
            "--loss-log", log])
        self.run_whole("whole", *common, "--loss-log", whole)
        self.assertEqual(losses(log), losses(whole))
        self.assertEqual(sorted(losses(log)), list(range(1, steps + 1)))

    def test_a_lost_rank_is_named_with_its_place_and_the_newest_checkpoint(self):
        log = self.path("log")
        for victim, place in enumerate(PLACES_OF_FOUR):
            with self.subTest(victim=victim):
                if os.path.exists(log):
                    os.remove(log)
                shutil.rmtree(self.save, ignore_errors=True)
                job = self.start("four", ["--train-iters", 100_000, "--save", self.save,
                                                      "--save-interval", 5, "--loss-log", log])
                self.wait_for(lambda: self.steps_in(log) >= 12, job)
                job.ranks[victim].kill()
                codes, outputs = job.wait()
                self.assertEqual(codes, [-signal.SIGKILL if rank == victim else 1 for rank in range(4)])
                # Whether a rank knew of the last one yet depends on the moment.
                newest = "|".join(self.checkpoints()[-2:])
                done = self.steps_in(log)
                named = f"because of rank {victim} (replica {place[0]}, stage {place[1]}): "
                for rank, output in enumerate(outputs):
                    if rank == victim:
                        continue
                    self.assertIn(named, output)
                    self.assertRegex(output, f"training ended in step ({done}|{done + 1}): ")
                    self.assertRegex(output, f"the newest checkpoint is {self.save}/({newest})\n")

    def test_what_contradicts_is_refused_by_name(self):
        self.run_whole("one", "--train-iters", 2, "--save", self.save)
        other = self.path("other.txt")
        with open(TEXT, "rb") as text, open(other, "wb") as out:
            content = text.read()
            out.write(content[1:] + content[:1])  # as many tokens, of the same frequencies
        for flags, message in (
                (["--seed", 5], "--seed 1234 there and 5 here"),
                (["--seq-length", 16], "--seq-length 32 there and 16 here"),
                (["--hidden-size", 64], "--hidden-size 32 there and 64 here"),
                (["--num-layers", 3], "--num-layers 4 there and 3 here"),
                (["--global-batch-size", 24, "--micro-batch-size", 24],
                 "--global-batch-size 12 there and 24 here"),
                (["--text", other], "the data:")):
            with self.subTest(flags=flags):
                output = self.run_whole("one", "--load", self.save, "--train-iters", 4, *flags, code=2)
                self.assertIn(message, output)
                self.assertIn(self.save + "/iter_0000002", output)
                self.assertEqual(output.count("\n"), 1, output)
                self.assertNotIn("step 3", output)
        # All ranks know; one says it.
        codes, outputs = self.start("four", ["--load", self.save, "--seed", 5]).wait()
        self.assertEqual((codes, "".join(outputs).count("--seed 1234")), ([2] * 4, 1))

    def test_settings_that_have_changed_are_reported_and_used(self):
        self.run_whole("one", "--train-iters", 2, "--lr-decay-iters", 9, "--save", self.save)
        again = ["--load", self.save, "--train-iters", 3]
        self.assertNotIn("run had", self.run_whole("four", *again, "--lr-decay-iters", 9))
        log = self.path("log")
        output = self.run_whole("four", *again, "--lr", "2e-3", "--lr-decay-style", "constant",
                                "--weight-decay", "0.25", "--loss-log", log)
        for line in ("--lr 0.002: the checkpoint's run had 0.001; from step 3 on it is 0.002",
                     "--min-lr 0.0002: the checkpoint's run had 0.0001; ",  # a tenth of --lr
                     "--lr-decay-style constant: the checkpoint's run had cosine; ",
                     "--lr-decay-iters 3: the checkpoint's run had 9; ",
                     "--weight-decay 0.25: the checkpoint's run had 0.1; "):
            self.assertEqual(output.count("hdt-train: warning: " + line), 1, output)
        self.assertEqual(output.count("run had"), 5, output)
        with open(log, encoding="utf-8") as lines:
            self.assertEqual([json.loads(line)["learning_rate"] for line in lines], [0.002])
        # A checkpoint of a version that wrote no settings is gone on from without a word.
        path = os.path.join(self.save, "iter_0000002", "training_state.json")
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        del state["settings"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(state, file)
        self.assertNotIn("run had", self.run_whole("one", *again, "--lr", "2e-3"))

    def test_without_a_checkpoint_it_starts_anew_or_ends(self):
        nowhere = self.path("nowhere")
        output = self.run_whole("pipeline", "--load", nowhere, "--train-iters", 2)
        self.assertEqual(output.count("there is no checkpoint; training starts anew"), 1, output)
        self.assertIn("step 2/2", output)
        output = self.run_whole("one", "--load", nowhere, "--exit-on-missing-checkpoint", code=2)
        self.assertIn("there is no checkpoint, and --exit-on-missing-checkpoint is given", output)
        self.assertIn("expected --save", self.run_whole("one", "--save-interval", 2, code=2))

    def test_damaged_shards_are_named(self):
        self.run_whole("four", "--train-iters", 2, "--save", self.save)
        folder = os.path.join(self.save, "iter_0000002")
        shards = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
        for shard in random.sample(shards, 2):
            path = os.path.join(folder, shard)
            with open(path, "r+b") as file:
                file.seek(-9, os.SEEK_END)
                byte = file.read(1)[0]
                file.seek(-9, os.SEEK_END)
                file.write(bytes([byte ^ 1]))
            output = self.run_whole("one", "--load", self.save, "--train-iters", 4, code=1)
            self.assertIn(shard, output)
            self.assertNotIn("step 3", output)
            with open(path, "r+b") as file:
                file.seek(-9, os.SEEK_END)
                file.write(bytes([byte]))
        os.remove(os.path.join(folder, shards[0]))
        output = self.run_whole("one", "--load", self.save, "--train-iters", 4, code=2)
        self.assertIn(shards[0], output)

    def test_a_full_disk_costs_the_checkpoint_and_no_step(self):
        log = self.path("log")
        # To the process a full disk is a write that fails.
        job = self.start("one",
                  ["--train-iters", 150, "--save", self.save, "--save-interval", 4, "--loss-log", log],
                  prepare=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        tracker = os.path.join(self.save, "latest_checkpointed_iteration.txt")
        self.wait_for(lambda: os.path.exists(tracker), job)
        resource.prlimit(job.ranks[0].pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
        codes, outputs = job.wait()
        self.assertEqual(codes, [1], outputs[0])
        self.assertEqual(self.steps_in(log), 150)
        newest = os.path.join(self.save, self.checkpoints()[-1])
        self.assertRegex(outputs[0], r"warning: --save .*no checkpoint of step \d+: rank 0: .*"
                                     r"\.writing/model\.rank-00000\.safetensors.*File too large")
        self.assertIn("newest checkpoint: " + newest, outputs[0])
        self.assertRegex(outputs[0], f"hdt-train: --save {self.save}: no checkpoint of step 150: rank 0: ")
        # It is whole.
        self.assertIn("goes on from " + newest,
                      self.run_whole("one", "--load", self.save, "--train-iters", 151))

    def test_divergence_names_the_checkpoint_that_stays(self):
        self.run_whole("one", "--train-iters", 2, "--save", self.save)
        output = self.run_whole("pipeline", "--train-iters", 9, "--load", self.save, "--save", self.save,
                                "--lr", "1e30", "--lr-warmup-iters", 0, code=1)
        self.assertIn("training diverged at step 4", output)
        self.assertIn("The newest checkpoint is " + self.save + "/iter_0000002", output)
        self.assertEqual(self.checkpoints(), ["iter_0000002"])

    def test_two_runs_do_not_save_in_one_folder(self):
        log = self.path("log")
        job = self.start("one", ["--train-iters", 100_000, "--save", self.save, "--loss-log", log])
        self.wait_for(lambda: self.steps_in(log) >= 1, job)
        output = self.run_whole("pipeline", "--train-iters", 2, "--save", self.save, code=1)
        self.assertIn("another run saves its checkpoints in " + self.save, output)
        self.assertIn("because rank 0 is not ready", output)
        job.ranks[0].send_signal(signal.SIGTERM)
        codes, outputs = job.wait()
        self.assertEqual(codes, [0], outputs[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
