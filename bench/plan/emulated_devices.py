#!/usr/bin/env python3
"""emulated_devices.py: what a mixed cluster reaches of what its devices reach alone (needs root).

Eight devices of three speeds (1 : 0.6 : 0.35) on four hosts (tools/testhosts), each with a daemon and a NIC
of a given rate. The devices are emulated (hdt-train --emulate): their computation is a wait, their
communication is real. Runs the plan that `hdt-plan search` finds, the textbook's equal split, and the
planned one again where the slow devices lack the memory for the model. Prints the acceleration ratio of
each: the measured throughput divided by the sum of what the devices reach alone.
"""

import argparse
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from emulated_runs import (RUN_LIMIT_S, acceleration_ratio, cluster_toml, compute_toml, emulate,  # noqa: E402
                           links_toml, measured, model_toml, read_arguments, write)
from rails.two_hosts import Hosts  # noqa: E402

SPEEDS = {"fast": 1.0, "medium": 0.6, "slow": 0.35}
HOSTS = ["fast", "fast", "medium", "slow"]  # two devices on each
DEVICES_A_HOST = 2
LAYERS = 16
LAYER_SECONDS = 0.010  # forward of a layer for one sample on a fast device, and each of both gradients
MIB = 1 << 20
PARAMETER_BYTES = {"embedding": 2 * MIB, "layer": MIB, "head": 2 * MIB}
OUTPUT_BYTES = MIB // 8  # of a layer, for one sample
ACTIVATION_BYTES = 8 * MIB
MICRO_BATCH_SIZES = (1, 2)
MEMORY_BYTES = 1 << 34
# The whole model on one device takes 4 times its 20 MiB of parameters and 18 units of activations.
SMALL_MEMORY_BYTES = 128 * MIB


def profile_toml(rate_bits):
    text = 'name = "emulated"\n'
    for device, speed in SPEEDS.items():
        for size in MICRO_BATCH_SIZES:
            for layer in PARAMETER_BYTES:
                seconds = (LAYER_SECONDS if layer != "embedding" else LAYER_SECONDS / 20) * size / speed
                text += compute_toml(device, layer, size, seconds, seconds, 0.0005 / speed,
                                     ACTIVATION_BYTES * size)
    return text + links_toml(list(SPEEDS), rate_bits)


def search(arguments, folder, plan, *more):
    command = [os.path.join(arguments.build, "bin", "hdt-plan"), "search", "cluster.toml", "model.toml", "-p",
               "profile.toml", "--global-batch-size", str(arguments.samples), "--output", plan, *more]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_LIMIT_S,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"emulated_devices.py: {' '.join(command)}: {done.stderr.strip()}")


def measure(arguments, folder):
    """By row: the ratio in percent."""
    write(folder, "profile.toml", profile_toml(arguments.rate * 10**6))
    write(folder, "model.toml", model_toml(LAYERS, PARAMETER_BYTES, OUTPUT_BYTES))
    ratios = {}
    with Hosts(arguments.build, folder, len(HOSTS), "1", f"{arguments.rate}m") as hosts:
        for row, memory, flags in (("planned", MEMORY_BYTES, ()), ("equal", MEMORY_BYTES, ("--equal",)),
                                   ("small memory", SMALL_MEMORY_BYTES, ("--recompute",))):
            write(folder, "cluster.toml",
                  cluster_toml([(device, DEVICES_A_HOST, memory if device == "slow" else MEMORY_BYTES)
                                for device in HOSTS]))
            plan = row.replace(" ", "-") + ".toml"
            search(arguments, folder, plan, *flags)
            output = emulate(hosts, folder, plan, arguments.steps)
            print(f"--- {row}\n{output}", flush=True)
            ratios[row] = acceleration_ratio(output)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256, help="of a step")
    arguments = read_arguments(parser, steps=5, rate=1000, bar=97.5)
    ratios = measured(measure, arguments)
    for row, ratio in ratios.items():
        print(f"{row}: {ratio:.2f} %")
    print(f"bar of the planned split: {arguments.bar} %")
    return 0 if ratios["planned"] >= arguments.bar else 1


if __name__ == "__main__":
    sys.exit(main())
