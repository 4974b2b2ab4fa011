"""emulated_runs.py: plans on emulated devices (hdt-train --emulate) of hosts with real NICs and daemons."""

import os
import re
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from processes import clean_environment, end  # noqa: E402
from rails.two_hosts import NotPossible  # noqa: E402

PORT = 18771  # where ranks meet, on host 0
RUN_LIMIT_S = 1200
STEP = re.compile(r"^step: ([\d.e-]+) s, ", re.MULTILINE)
RATIO = re.compile(r"^acceleration ratio: ([\d.]+) %", re.MULTILINE)


def compute_toml(device, layer, micro_batch_size, forward, gradient, update, activation_bytes):
    """A table of a profile. Times are seconds; `gradient` is each of the backward's halves."""
    return (f'\n[[compute]]\ndevice = "{device}"\nlayer = "{layer}"\ntensor_parallel = 1\n'
            f"micro_batch_size = {micro_batch_size}\nforward = {forward}\ninput_gradient = {gradient}\n"
            f"weight_gradient = {gradient}\nupdate = {update}\nactivation_bytes = {activation_bytes}\n")


def links_toml(devices, rate_bits):
    """The links of a profile: inside hosts, and between any two over NICs of that rate."""
    text = ""
    rate = rate_bits / 8 * 0.95  # without the headers of frames
    for index, device in enumerate(devices):
        text += (f'\n[[link]]\nfrom = "{device}"\nto = "{device}"\ninside = true\nlatency = 5e-5\n'
                 "bandwidth = [[1048576, 2e9]]\n")
        for other in devices[index:]:
            text += (f'\n[[link]]\nfrom = "{device}"\nto = "{other}"\nlatency = 2e-4\n'
                     f"bandwidth = [[1048576, {rate}]]\n")
    return text


def cluster_toml(hosts):
    """hosts: (kind of device, number of devices, bytes of memory of each), in the order of the hosts."""
    return "\n".join(f'[[node]]\nname = "host{index}"\ndevice = "{device}"\ndevices = {count}\n'
                     f"memory_bytes = {memory}\n" for index, (device, count, memory) in enumerate(hosts))


def model_toml(layers, parameter_bytes, output_bytes):
    """parameter_bytes: of each kind, "embedding", "layer" and "head"."""
    text = f'name = "{layers}-layers"\nstate_factor = 4\n'
    for kind, size in parameter_bytes.items():
        count = f"count = {layers}\n" if kind == "layer" else ""
        text += (f'\n[[layer]]\nkind = "{kind}"\n{count}output_bytes = {output_bytes}\n'
                 f"parameter_bytes = [[1, {size}]]\n")
    return text


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def nodes_of(plan_path):
    """The host of each rank."""
    with open(plan_path, "rb") as file:
        plan = tomllib.load(file)
    return [int(stage["node"].removeprefix("host")) for replica in plan["replica"]
            for stage in replica["stage"]]


def emulate(hosts, folder, plan, steps):
    """Runs the plan on the hosts, with profile.toml, cluster.toml and model.toml of the folder. Returns what
    rank 0 prints; ends the program if a rank fails."""
    nodes = nodes_of(os.path.join(folder, plan))
    ranks = []
    for rank, host in enumerate(nodes):
        environment = clean_environment(HDT_RANK=str(rank), HDT_SIZE=str(len(nodes)),
                                        HDT_SOCKET=hosts.socket(host),
                                        HDT_RENDEZVOUS=f"{hosts.address()}:{PORT}", OMP_NUM_THREADS="1")
        ranks.append(hosts.on(host, os.path.join(hosts.bin, "hdt-train"), "--emulate",
                              os.path.join(folder, "profile.toml"), "--plan", os.path.join(folder, plan),
                              "--train-iters", str(steps), "--log-interval", "1",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment))
    try:
        output = ranks[0].communicate(timeout=RUN_LIMIT_S)[0]
        rest = [process.communicate(timeout=RUN_LIMIT_S)[0] for process in ranks[1:]]
    finally:
        end(ranks)
    if any(process.returncode != 0 for process in ranks):
        sys.exit("a rank failed:\n" + output + "".join(rest))
    return output


def step_seconds(output):
    return float(STEP.search(output).group(1))


def acceleration_ratio(output):
    """In percent."""
    return float(RATIO.search(output).group(1))


def measured(measure, arguments):
    """What measure(arguments, folder) gives, in a folder that is removed; ends the program where the machine
    permits no hosts."""
    with tempfile.TemporaryDirectory(prefix="hdt-emulated-") as folder:
        try:
            return measure(arguments, folder)
        except NotPossible as reason:
            sys.exit(f"{os.path.basename(sys.argv[0])}: {reason}")


def read_arguments(parser, steps, rate, bar):
    """Adds what both scripts have, with these defaults, and parses."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--build", default=os.path.join(root, "build", "release"), help="what was built")
    parser.add_argument("--steps", type=int, default=steps, help="of each run; the first two are not counted")
    parser.add_argument("--rate", type=int, default=rate, help="of each host's NIC, in Mbit/s")
    parser.add_argument("--bar", type=float, default=bar, help="of what is printed last")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    return arguments
