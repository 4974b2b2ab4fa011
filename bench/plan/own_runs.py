#!/usr/bin/env python3
"""own_runs.py: how far off hdt-plan is on this machine: random heterogeneous layouts are run and predicted.

Measures a profile with `hdt-train --profile` (before and after each round of runs: the median of each figure
counts, so that a machine that is disturbed for a while disturbs profile and runs alike), and trains a small
model in random layouts (unequal stages and replicas, ranks of three speeds) and holds the median step against
what `hdt-plan` predicts from that profile alone. Slow devices are emulated (--slow-down): their ranks mostly
sleep, so that more ranks than cores do not get into each other's way.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tomllib

DEVICES = {"swift": 6, "medium": 10, "slow": 16}  # times slower than a core of this machine
LAYERS = 6
MODEL = ["--num-layers", str(LAYERS), "--hidden-size", "128", "--num-attention-heads", "4",
         "--ffn-hidden-size", "352", "--seq-length", "64"]
MICRO_BATCH_SIZES = [1, 2]
MOST_RANKS = 5
SKIPPED_STEPS = 2  # buffers, caches and branch predictors warm up
RUN_TIMEOUT_S = 120
MEASURED = "measured.json"
MPI_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def random_layout(rng):
    """Replicas as (micro-batch size, micro-batches, [(layers, device), ...])."""
    stages = rng.choice([[1], [2], [3], [1, 1], [1, 2], [2, 1], [2, 2], [3, 2], [2, 3], [1, 1, 2], [1, 1, 1]])
    replicas = []
    for count in stages:
        cuts = sorted(rng.sample(range(1, LAYERS), count - 1))
        layers = [b - a for a, b in zip([0] + cuts, cuts + [LAYERS])]
        replicas.append((rng.choice(MICRO_BATCH_SIZES), rng.randint(1, 4),
                         [(n, rng.choice(list(DEVICES))) for n in layers]))
    return replicas


def run(command, folder):
    done = subprocess.run(command, cwd=folder, env=dict(os.environ, **MPI_ENVIRONMENT),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"own_runs.py: {' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def mpirun(ranks, program):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), program]


def train_flags(layout):
    flags = ["--use-tp-pp-dp-mapping", "--micro-batch-size-per-dp"]
    for size, _, _ in layout:
        flags += ["1", str(size)]
    flags += ["--num-micro-batches-per-dp"]
    for _, count, _ in layout:
        flags += ["1", str(count)]
    for _, _, stages in layout:
        flags += ["--hetero-pipeline-stages", str(len(stages))] + [str(layers) for layers, _ in stages]
    flags += ["--slow-down"]
    for _, _, stages in layout:
        for _, device in stages:
            flags += ["1", str(DEVICES[device])]
    return flags


def plan_toml(layout, bucket_bytes):
    text = f'schedule = "1f1b"\nreduction = "hdt"\nbucket_bytes = {bucket_bytes}\n'
    for size, count, stages in layout:
        text += f"\n[[replica]]\nmicro_batch_size = {size}\nmicro_batches = {count}\n"
        for layers, device in stages:
            text += f'  [[replica.stage]]\n  layers = {layers}\n  node = "{device}"\n'
    return text


def cluster_toml():
    return "\n".join(f'[[node]]\nname = "{device}"\ndevice = "{device}"\ndevices = {MOST_RANKS}\n'
                     f"memory_bytes = {1 << 34}\n" for device in DEVICES)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(text)


def measure_profile(folder, programs):
    run(mpirun(2, programs + "/hdt-train") + MODEL + ["--profile", folder, "--profile-device"] +
        [f"{name}:{factor}" for name, factor in DEVICES.items()] +
        ["--profile-micro-batch-sizes"] + [str(size) for size in MICRO_BATCH_SIZES], folder)
    with open(os.path.join(folder, "profile.toml"), "rb") as profile:
        return tomllib.load(profile)


def median_profile(profiles):
    """The same tables with the median of each number: profiles of one machine at several times."""
    def medians(values):
        first = values[0]
        if isinstance(first, list):
            return [medians(list(each)) for each in zip(*values)]
        return statistics.median(values) if isinstance(first, float) else first
    text = 'name = "own-runs"\n'
    for table in ("compute", "link"):
        for entries in zip(*(profile[table] for profile in profiles)):
            text += f"\n[[{table}]]\n" + "".join(
                f"{field} = {json.dumps(medians([entry[field] for entry in entries]))}\n"
                for field in entries[0])
    return text


def step_seconds(folder, programs, layout, arguments):
    ranks = sum(len(stages) for _, _, stages in layout)
    log = os.path.join(folder, "steps.jsonl")
    run(mpirun(ranks, programs + "/hdt-train") + MODEL + train_flags(layout) +
        ["--text", arguments.text, "--train-iters", str(arguments.steps), "--loss-log", log,
         "--ddp-bucket-size", str(arguments.bucket_elements)], folder)
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line)["seconds"] for line in lines][SKIPPED_STEPS:]


def settings(arguments):
    """What makes rounds comparable."""
    return {"seed": arguments.seed, "layouts": arguments.layouts,
            "bucket_elements": arguments.bucket_elements}


def measured_before(folder, arguments):
    """Step times by layout and profiles of earlier calls with this folder: rounds may be measured in
    several parts."""
    try:
        with open(os.path.join(folder, MEASURED), encoding="utf-8") as file:
            before = json.load(file)
    except FileNotFoundError:
        return [[] for _ in range(arguments.layouts)], []
    if before["settings"] != settings(arguments):
        sys.exit(f"own_runs.py: --folder: {folder} holds rounds of {before['settings']}; these are "
                 f"{settings(arguments)}")
    return before["times"], before["profiles"]


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="where plans, profile and figures go")
    parser.add_argument("--programs", default=root + "/build/release/bin",
                        help="folder of hdt-train and hdt-plan")
    parser.add_argument("--text", default=root + "/LICENSE", help="what to train on")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the layouts")
    parser.add_argument("--layouts", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6, help="of each run")
    parser.add_argument("--rounds", type=int, default=4, help="runs of each layout, one round after the "
                        "other; added to those that the folder has")
    parser.add_argument("--bucket-elements", type=int, default=1 << 18, help="--ddp-bucket-size of the runs")
    parser.add_argument("--mean-bar", type=float, default=5, help="percent")
    parser.add_argument("--worst-bar", type=float, default=12, help="percent")
    arguments = parser.parse_args()
    folder, programs = os.path.abspath(arguments.folder), os.path.abspath(arguments.programs)
    os.makedirs(folder, exist_ok=True)
    print(f"seed {arguments.seed}", flush=True)

    rng = random.Random(arguments.seed)
    layouts = [random_layout(rng) for _ in range(arguments.layouts)]
    write(folder, "cluster.toml", cluster_toml())
    times, profiles = measured_before(folder, arguments)
    for turn in range(arguments.rounds):
        profiles.append(measure_profile(folder, programs))
        for index, layout in enumerate(layouts):
            times[index] += step_seconds(folder, programs, layout, arguments)
            print(f"round {turn + 1}, layout {index + 1}: median {statistics.median(times[index]):.4f} s",
                  flush=True)
        profiles.append(measure_profile(folder, programs))
        write(folder, MEASURED,
              json.dumps({"settings": settings(arguments), "times": times, "profiles": profiles}))
    write(folder, "profile.toml", median_profile(profiles))
    runs = 'name = "own-runs"\n'
    for index, layout in enumerate(layouts):
        write(folder, f"layout-{index + 1}.toml", plan_toml(layout, 4 * arguments.bucket_elements))
        runs += (f'\n[[run]]\nname = "{index + 1}"\nplan = "layout-{index + 1}.toml"\n'
                 f"step_seconds = {statistics.median(times[index])}\n")
    write(folder, "runs.toml", runs)
    validate = [programs + "/hdt-plan", "validate", "runs.toml", "-p", "profile.toml", "-c", "cluster.toml",
                "-m", "model.toml"]
    print(run(validate + ["--calibrations", folder], folder), flush=True)
    figures = json.loads(run(validate + ["--json"], folder))[0]
    mean, worst = (100 * figures[f"profile_step_{which}_error"] for which in ("mean", "worst"))
    print(f"from the profile: mean {mean:.1f} % (bar {arguments.mean_bar}), worst {worst:.1f} % "
          f"(bar {arguments.worst_bar})")
    return 0 if mean <= arguments.mean_bar and worst <= arguments.worst_bar else 1


if __name__ == "__main__":
    sys.exit(main())
