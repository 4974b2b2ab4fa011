#!/usr/bin/env python3
"""own_runs.py: how far off hdt-plan is on this machine: random heterogeneous layouts are run and predicted.

It measures a profile with `hdt-train --profile`, several times between the rounds of runs, so that a machine
that is disturbed for a while disturbs both alike. It trains a small model in random layouts: unequal stages
and replicas, ranks of three speeds, every schedule, layers whose attention or all is recomputed, sharded
optimizer states. Then it compares the mean step of each layout with what `hdt-plan` predicts from the mean of
the profiles alone.

Slow devices are emulated (--slow-down): their ranks mostly sleep, so more ranks than cores do not get into
each other's way. A virtual processor may take twice as long for the same work from one moment to the next, as
its core has other work, too. A step is a sum of pieces of which some take longer, so means are compared, not
medians; and many short rounds meet more of such moments than a few long ones.

With --emulate ranks compute nothing. They wait for as long as the profile says. The comparison then shows how
well schedules, messages and reductions are predicted.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tomllib

import emulated_runs

DEVICES = {"swift": 6, "medium": 10, "slow": 16}  # times slower than a core of this machine
LAYERS = 6
MODEL = ["--num-layers", str(LAYERS), "--hidden-size", "128", "--num-attention-heads", "4",
         "--ffn-hidden-size", "352", "--seq-length", "64"]
MICRO_BATCH_SIZES = [1, 2]
SCHEDULES = ["1f1b", "gpipe", "zero-bubble", "eager-1f1b", "interleaved", "1f1b-lockstep"]
MOST_RANKS = 5
ROUNDS_OF_A_PROFILE = 2  # a profile takes as long as a round
SKIPPED_STEPS = 2  # buffers, caches and branch predictors warm up
RUN_TIMEOUT_S = 300
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


def can_be_chunked(layout):
    """Whether a replica can have two chunks on each of its stages."""
    return any(len(stages) > 1 and count % len(stages) == 0 and all(layers > 1 for layers, _ in stages)
               for _, count, stages in layout)


def random_run(rng, number):
    """A layout, and how it is run: (schedule, layers of each stage that are recomputed, whether states are
    sharded, whether attention alone is recomputed). `number` goes through the schedules, so that none is left
    out."""
    schedule = SCHEDULES[number % len(SCHEDULES)]
    layout = random_layout(rng)
    while schedule == "interleaved" and not can_be_chunked(layout):
        layout = random_layout(rng)
    # A plan with a backward in two parts recomputes nothing.
    recomputed = 0 if schedule == "zero-bubble" else rng.choice([0, 0, 1, 2])
    sharded = len(layout) > 1 and rng.random() < .5
    return layout, (schedule, recomputed, sharded, recomputed > 0 and number % 2 == 1)


def ranks_of(layout):
    return sum(len(stages) for _, _, stages in layout)


def run(command, folder, timeout_s=RUN_TIMEOUT_S):
    done = subprocess.run(command, cwd=folder, env=dict(os.environ, **MPI_ENVIRONMENT),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(command)}: exit status {done.returncode}\n"
                 f"{done.stdout}")
    return done.stdout


def mpirun(ranks, program):
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), program]


def train_flags(plan, layout):
    """`plan`: the path of its file."""
    flags = ["--plan", plan, "--slow-down"]
    for _, _, stages in layout:
        for _, device in stages:
            flags += ["1", str(DEVICES[device])]
    return flags


def plan_toml(layout, way, bucket_bytes=25 << 20):
    schedule, recomputed, sharded, attention = way
    text = f'schedule = "{schedule}"\nreduction = "hdt"\nbucket_bytes = {bucket_bytes}\n'
    text += f"use_distributed_optimizer = {'true' if sharded else 'false'}\n"
    for replica in layout:
        size, count, stages = replica
        chunked = schedule == "interleaved" and can_be_chunked([replica])
        text += f"\n[[replica]]\nmicro_batch_size = {size}\nmicro_batches = {count}\n"
        for layers, device in stages:
            chunks = [layers - layers // 2, layers // 2] if chunked else layers
            text += f'  [[replica.stage]]\n  layers = {chunks}\n  node = "{device}"\n'
            if recomputed:
                text += f"  recompute_layers = {min(recomputed, layers)}\n"
                text += f'  recompute_granularity = "{"selective" if attention else "full"}"\n'
    return text


def cluster_toml(devices=DEVICES):
    return "\n".join(f'[[node]]\nname = "{device}"\ndevice = "{device}"\ndevices = {MOST_RANKS}\n'
                     f"memory_bytes = {1 << 34}\n" for device in devices)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(text)


def measure_profile(folder, programs, model=MODEL, devices=DEVICES, sizes=MICRO_BATCH_SIZES):
    run(mpirun(2, programs + "/hdt-train") + model + ["--profile", folder, "--profile-device"] +
        [f"{name}:{factor}" for name, factor in devices.items()] +
        ["--profile-micro-batch-sizes"] + [str(size) for size in sizes], folder)
    with open(os.path.join(folder, "profile.toml"), "rb") as profile:
        return tomllib.load(profile)


def mean_profile(profiles):
    """The same tables with the mean of each number: profiles of one machine at several times."""
    def means(values):
        first = values[0]
        if isinstance(first, list):
            return [means(list(each)) for each in zip(*values)]
        return statistics.fmean(values) if isinstance(first, float) else first
    text = 'name = "own-runs"\n'
    for table in ("compute", "link"):
        for entries in zip(*(profile[table] for profile in profiles)):
            text += f"\n[[{table}]]\n" + "".join(
                f"{field} = {json.dumps(means([entry[field] for entry in entries]))}\n"
                for field in entries[0])
    return text


def plan_name(index):
    return f"layout-{index + 1}.toml"


def step_seconds(folder, programs, index, layout, arguments):
    log = os.path.join(folder, "steps.jsonl")
    run(mpirun(ranks_of(layout), programs + "/hdt-train") + MODEL +
        train_flags(os.path.join(folder, plan_name(index)), layout) +
        ["--text", arguments.text, "--train-iters", str(arguments.steps), "--loss-log", log], folder)
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line)["seconds"] for line in lines][SKIPPED_STEPS:]


def emulated_step_seconds(folder, programs, index, layout, arguments):
    """The median of a run that waits as profile.toml says, as a list of one."""
    said = run(mpirun(ranks_of(layout), programs + "/hdt-train") +
               ["--emulate", os.path.join(folder, "profile.toml"), "--plan",
                os.path.join(folder, plan_name(index)), "--train-iters", str(arguments.steps)], folder)
    return [emulated_runs.step_seconds(said)]


def settings(arguments):
    """What makes rounds comparable."""
    return {"seed": arguments.seed, "layouts": arguments.layouts,
            "bucket_elements": arguments.bucket_elements, "emulate": arguments.emulate}


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


def parser_of_runs(description):
    """The flags of every benchmark that runs random layouts."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="where plans, profile and figures go")
    parser.add_argument("--programs", default=root + "/build/release/bin",
                        help="folder of hdt-train and hdt-plan")
    parser.add_argument("--text", default=root + "/LICENSE", help="what to train on")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the layouts")
    parser.add_argument("--layouts", type=int, default=12)
    return parser


