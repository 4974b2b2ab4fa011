#!/usr/bin/env python3
"""checkpoint.py: how long training stalls for a checkpoint. Trains a model of 309 million parameters on four
ranks of this machine, two unequal replicas of two unequal stages, with a save after each third step, and
prints the seconds of every step. A save is written by all ranks in the background, so the steps after it may
take longer, too; the figure is the most that any step takes longer than the median of those before the first
save. The machine needs 24 GB of memory, 8 GB of disk, and no other work."""

import argparse
import json
import os
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "plan"))

import own_runs  # noqa: E402  the path comes first

SAVE_INTERVAL = 3
BAR = 1.0  # steps
RUN_TIMEOUT_S = 1800
LAYERS = 24
# Replicas as own_runs.py has them: (micro-batch size, micro-batches, [(layers, node), ...]).
LAYOUT = [(1, 3, [(14, "first"), (10, "second")]), (1, 2, [(12, "first"), (12, "second")])]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=os.path.abspath, default=ROOT + "/build/release/bin",
                        help="folder of hdt-train")
    parser.add_argument("--folder", type=os.path.abspath,
                        help="where the checkpoints go (default: a temporary folder)")
    parser.add_argument("--hidden-size", type=int, default=1024, help="a multiple of 32 (default 1024)")
    parser.add_argument("--steps", type=int, default=9, help="default 9: two saves, and the steps after them")
    options = parser.parse_args()
    if options.hidden_size < 32 or options.hidden_size % 32 != 0:
        parser.error(f"--hidden-size {options.hidden_size} given; expected a multiple of 32")
    if options.steps <= SAVE_INTERVAL:
        parser.error(f"--steps {options.steps} given; expected more than {SAVE_INTERVAL}, one of which saves")
    return options


def step_seconds(options, folder):
    log = os.path.join(folder, "steps.jsonl")
    own_runs.write(folder, "plan.toml", own_runs.plan_toml(LAYOUT, ("1f1b", 0, False, False)))
    said = own_runs.run(own_runs.mpirun(own_runs.ranks_of(LAYOUT), options.programs + "/hdt-train") + [
        "--plan", os.path.join(folder, "plan.toml"), "--num-layers", str(LAYERS), "--hidden-size",
        str(options.hidden_size), "--num-attention-heads", "16", "--ffn-hidden-size",
        str(11 * options.hidden_size // 4), "--seq-length", "64", "--text", os.path.join(ROOT, "LICENSE"),
        "--train-iters", str(options.steps), "--loss-log", log, "--save", os.path.join(folder, "checkpoints"),
        "--save-interval", str(SAVE_INTERVAL), "--keep-checkpoints", "1"], folder, RUN_TIMEOUT_S)
    print(next(line for line in said.splitlines() if line.startswith("model: ")))
    with open(log, encoding="utf-8") as lines:
        return [json.loads(line)["seconds"] for line in lines]


def stall(seconds):
    """The median step before the first save, and the most that a step after it takes longer. The first step
    has opened connections and mapped memory."""
    usual = statistics.median(seconds[1:SAVE_INTERVAL])
    return usual, max(seconds[SAVE_INTERVAL:]) - usual


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="hdt-bench-checkpoint-", dir=options.folder) as folder:
        seconds = step_seconds(options, folder)
    for number, each in enumerate(seconds, 1):
        after = number > 1 and (number - 1) % SAVE_INTERVAL == 0
        print(f"step {number}: {each:.2f} s{' (the first after a save)' if after else ''}")
    usual, longer = stall(seconds)
    met = longer <= BAR * usual
    print(f"a step takes {usual:.2f} s, and {longer:.2f} s more at the most after a save: "
          f"{longer / usual:.2f} steps (bar {BAR}): {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
