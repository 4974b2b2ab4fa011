"""bench_plan_test.py PROGRAMS: bench/plan's scripts: layouts, plans and verdicts by hand; the collectives'
one, and bench/training's, run at their smallest."""

import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
import types
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
for part in ("plan", "training"):
    sys.path.insert(0, os.path.join(ROOT, "bench", part))

import characters  # noqa: E402  the path comes first
import checkpoint  # noqa: E402
import collectives  # noqa: E402
import emulated_devices  # noqa: E402
import emulated_runs  # noqa: E402
import overlap  # noqa: E402
import own_runs  # noqa: E402
import peak_memory  # noqa: E402

PROGRAMS = sys.argv.pop(1)
MODEL = """name = "m"
state_factor = 4
[[layer]]
kind = "embedding"
output_bytes = 100
parameter_bytes = [[1, 4000]]
[[layer]]
kind = "layer"
count = 6
output_bytes = 100
parameter_bytes = [[1, 4000]]
[[layer]]
kind = "head"
output_bytes = 100
parameter_bytes = [[1, 4000]]
"""


def profile(seconds):
    compute = [{"device": device, "layer": layer, "tensor_parallel": 1, "micro_batch_size": size,
                "forward": seconds * factor, "input_gradient": seconds, "weight_gradient": seconds,
                "update": 1e-3, "activation_bytes": 100, "selective_more_seconds": 1e-3,
                "selective_activation_bytes": 50}
               for device, factor in own_runs.DEVICES.items() for layer in ("embedding", "layer", "head")
               for size in own_runs.MICRO_BATCH_SIZES]
    links = [{"from": a, "to": b, "inside": inside, "latency": 1e-5, "bandwidth": [[1000, 1e9]]}
             for a in own_runs.DEVICES for b in own_runs.DEVICES if a <= b
             for inside in (False, True) if a == b or not inside]
    return {"compute": compute, "link": links}


class OwnRuns(unittest.TestCase):
    def test_layouts_hold_the_model_and_differ(self):
        rng = random.Random(1)
        layouts = [own_runs.random_layout(rng) for _ in range(200)]
        for layout in layouts:
            self.assertLessEqual(sum(len(stages) for _, _, stages in layout), own_runs.MOST_RANKS)
            for size, count, stages in layout:
                self.assertEqual(sum(layers for layers, _ in stages), own_runs.LAYERS)
                self.assertTrue(all(layers >= 1 for layers, _ in stages))
                self.assertIn(size, own_runs.MICRO_BATCH_SIZES)
                self.assertIn(count, range(1, 5))
        self.assertGreater(len({str(layout) for layout in layouts}), 150)

    def test_each_rank_is_as_slow_as_its_device(self):
        layout = [(2, 3, [(4, "swift"), (2, "slow")]), (1, 1, [(6, "medium")])]
        self.assertEqual(" ".join(own_runs.train_flags("p.toml", layout)),
                         "--plan p.toml --slow-down 1 6 1 16 1 10")

    def test_every_schedule_is_run_and_chunks_are_where_they_can_be(self):
        rng = random.Random(3)
        ways = [own_runs.random_run(rng, number)[1] for number in range(200)]
        self.assertEqual({schedule for schedule, _, _, _ in ways}, set(own_runs.SCHEDULES))
        self.assertEqual({recomputed for _, recomputed, _, _ in ways}, {0, 1, 2})
        self.assertEqual({sharded for _, _, sharded, _ in ways}, {False, True})
        self.assertEqual({attention for _, recomputed, _, attention in ways if recomputed}, {False, True})
        for sharded in (False, True):
            self.assertIn(f"use_distributed_optimizer = {str(sharded).lower()}\n",
                          own_runs.plan_toml([(1, 2, [(6, "swift")])], ("1f1b", 0, sharded, False), 1 << 20))
        for attention, granularity in ((False, "full"), (True, "selective")):
            self.assertIn(f'recompute_granularity = "{granularity}"\n', own_runs.plan_toml(
                [(1, 2, [(6, "swift")])], ("1f1b", 1, False, attention), 1 << 20))
        text = own_runs.plan_toml([(1, 4, [(4, "swift"), (2, "slow")]), (1, 1, [(6, "swift")])],
                                  ("interleaved", 3, False, False), 1)
        self.assertEqual([line.strip() for line in text.splitlines() if "layers" in line],
                         ["layers = [2, 2]", "recompute_layers = 3", "layers = [1, 1]",
                          "recompute_layers = 2", "layers = 6", "recompute_layers = 3"])

    def test_plans_are_accepted_and_validated(self):
        rng = random.Random(2)
        with tempfile.TemporaryDirectory() as folder:
            own_runs.write(folder, "model.toml", MODEL)
            own_runs.write(folder, "cluster.toml", own_runs.cluster_toml())
            means = own_runs.mean_profile([profile(x) for x in (.4, .05, .15)])
            self.assertAlmostEqual(tomllib.loads(means)["compute"][0]["input_gradient"], .2)
            own_runs.write(folder, "profile.toml", means)
            runs = 'name = "own"\n'
            count = 2 * len(own_runs.SCHEDULES)
            for index in range(count):
                layout, way = own_runs.random_run(rng, index)
                own_runs.write(folder, f"{index}.toml", own_runs.plan_toml(layout, way, 1 << 20))
                runs += f'[[run]]\nname = "{index}"\nplan = "{index}.toml"\nstep_seconds = 10.0\n'
            own_runs.write(folder, "runs.toml", runs)
            rows = json.loads(own_runs.run([PROGRAMS + "/hdt-plan", "validate", "runs.toml", "-p",
                                            "profile.toml", "-c",
                                            "cluster.toml", "-m", "model.toml", "--json"], folder))[0]["rows"]
            self.assertEqual(len(rows), count)
            # A layer's forward takes 0.2 s times the device's factor, so the step some seconds.
            for row in rows:
                self.assertGreater(row["predicted_from_profile_seconds"], 6 * 3 * .2)

    def test_rounds_of_other_layouts_are_not_mixed(self):
        arguments = types.SimpleNamespace(seed=1, layouts=2, bucket_elements=8, emulate=False)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(own_runs.measured_before(folder, arguments), ([[], []], []))
            own_runs.write(folder, own_runs.MEASURED, json.dumps(
                {"settings": own_runs.settings(arguments), "times": [[1], [2]], "profiles": [{}]}))
            self.assertEqual(own_runs.measured_before(folder, arguments), ([[1], [2]], [{}]))
            arguments.seed = 2
            with self.assertRaisesRegex(SystemExit, "holds rounds of"):
                own_runs.measured_before(folder, arguments)


