#!/usr/bin/env python3
"""characters.py: the validation loss of a small model of characters, trained by unequal replicas on two nodes
(loopback addresses of this machine): 4 layers, 4 heads, width 128, context 64, batches of 12, 2,000 steps, as
nanoGPT's example for a CPU. A replica of 3 + 1 layers takes 8 of the 12 samples, one of 2 + 2 layers 4, with
sharded optimizer states. nanoGPT names 1.88 for Tiny Shakespeare at this size, which is the bar for that
text; other texts have other losses."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench", "plan")]

import own_runs  # noqa: E402  the path comes first
from processes import clean_environment, end, free_port  # noqa: E402

BAR = 1.88
RUN_TIMEOUT_S = 3600
# Replicas as own_runs.py has them: (micro-batch size, micro-batches, [(layers, node), ...]).
LAYOUT = [(4, 2, [(3, "first"), (1, "second")]), (4, 1, [(2, "first"), (2, "second")])]
NODES = [0, 1, 0, 1]  # of each rank, as the plan has it


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=ROOT + "/build/release/bin", help="folder of hdt-train")
    parser.add_argument("--text", required=True, help="the file of Tiny Shakespeare")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--bar", type=float, default=BAR, help=f"validation loss (default {BAR})")
    options = parser.parse_args()
    if options.steps < 4:
        parser.error(f"--steps {options.steps} given; expected at least 4: the loss is validated four times")
    return options


def command(options, plan, log):
    return [options.programs + "/hdt-train", "--plan", plan, "--num-layers", "4", "--hidden-size", "128",
            "--num-attention-heads", "4", "--ffn-hidden-size", "352", "--seq-length", "64", "--text",
            options.text, "--split", "90,10,0", "--train-iters", str(options.steps), "--eval-interval",
            str(options.steps // 4), "--eval-iters", "50", "--lr", "1e-3", "--min-lr", "1e-4",
            "--lr-warmup-iters", str(min(100, options.steps // 4)), "--adam-beta2", "0.99", "--loss-log", log]


def validation_losses(options, folder):
    """(step, loss) of every validation."""
    plan, log = os.path.join(folder, "plan.toml"), os.path.join(folder, "steps.jsonl")
    own_runs.write(folder, "plan.toml", own_runs.plan_toml(LAYOUT, ("1f1b", 0, True, False)))
    meeting = f"127.0.0.1:{free_port('127.0.0.1')}"
    ranks = []
    try:
        for rank, node in enumerate(NODES):
            runtime = os.path.join(folder, f"node{node}")
            os.makedirs(runtime, mode=0o700, exist_ok=True)
            environment = clean_environment(
                HDT_RANK=str(rank), HDT_SIZE=str(len(NODES)), HDT_RENDEZVOUS=meeting, XDG_RUNTIME_DIR=runtime,
                HDT_NICS_ADDRESSES=f"127.0.0.{node + 1}", OMP_NUM_THREADS="1")
            ranks.append(subprocess.Popen(command(options, plan, log), env=environment,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True))
        said = [process.communicate(timeout=RUN_TIMEOUT_S)[0] for process in ranks]
    finally:
        end(ranks)
    if any(process.returncode != 0 for process in ranks):
        sys.exit("characters.py: a rank failed:\n" + "".join(said))
    with open(log, encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    return [(step["step"], step["validation_loss"]) for step in steps if "validation_loss" in step]


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="hdt-bench-characters-") as folder:
        losses = validation_losses(options, folder)
    for step, loss in losses:
        print(f"step {step}: validation loss {loss:.4f}")
    met = losses[-1][1] <= options.bar
    print(f"validation loss {losses[-1][1]:.4f} (bar {options.bar}): {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
