#!/usr/bin/env python3
"""peak_memory.py: how far off hdt-plan is in the memory that a rank needs at its fullest moment.

Trains a model in random layouts (as own_runs.py, but each rank computes at its full speed), looks at the
memory of every rank ten times a second, and holds the fullest rank's peak against what `hdt-plan validate`
predicts with a calibration of the other layouts. The model is large enough that parameters, states and
activations are most of it. A rank's memory is what it has to itself and its part of what it shares with
others (Pss of /proc/PID/smaps_rollup), without files: those are the programs' code.
"""

import json
import os
import random
import re
import subprocess
import sys
import time

import own_runs

DEVICE = "core"
MODEL = ["--num-layers", str(own_runs.LAYERS), "--hidden-size", "384", "--num-attention-heads", "6",
         "--ffn-hidden-size", "1024", "--seq-length", "64"]
MICRO_BATCH_SIZES = [2, 4]
SAMPLE_S = 0.1
STEPS = 2  # in the second one all buffers are there
MEMORY_BAR = 10  # percent, mean
PSS = re.compile(r"^Pss_(?:Anon|Shmem): +(\d+) kB$", re.MULTILINE)


def on_one_device(layout):
    """The layout with larger micro-batches, and all of its stages on the same kind of device."""
    return [(MICRO_BATCH_SIZES[own_runs.MICRO_BATCH_SIZES.index(size)], count,
             [(layers, DEVICE) for layers, _ in stages]) for size, count, stages in layout]


def children_of(parent):
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def bytes_of(pid):
    """Of a process, without files; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return 1024 * sum(int(kib) for kib in PSS.findall(file.read()))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def peak_bytes(command, folder):
    """Runs mpirun. Returns the most memory that one of its processes had."""
    log = os.path.join(folder, "peak.log")
    with open(log, "w", encoding="utf-8") as out:
        running = subprocess.Popen(command, cwd=folder, env=dict(os.environ, **own_runs.MPI_ENVIRONMENT),
                                   stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + own_runs.RUN_TIMEOUT_S
    most = 0
    try:
        while running.poll() is None:
            if time.monotonic() > deadline:
                sys.exit(f"peak_memory.py: {' '.join(command)}: not done after {own_runs.RUN_TIMEOUT_S} s")
            most = max([most] + [bytes_of(pid) for pid in children_of(running.pid)])
            time.sleep(SAMPLE_S)
    finally:
        if running.poll() is None:
            running.terminate()
            running.wait()
    with open(log, encoding="utf-8") as file:
        said = file.read()
    if running.returncode != 0:
        sys.exit(f"peak_memory.py: {' '.join(command)}: exit status {running.returncode}\n{said}")
    return most


def main():
    arguments, folder, programs = own_runs.parse(own_runs.parser_of_runs(__doc__))

    rng = random.Random(arguments.seed)
    own_runs.write(folder, "cluster.toml", own_runs.cluster_toml([DEVICE]))
    own_runs.measure_profile(folder, programs, MODEL, {DEVICE: 1}, MICRO_BATCH_SIZES)
    runs = 'name = "peak-memory"\n'
    for index in range(arguments.layouts):
        layout, way = own_runs.random_run(rng, index)
        layout = on_one_device(layout)
        plan = own_runs.plan_name(index)
        own_runs.write(folder, plan, own_runs.plan_toml(layout, way, 1 << 20))
        begin = time.monotonic()
        most = peak_bytes(own_runs.mpirun(own_runs.ranks_of(layout), programs + "/hdt-train") + MODEL +
                          ["--plan", os.path.join(folder, plan), "--text", arguments.text, "--train-iters",
                           str(STEPS)], folder)
        # Steps are not what is measured: ranks share cores.
        seconds = (time.monotonic() - begin) / STEPS
        runs += (f'\n[[run]]\nname = "{index + 1}"\nplan = "{plan}"\nstep_seconds = {seconds}\n'
                 f"peak_memory_bytes = {most}\n")
        print(f"layout {index + 1} ({way[0]}): {most / (1 << 20):.0f} MiB", flush=True)
    own_runs.write(folder, "runs.toml", runs)
    validate = [programs + "/hdt-plan", "validate", "runs.toml", "-p", "profile.toml", "-c", "cluster.toml",
                "-m", "model.toml"]
    print(own_runs.run(validate + ["--calibrations", folder], folder), flush=True)
    figures = json.loads(own_runs.run(validate + ["--json"], folder))[0]
    mean, worst = (100 * figures[f"memory_{which}_error"] for which in ("mean", "worst"))
    print(f"peak memory with a calibration of the other layouts: mean {mean:.1f} % (bar {MEMORY_BAR}), worst "
          f"{worst:.1f} %")
    return 0 if mean <= MEMORY_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
