"""bench_plan_test.py PROGRAMS: bench/plan's scripts: layouts, plans and verdicts by hand; the collectives'
one run at its smallest."""

import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench", "plan"))

import collectives  # noqa: E402  the path comes first
import own_runs  # noqa: E402

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
                "update": 1e-3, "activation_bytes": 100}
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

    def test_flags_say_what_the_plan_says(self):
        layout = [(2, 3, [(4, "swift"), (2, "slow")]), (1, 1, [(6, "medium")])]
        self.assertEqual(" ".join(own_runs.train_flags(layout)),
                         "--use-tp-pp-dp-mapping --micro-batch-size-per-dp 1 2 1 1 "
                         "--num-micro-batches-per-dp 1 3 1 1 "
                         "--hetero-pipeline-stages 2 4 2 --hetero-pipeline-stages 1 6 "
                         "--slow-down 1 6 1 16 1 10")

    def test_plans_are_accepted_and_validated(self):
        rng = random.Random(2)
        with tempfile.TemporaryDirectory() as folder:
            own_runs.write(folder, "model.toml", MODEL)
            own_runs.write(folder, "cluster.toml", own_runs.cluster_toml())
            own_runs.write(folder, "profile.toml",
                           own_runs.median_profile([profile(x) for x in (.9, .1, .2)]))
            runs = 'name = "own"\n'
            for index in range(4):
                own_runs.write(folder, f"{index}.toml",
                               own_runs.plan_toml(own_runs.random_layout(rng), 1 << 20))
                runs += f'[[run]]\nname = "{index}"\nplan = "{index}.toml"\nstep_seconds = 10.0\n'
            own_runs.write(folder, "runs.toml", runs)
            rows = json.loads(own_runs.run([PROGRAMS + "/hdt-plan", "validate", "runs.toml", "-p",
                                            "profile.toml", "-c",
                                            "cluster.toml", "-m", "model.toml", "--json"], folder))[0]["rows"]
            self.assertEqual(len(rows), 4)
            # The median profile: a layer's forward takes 0.2 s times the device's factor, so the step some
            # seconds.
            for row in rows:
                self.assertGreater(row["predicted_from_profile_seconds"], 6 * 3 * .2)

    def test_rounds_of_other_layouts_are_not_mixed(self):
        arguments = types.SimpleNamespace(seed=1, layouts=2, bucket_elements=8)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(own_runs.measured_before(folder, arguments), ([[], []], []))
            own_runs.write(folder, own_runs.MEASURED, json.dumps(
                {"settings": own_runs.settings(arguments), "times": [[1], [2]], "profiles": [{}]}))
            self.assertEqual(own_runs.measured_before(folder, arguments), ([[1], [2]], [{}]))
            arguments.seed = 2
            with self.assertRaisesRegex(SystemExit, "holds rounds of"):
                own_runs.measured_before(folder, arguments)


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


if __name__ == "__main__":
    unittest.main()
