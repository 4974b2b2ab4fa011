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
import re
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from processes import clean_environment, end  # noqa: E402
from rails.two_hosts import Hosts, NotPossible  # noqa: E402

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
# The whole model on one device takes 5 times its 20 MiB of parameters and 18 units of activations.
SMALL_MEMORY_BYTES = 128 * MIB
PORT = 18771
RUN_LIMIT_S = 1200
RATIO = re.compile(r"acceleration ratio: ([\d.]+) %")


def profile_toml(rate_bits):
    text = 'name = "emulated"\n'
    for device, speed in SPEEDS.items():
        for size in MICRO_BATCH_SIZES:
            for layer in PARAMETER_BYTES:
                seconds = (LAYER_SECONDS if layer != "embedding" else LAYER_SECONDS / 20) * size / speed
                text += (f'\n[[compute]]\ndevice = "{device}"\nlayer = "{layer}"\ntensor_parallel = 1\n'
                         f"micro_batch_size = {size}\nforward = {seconds}\ninput_gradient = {seconds}\n"
                         f"weight_gradient = {seconds}\nupdate = {0.0005 / speed}\n"
                         f"activation_bytes = {ACTIVATION_BYTES * size}\n")
    rate = rate_bits / 8 * 0.95  # of frames, headers aside
    names = list(SPEEDS)
    for index, device in enumerate(names):
        text += (f'\n[[link]]\nfrom = "{device}"\nto = "{device}"\ninside = true\nlatency = 5e-5\n'
                 f"bandwidth = [[{MIB}, 2e9]]\n")
        for other in names[index:]:
            text += (f'\n[[link]]\nfrom = "{device}"\nto = "{other}"\nlatency = 2e-4\n'
                     f"bandwidth = [[{MIB}, {rate}]]\n")
    return text


def cluster_toml(slow_memory):
    return "\n".join(f'[[node]]\nname = "host{host}"\ndevice = "{device}"\ndevices = {DEVICES_A_HOST}\n'
                     f"memory_bytes = {slow_memory if device == 'slow' else MEMORY_BYTES}\n"
                     for host, device in enumerate(HOSTS))


def model_toml():
    text = f'name = "{LAYERS}-layers"\nstate_factor = 4\n'
    for layer, size in PARAMETER_BYTES.items():
        count = f"count = {LAYERS}\n" if layer == "layer" else ""
        text += (f'\n[[layer]]\nkind = "{layer}"\n{count}output_bytes = {OUTPUT_BYTES}\n'
                 f"parameter_bytes = [[1, {size}]]\n")
    return text


def nodes_of(plan_path):
    """The host of each rank."""
    with open(plan_path, "rb") as file:
        plan = tomllib.load(file)
    return [int(stage["node"].removeprefix("host")) for replica in plan["replica"]
            for stage in replica["stage"]]


def search(arguments, folder, plan, *more):
    command = [os.path.join(arguments.build, "bin", "hdt-plan"), "search", "cluster.toml", "model.toml", "-p",
               "profile.toml", "--global-batch-size", str(arguments.samples), "--output", plan, *more]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_LIMIT_S,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"emulated_devices.py: {' '.join(command)}: {done.stderr.strip()}")


def emulate(arguments, hosts, folder, plan):
    """The output of rank 0."""
    nodes = nodes_of(os.path.join(folder, plan))
    ranks = []
    for rank, host in enumerate(nodes):
        environment = clean_environment(HDT_RANK=str(rank), HDT_SIZE=str(len(nodes)),
                                        HDT_SOCKET=hosts.socket(host),
                                        HDT_RENDEZVOUS=f"{hosts.address()}:{PORT}", OMP_NUM_THREADS="1")
        ranks.append(hosts.on(host, os.path.join(hosts.bin, "hdt-train"), "--emulate",
                              os.path.join(folder, "profile.toml"), "--plan", os.path.join(folder, plan),
                              "--train-iters", str(arguments.steps), "--log-interval", "1",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment))
    try:
        output = ranks[0].communicate(timeout=RUN_LIMIT_S)[0]
        rest = [process.communicate(timeout=RUN_LIMIT_S)[0] for process in ranks[1:]]
    finally:
        end(ranks)
    if any(process.returncode != 0 for process in ranks):
        sys.exit("emulated_devices.py: a rank failed:\n" + output + "".join(rest))
    return output


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def measure(arguments, folder):
    """By row: the ratio in percent."""
    write(folder, "profile.toml", profile_toml(arguments.rate * 10**6))
    write(folder, "model.toml", model_toml())
    ratios = {}
    with Hosts(arguments.build, folder, len(HOSTS), "1", f"{arguments.rate}m") as hosts:
        for row, memory, flags in (("planned", MEMORY_BYTES, ()), ("equal", MEMORY_BYTES, ("--equal",)),
                                   ("small memory", SMALL_MEMORY_BYTES, ("--recompute",))):
            write(folder, "cluster.toml", cluster_toml(memory))
            plan = row.replace(" ", "-") + ".toml"
            search(arguments, folder, plan, *flags)
            output = emulate(arguments, hosts, folder, plan)
            print(f"--- {row}\n{output}", flush=True)
            ratios[row] = float(RATIO.search(output).group(1))
    return ratios


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(root, "build", "release"), help="what was built")
    parser.add_argument("--samples", type=int, default=256, help="of a step")
    parser.add_argument("--steps", type=int, default=5, help="of each run; the first two are not counted")
    parser.add_argument("--rate", type=int, default=1000, help="of each host's NIC, in Mbit/s")
    parser.add_argument("--bar", type=float, default=97.5, help="of the planned split, in percent")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    with tempfile.TemporaryDirectory(prefix="hdt-emulated-") as folder:
        try:
            ratios = measure(arguments, folder)
        except NotPossible as reason:
            sys.exit(f"emulated_devices.py: {reason}")
    for row, ratio in ratios.items():
        print(f"{row}: {ratio:.2f} %")
    print(f"bar of the planned split: {arguments.bar} %")
    return 0 if ratios["planned"] >= arguments.bar else 1


if __name__ == "__main__":
    sys.exit(main())