def parse(parser):
    """The flags, the folder, which exists then, and that of the programs. Prints the seed."""
    arguments = parser.parse_args()
    folder, programs = os.path.abspath(arguments.folder), os.path.abspath(arguments.programs)
    os.makedirs(folder, exist_ok=True)
    print(f"seed {arguments.seed}", flush=True)
    return arguments, folder, programs


def main():
    parser = parser_of_runs(__doc__)
    parser.add_argument("--steps", type=int, default=6, help="of each run")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each layout, one round after the "
                        "other; added to those that the folder has")
    parser.add_argument("--emulate", action="store_true", help="ranks wait as the profile says (hdt-train "
                        "--emulate), and compute nothing")
    parser.add_argument("--bucket-elements", type=int, default=1 << 18, help="of a bucket of gradients")
    parser.add_argument("--mean-bar", type=float, default=5, help="percent")
    parser.add_argument("--worst-bar", type=float, default=12, help="percent")
    arguments, folder, programs = parse(parser)

    rng = random.Random(arguments.seed)
    layouts, ways = zip(*(random_run(rng, number) for number in range(arguments.layouts)))
    write(folder, "cluster.toml", cluster_toml())
    for index, (layout, way) in enumerate(zip(layouts, ways)):
        write(folder, plan_name(index), plan_toml(layout, way, 4 * arguments.bucket_elements))
    times, profiles = measured_before(folder, arguments)
    take_steps = emulated_step_seconds if arguments.emulate else step_seconds
    if arguments.emulate:
        # All ranks wait for what one profile says, in every round.
        profiles = profiles or [measure_profile(folder, programs)]
        write(folder, "profile.toml", mean_profile(profiles))
    for turn in range(arguments.rounds):
        if not arguments.emulate and turn % ROUNDS_OF_A_PROFILE == 0:
            profiles.append(measure_profile(folder, programs))
        for index, layout in enumerate(layouts):
            schedule, recomputed, sharded, attention = ways[index]
            times[index] += take_steps(folder, programs, index, layout, arguments)
            print(f"round {turn + 1}, layout {index + 1} ({schedule}, {recomputed} recomputed"
                  f"{' (attention)' if attention else ''}{', sharded' if sharded else ''}): "
                  f"mean {statistics.fmean(times[index]):.4f} s", flush=True)
        if not arguments.emulate and turn + 1 == arguments.rounds:
            profiles.append(measure_profile(folder, programs))
        write(folder, MEASURED,
              json.dumps({"settings": settings(arguments), "times": times, "profiles": profiles}))
    write(folder, "profile.toml", mean_profile(profiles))
    runs = 'name = "own-runs"\n'
    for index in range(len(layouts)):
        runs += (f'\n[[run]]\nname = "{index + 1}"\nplan = "{plan_name(index)}"\n'
                 f"step_seconds = {statistics.fmean(times[index])}\n")
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