class PeakMemory(unittest.TestCase):
    def test_layouts_keep_their_shape(self):
        layout = [(2, 3, [(4, "swift"), (2, "slow")]), (1, 1, [(6, "medium")])]
        self.assertEqual(peak_memory.on_one_device(layout),
                         [(4, 3, [(4, "core"), (2, "core")]), (2, 1, [(6, "core")])])

    def test_the_fullest_process_counts_and_failures_end_it(self):
        """A stand-in for mpirun, whose children take memory."""
        take = "x = bytearray(int(__import__('sys').argv[1])); import time; time.sleep(1)"
        with tempfile.TemporaryDirectory() as folder:
            def ranks(*sizes, status=0):
                programs = " & ".join(f"{sys.executable} -c \"{take}\" {size}" for size in sizes)
                return ["sh", "-c", f"{programs} & wait; exit {status}"]
            least = 64 << 20
            most = peak_memory.peak_bytes(ranks(1, least, 1), folder)
            self.assertGreaterEqual(most, least)
            self.assertLess(most, least + (64 << 20))
            self.assertEqual(peak_memory.bytes_of(1 << 30), 0)
            with self.assertRaisesRegex(SystemExit, "exit status 3"):
                peak_memory.peak_bytes(ranks(1, status=3), folder)


class Emulated(unittest.TestCase):
    def predicted(self, folder, plan):
        return json.loads(own_runs.run([PROGRAMS + "/hdt-plan", "predict", plan, "-p", "profile.toml", "-c",
                                        "cluster.toml", "-m", "model.toml", "--json"], folder))

    def test_the_cluster_of_eight_devices_is_planned_for_as_a_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = types.SimpleNamespace(build=os.path.dirname(PROGRAMS), samples=256)
            write = emulated_runs.write
            write(folder, "profile.toml", emulated_devices.profile_toml(10**9))
            write(folder, "model.toml", emulated_runs.model_toml(
                emulated_devices.LAYERS, emulated_devices.PARAMETER_BYTES, emulated_devices.OUTPUT_BYTES))
            write(folder, "cluster.toml", emulated_runs.cluster_toml(
                [(device, 2, 1 << 34) for device in emulated_devices.HOSTS]))
            emulated_devices.search(arguments, folder, "plan.toml")
            nodes = emulated_runs.nodes_of(os.path.join(folder, "plan.toml"))
            self.assertEqual(sorted(nodes), [0, 0, 1, 1, 2, 2, 3, 3])
            # 256 samples of 17 units and the embedding, by 5.9 fast devices in all.
            least = 256 * 3 * emulated_devices.LAYER_SECONDS * 17.05 / 5.9
            self.assertGreater(self.predicted(folder, "plan.toml")["step_seconds"], least)

    def test_the_plans_of_the_overlap_are_accepted(self):
        with tempfile.TemporaryDirectory() as folder:
            write = emulated_runs.write
            compute = "".join(emulated_runs.compute_toml("device", layer, 1, 1e-3, 1e-3, 1e-9, 64)
                              for layer in ("embedding", "layer", "head"))
            write(folder, "profile.toml",
                  'name = "overlap"\n' + compute + emulated_runs.links_toml(["device"], 10**9))
            hosts = [("device", 1, 1 << 34)] * 2
            write(folder, "cluster.toml", emulated_runs.cluster_toml(hosts))
            sizes = {"embedding": 64, "layer": 1 << 20, "head": 64}
            write(folder, "model.toml", emulated_runs.model_toml(overlap.LAYERS, sizes, 1 << 10))
            write(folder, "replicas.toml", overlap.plan_toml("1f1b", [[0], [1]], 1, 1))
            self.assertEqual(len(self.predicted(folder, "replicas.toml")["workers"]), 2)
            for schedule in "1f1b", "eager-1f1b":
                write(folder, "stages.toml", overlap.plan_toml(schedule, [[0, 1]], overlap.MICRO_BATCHES, 2))
                self.assertEqual(self.predicted(folder, "stages.toml")["samples"], overlap.MICRO_BATCHES)

    def test_what_a_run_prints_is_read(self):
        output = ("emulated: x\nstep: 0.25 s, median of 3 (fastest 0.2, slowest 0.3); predicted 0.2\n"
                  "acceleration ratio: 97.88 % = 1 samples/s measured / 1.02 samples/s of all alone\n")
        self.assertEqual(emulated_runs.step_seconds(output), 0.25)
        self.assertEqual(emulated_runs.acceleration_ratio(output), 97.88)

    def test_wrong_usage(self):
        for script in ("emulated_devices.py", "overlap.py"):
            path = os.path.join(ROOT, "bench", "plan", script)
            done = subprocess.run([sys.executable, "-B", path, "--rate", "fast"], capture_output=True,
                                  text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--rate", done.stderr)


class Collectives(unittest.TestCase):
    def command(self, *flags):
        return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "bench", "plan", "collectives.py"),
                               "--programs", PROGRAMS, *flags], capture_output=True, text=True, timeout=100,
                              check=False)

    def test_sizes_and_bands(self):
        options = types.SimpleNamespace(nodes=4, factor=8, largest=64 << 20)
        sizes = collectives.all_sizes(options)
        self.assertEqual((sizes[0], sizes[-1]), (64, 64 << 20))
        self.assertEqual([size for band, _ in collectives.bands(sizes, 8) for size in band], sizes)

    def test_every_point_has_figures_and_the_bars_decide(self):
        with tempfile.TemporaryDirectory() as folder:
            points = os.path.join(folder, "points.json")
            flags = ("--collectives", "allreduce,broadcast", "--largest", "512", "--rounds", "1", "--json",
                     points)
            done = self.command(*flags, "--within", "1e9", "--regret", "1e9")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(points, encoding="utf-8") as file:
                rows = json.load(file)["rows"]
            self.assertIn(("allreduce", 8, "ring"),
                          {(r["collective"], r["bytes"], r["algorithm"]) for r in rows})
            self.assertTrue(all(row["measured_s"] > 0 and row["predicted_s"] > 0 for row in rows))
            # The tuner picks one algorithm for each call: the one that is predicted to be the fastest.
            for call in {(row["collective"], row["bytes"]) for row in rows}:
                same = [row for row in rows if (row["collective"], row["bytes"]) == call]
                picked = [row for row in same if row["picked"]]
                self.assertEqual(len(picked), 1)
                self.assertEqual(picked[0]["predicted_s"], min(row["predicted_s"] for row in same))
            self.assertEqual(self.command(*flags, "--within", "0").returncode, 1)

    def test_wrong_usage(self):
        for flags, words in ((("--nodes", "1"), "--nodes"),
                             (("--collectives", "all"), "'all' given; expected some of allreduce")):
            done = self.command(*flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


class Checkpoint(unittest.TestCase):
    def test_the_longest_step_after_a_save_counts(self):
        usual, longer = checkpoint.stall([9, 2, 3, 2.5, 4.5, 2.5, 3.5])
        self.assertEqual((usual, longer), (2.5, 2))

    @unittest.skipUnless(os.path.exists(PROGRAMS + "/hdt-train"), "this build has no hdt-train")
    def test_a_small_model_is_saved_twice(self):
        done = subprocess.run([sys.executable, "-B", checkpoint.__file__, "--programs", PROGRAMS,
                               "--hidden-size", "32", "--steps", "7"], capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertEqual([line.split(":")[0] for line in done.stdout.splitlines() if "after a save)" in line],
                         ["step 4", "step 7"])
        self.assertRegex(done.stdout, r"steps \(bar 1.0\): (met|missed)\n$")


class Characters(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(PROGRAMS + "/hdt-train"), "this build has no hdt-train")
    def test_a_few_steps_on_two_nodes_are_validated_and_the_bar_decides(self):
        for bar, status in (("6", 0), ("1", 1)):
            done = subprocess.run([sys.executable, "-B", characters.__file__, "--programs", PROGRAMS,
                                   "--text", os.path.join(ROOT, "LICENSE"), "--steps", "4", "--bar", bar],
                                  capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            losses = [float(line.split()[-1]) for line in done.stdout.splitlines()
                      if line.startswith("step")]
            self.assertEqual(len(losses), 4)
            self.assertLess(losses[3], losses[0])


if __name__ == "__main__":
    unittest.main()
