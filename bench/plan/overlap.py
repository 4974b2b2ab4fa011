#!/usr/bin/env python3
"""overlap.py: whether communication is hidden where it takes as long as computation (needs root).

Two emulated devices (hdt-train --emulate) on two hosts with a NIC of a given rate each. Two rows: the
reduction of gradients under the backward (two replicas of one stage, one micro-batch), and transfers
between stages under computation (two stages, many micro-batches, --schedule). Each is run three times: with
computation that takes no time, which measures the communication; with messages of no size, which measures
the computation; and with both, once the computation is as long as the communication was. Prints the step
with both, divided by the longer one.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from emulated_runs import (cluster_toml, compute_toml, emulate, links_toml, measured,  # noqa: E402
                           model_toml, read_arguments, step_seconds, write)
from rails.two_hosts import Hosts  # noqa: E402

ROWS = ["gradients", "transfers"]
LAYERS = 64
MICRO_BATCHES = 64
MIB = 1 << 20
SMALL_BYTES = 64
NO_TIME = 1e-9
BUCKET_BYTES = MIB


def plan_toml(schedule, replicas, micro_batches, stages):
    """replicas: hosts of the stages of each."""
    text = f'schedule = "{schedule}"\nreduction = "hdt"\nbucket_bytes = {BUCKET_BYTES}\n'
    for hosts in replicas:
        text += f"\n[[replica]]\nmicro_batch_size = 1\nmicro_batches = {micro_batches}\n"
        for host in hosts:
            text += (f'  [[replica.stage]]\n  layers = {LAYERS // stages}\n  node = "host{host}"\n'
                     "  tensor_parallel = 1\n")
    return text


def run(arguments, hosts, folder, row, layer_seconds, size):
    """The median step. `layer_seconds`: of a layer's forward and backward together; all of it is backward
    where gradients are reduced, as only that can hide them. `size`: bytes that the row sends, a layer or a
    stage."""
    gradients = row == "gradients"
    forward, gradient = (NO_TIME, layer_seconds / 2) if gradients else (layer_seconds / 3, layer_seconds / 3)
    profile = 'name = "overlap"\n'
    for layer in ("embedding", "layer", "head"):
        idle = layer != "layer"
        profile += compute_toml("device", layer, 1, NO_TIME if idle else forward,
                                NO_TIME if idle else gradient, NO_TIME, SMALL_BYTES)
    write(folder, "profile.toml", profile + links_toml(["device"], arguments.rate * 10**6))
    write(folder, "cluster.toml", cluster_toml([("device", 1, 1 << 34)] * 2))
    parameters = {"embedding": SMALL_BYTES, "layer": size if gradients else SMALL_BYTES, "head": SMALL_BYTES}
    write(folder, "model.toml", model_toml(LAYERS, parameters, SMALL_BYTES if gradients else size))
    write(folder, "plan.toml", plan_toml("1f1b", [[0], [1]], 1, 1) if gradients
          else plan_toml(arguments.schedule, [[0, 1]], MICRO_BATCHES, 2))
    return step_seconds(emulate(hosts, folder, "plan.toml", arguments.steps))


def measure(arguments, folder):
    """By row: the step with both, divided by the longer one."""
    ratios = {}
    with Hosts(arguments.build, folder, 2, "1", f"{arguments.rate}m") as hosts:
        for row in arguments.rows:
            communication = run(arguments, hosts, folder, row, NO_TIME, MIB)
            # Activations go one way and gradients the other; both stages compute at once.
            layer_seconds = communication / (LAYERS if row == "gradients" else MICRO_BATCHES * LAYERS // 2)
            computation = run(arguments, hosts, folder, row, layer_seconds, SMALL_BYTES)
            both = run(arguments, hosts, folder, row, layer_seconds, MIB)
            ratios[row] = both / max(computation, communication)
            print(f"{row}: communication {communication:.4f} s, computation {computation:.4f} s, both "
                  f"{both:.4f} s: {ratios[row]:.3f} of the longer one", flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="eager-1f1b", help="of the two stages")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="what to measure")
    arguments = read_arguments(parser, steps=12, rate=500, bar=1.05)
    ratios = measured(measure, arguments)
    print(f"bar: {arguments.bar}")
    return 0 if all(ratio <= arguments.bar for ratio in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
