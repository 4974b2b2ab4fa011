#!/usr/bin/env python3
"""collectives.py: how far off the daemons' predictions of collectives are: every algorithm at every size,
predicted by the figures that daemons measure when they start (`hdtctl explain`), and run.

Nodes are emulated by a hdtcommd each, on cores of their own where there are enough: on loopback addresses,
where the processors are the network, with --rate on hosts (tools/testhosts, root) with a NIC each, or with
--rdma between the two hosts of tools/rdma-vm. A round starts daemons, which measure, and runs every algorithm
on them (`hdtctl class set`): each call is held against the figures of the daemons that ran it, as the same
daemons, started again, may be faster or slower by half where the machine is a virtual one. Times are medians
of calls; an error is the median over rounds.

Regret: how much longer the algorithm that the tuner picks takes, as measured, than the fastest one as
measured. Beside it stands the same of the choice by the size of a chunk, which needs no measurements."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True

from processes import clean_environment, end  # noqa: E402
from rails.two_hosts import Namespaces, NotPossible  # noqa: E402

ALGORITHMS = ("ring", "halving_doubling", "recursive_doubling", "double_binary_tree", "bruck", "pairwise",
              "two_level")
COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "broadcast", "reduce")
BLOCKS = ("reduce_scatter", "allgather")  # hdtctl's SIZE is a rank's block, hdt-commbench's all of them
SMALLEST, LARGEST = 8, 64 << 20
# Calls of at most so many bytes are run so often a round.
ITERATIONS = ((64 << 10, 200), (1 << 20, 60), (8 << 20, 15), (LARGEST, 5))
START_LIMIT_S = 20
RUN_LIMIT_S = 280


def cores_of(node, nodes):
    """Nodes share no core where there is one for each."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // nodes
    return set(cores[node * each:(node + 1) * each]) if each else {cores[node % len(cores)]}


def start(command, cores, environment, **pipes):
    return subprocess.Popen(command, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, cores),
                            **pipes)


class Loopback:
    """Where the nodes are: addresses of this machine."""

    rendezvous = "127.0.1.1"

    def __init__(self, nodes):
        self.nodes = nodes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start(self, node, command, environment, **pipes):
        return start(command, cores_of(node, self.nodes), environment, **pipes)

    def nic_flags(self, node):
        return ["--nics.addresses", f"127.0.1.{node + 1}", "--nics.port", "0"]


class OnHosts(Namespaces):
    """Hosts with a NIC each."""

    def __init__(self, nodes, rate):
        super().__init__(nodes, "1", rate)

    def __enter__(self):
        super().__enter__()
        self.rendezvous = self.address()
        return self

    def start(self, node, command, environment, **pipes):
        return start(self.command_on(node, command), cores_of(node, self.count), environment, **pipes)

    def nic_flags(self, _node):
        # The flags for a network that the hosts have to themselves.
        return ["--nics.use", "eth*", "--security.insecure", "true"]


class OverRdma:
    """The two hosts of the virtual machine of tools/rdma-vm, with a soft-RoCE device each."""

    rendezvous = "10.77.0.1"

    def __enter__(self):
        if os.environ.get("RDMA_VM_LINK") != "veth":
            raise NotPossible("this is not the virtual machine of tools/rdma-vm with one guest")
        return self

    def __exit__(self, *_):
        pass

    def start(self, node, command, environment, **pipes):
        return start(["as-host", str(node), *command], cores_of(node, 2),
                     environment | {"HDT_CLASS_DEFAULT_BACKENDS": "rdma"}, **pipes)

    def nic_flags(self, node):
        return ["--nics.addresses", f"10.77.0.{node + 1}", "--security.insecure", "true"]


class Daemons:
    """A hdtcommd for each node."""

    def __init__(self, options, place, folder):
        self.options, self.place, self.folder = options, place, folder
        self.processes = []
        for node in range(options.nodes):
            state = os.path.join(folder, f"state-{node}")
            os.makedirs(state)
            command = [options.bin + "/hdtcommd", "--node.name", f"n{node}", "--node.socket",
                       self.socket(node),
                       "--node.state_folder", state, *place.nic_flags(node), "--log.level", "error"]
            self.processes.append(place.start(node, command, clean_environment()))
        deadline = time.monotonic() + START_LIMIT_S
        while not all(os.path.exists(self.socket(node)) for node in range(options.nodes)):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                end(self.processes)
                raise RuntimeError(f"a hdtcommd did not start within {START_LIMIT_S} s")
            time.sleep(0.01)

    def socket(self, node):
        return os.path.join(self.folder, f"{node}.sock")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.processes)

    def ask(self, node, *words):
        done = subprocess.run([self.options.bin + "/hdtctl", "--socket", self.socket(node), *words, "--json"],
                              capture_output=True, text=True, check=False, timeout=START_LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"hdtctl {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def choose(self, algorithm):
        """For groups that are made from now on."""
        for node in range(self.options.nodes):
            self.ask(node, "class", "set", "default", f"algorithm={algorithm}")

    def figures(self):
        """The measurements of node 0, when it has had a group."""
        with open(os.path.join(self.folder, "state-0", "measurements.json"), encoding="utf-8") as file:
            return json.load(file)

    def ranks(self, command, **pipes):
        port = 20000 + os.getpid() % 20000
        started = []
        for rank in range(self.options.nodes):
            environment = clean_environment(HDT_RANK=str(rank), HDT_SIZE=str(self.options.nodes),
                                            HDT_RENDEZVOUS=f"{self.place.rendezvous}:{port}",
                                            HDT_SOCKET=self.socket(rank))
            started.append(self.place.start(rank, command, environment, **pipes))
        return started

    def explain(self, calls):
        """The answers of node 0 for each (collective, bytes), while a group of all nodes is there."""
        ranks = self.ranks([self.options.bin + "/hdt-bench-groups"], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        try:
            for rank in ranks:
                if rank.stdout.readline() != "ready\n":
                    raise RuntimeError("a rank did not join its group")
            answers = {}
            for what, size in calls:
                asked = size // self.options.nodes if what in BLOCKS else size
                answers[what, size] = self.ask(0, "explain", what, str(asked), "--group", "default")
            return answers
        finally:
            for rank in ranks:
                rank.stdin.close()
            end_quietly(ranks)

    def measure(self, what, sizes, iterations):
        """Median seconds of a call, by size."""
        report = os.path.join(self.folder, "report.json")
        command = [self.options.bin + "/hdt-commbench", what, "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f",
                   str(self.options.factor), "-n", str(iterations), "-w", "3", "-c", "0", "--memory", "hdt",
                   "--json", report]
        ranks = self.ranks(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
        try:
            errors = [rank.communicate(timeout=RUN_LIMIT_S)[1] for rank in ranks]
        finally:
            end(ranks)
        for rank, error in zip(ranks, errors):
            if rank.returncode != 0:
                raise RuntimeError(f"hdt-commbench {what}: {error.strip()}")
        with open(report, encoding="utf-8") as file:
            return {row["bytes"]: row["out_of_place"]["p50_us"] * 1e-6 for row in json.load(file)["rows"]}


def end_quietly(ranks):
    for rank in ranks:
        try:
            rank.wait(10)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
        rank.stdout.close()


def all_sizes(options):
    sizes = [SMALLEST]
    while sizes[-1] * options.factor <= options.largest:
        sizes.append(sizes[-1] * options.factor)
    if sizes[-1] < options.largest == LARGEST:
        sizes.append(LARGEST)
    # Blocks of whole elements of every node.
    return [size for size in sizes if size >= 4 * options.nodes]


def bands(sizes, factor):
    """(sizes, iterations): cut where the number of iterations changes, or the distance of sizes."""
    found = []
    for size in sizes:
        iterations = next(count for limit, count in ITERATIONS if size <= limit)
        if found and found[-1][1] == iterations and size == found[-1][0][-1] * factor:
            found[-1][0].append(size)
        else:
            found.append(([size], iterations))
    return found


def seconds_predicted(answer, algorithm):
    """None: it is not ranked, as one with the same steps is, or as nothing is measured."""
    return next((each.get("predicted_s") for each in answer["candidates"] if each["algorithm"] == algorithm),
                None)


def calls_of_algorithms(options, place, folder, calls):
    """Which calls are run with each algorithm: those that take it and for which it is predicted. The same
    whatever is measured."""
    runs = {}
    with Daemons(options, place, folder) as daemons:
        for algorithm in ALGORITHMS:
            daemons.choose(algorithm)
            answers = daemons.explain(calls)
            runs[algorithm] = [call for call in calls
                               if answers[call]["picked"] == algorithm
                               and seconds_predicted(answers[call], algorithm)]
    return runs


def run_round(options, place, folder, calls, runs, order):
    """The tuner's answer for each call, the seconds of each call by algorithm, and the figures."""
    jobs = [(algorithm, what, band, iterations) for algorithm, wanted in runs.items()
            for what in options.collectives
            for band, iterations in bands([size for name, size in wanted if name == what], options.factor)]
    order.shuffle(jobs)  # what comes first after a start is slower
    with Daemons(options, place, folder) as daemons:
        answers = daemons.explain(calls)
        times = {call: {} for call in calls}
        for algorithm, what, band, iterations in jobs:
            daemons.choose(algorithm)
            for size, seconds in daemons.measure(what, band, iterations).items():
                times[what, size][algorithm] = seconds
        return answers, times, daemons.figures()


def regrets_of(rounds, choice):
    """(regret, call) of each call with a choice, the mean over rounds; `choice` is the name of the choice in
    the daemons' answers. The time of an algorithm is its median over rounds: in one round the fastest of
    several is the luckiest, too."""
    found = []
    for call, by_algorithm in rounds[0][1].items():
        if len(by_algorithm) < 2:
            continue
        took = {algorithm: statistics.median(times[call][algorithm] for _, times, _ in rounds)
                for algorithm in by_algorithm}
        picked = [answers[call][choice] for answers, _, _ in rounds]
        if all(algorithm in took for algorithm in picked):
            found.append((statistics.mean(took[algorithm] for algorithm in picked) / min(took.values()) - 1,
                          call))
    return found


def report(options, rounds):
    rows = []
    print(f"{'collective':<15}{'bytes':>10}  "
          f"{'algorithm':<20}{'measured us':>12}{'predicted us':>13}{'error %':>9}")
    first_answers, first_times, _ = rounds[0]
    points = [(call, algorithm) for call, by_algorithm in first_times.items() for algorithm in by_algorithm]
    for call, algorithm in points:
        what, size = call
        pairs = [(times[call][algorithm], seconds_predicted(answers[call], algorithm)) 
                 for answers, times, _ in rounds]
        seconds, predicted = (statistics.median(values) for values in zip(*pairs))
        error = 100 * (statistics.median(said / took for took, said in pairs) - 1)
        picked = first_answers[call]["picked"] == algorithm
        rows.append({"collective": what, "bytes": size, "algorithm": algorithm, "measured_s": seconds,
                     "predicted_s": predicted, "error_percent": error, "picked": picked})
        print(f"{what:<15}{size:>10}  "
              f"{algorithm + (' *' if picked else ''):<20}{1e6 * seconds:>12.1f}{1e6 * predicted:>13.1f}"
              f"{error:>+9.1f}")
    regrets, unmeasured = regrets_of(rounds, "picked"), regrets_of(rounds, "by_chunk_size")
    within = sum(abs(row["error_percent"]) <= options.within for row in rows)
    share = 100 * within / len(rows)
    # The mean over the calls: what choosing by prediction costs altogether.
    regret = 100 * statistics.mean(each for each, _ in regrets) if regrets else 0.0
    worst, where = max(regrets, default=(0.0, ("", 0)))
    verdicts = [("within", share >= options.share), ("regret", regret <= options.regret)]
    print(f"\n* what the tuner picks in the first round\n{options.nodes} nodes, {len(rows)} points: "
          f"{share:.1f} % within {options.within} % "
          f"(bar {options.share} %): {'met' if verdicts[0][1] else 'missed'}")
    print(f"regret of the tuner over {len(regrets)} calls with a choice: mean {regret:.1f} % (bar "
          f"{options.regret} %): "
          f"{'met' if verdicts[1][1] else 'missed'}; worst {100 * worst:.1f} % {where[0]} {where[1]}")
    # Over the calls for which both are known, how long those of the one choice take beside the other's.
    tuned, sized = ({call: 1 + each for each, call in found} for found in (regrets, unmeasured))
    ratios = {call: sized[call] / tuned[call] for call in tuned if call in sized}
    differ = sorted(((ratio, call) for call, ratio in ratios.items() if ratio != 1), reverse=True)
    without = 100 * statistics.mean(each for each, _ in unmeasured) if unmeasured else 0.0
    mean_ratio = statistics.geometric_mean(ratios.values()) if ratios else 1.0
    print(f"regret of the choice by the size of a chunk, without measurements, over {len(unmeasured)} calls: "
          f"mean {without:.1f} %; its calls take {mean_ratio:.3f} times as long as the tuner's "
          f"(geometric mean), {len(differ)} of {len(ratios)} differ:")
    for ratio, (what, size) in differ:
        print(f"  {ratio:6.2f} {what} {size}")
    return {"nodes": options.nodes, "rows": rows, "share_percent": share, "regret_percent": regret,
            "worst_regret_percent": 100 * worst, "unmeasured_regret_percent": without,
            "unmeasured_times": mean_ratio}, all(met for _, met in verdicts)


def parse(arguments):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(prog="collectives.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="examples:\n  bench/plan/collectives.py --nodes 4 --json "
                                            "points.json\n"
                                            "  bench/plan/collectives.py --nodes 4 --rate 500m\n"
                                            "  tools/rdma-vm --timeout 1800 -- bench/plan/collectives.py "
                                            "--rdma --largest 1048576\n\n"
                                            "Exit code: 0 the bars are met, 1 one is missed or something "
                                            "failed, 2 wrong usage.")
    parser.add_argument("--nodes", type=int, default=2, help="emulated nodes of one rank each (default 2)")
    parser.add_argument("--rate", help="of a NIC for each node, such as 500m or 1g (default: loopback)")
    parser.add_argument("--rdma", action="store_true", help="in the virtual machine of tools/rdma-vm")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES),
                        help="comma list (default: all that are tuned)")
    parser.add_argument("--factor", type=int, default=8, help="between sizes (default 8)")
    parser.add_argument("--largest", type=int, default=LARGEST, help="bytes (default 64 MiB)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1,
                        help="of the order in which a round runs the algorithms (default 1)")
    parser.add_argument("--programs", default=root + "/build/release/bin",
                        help="folder of hdtcommd, hdtctl, hdt-commbench")
    parser.add_argument("--within", type=float, default=15, help="percent of the measured time")
    parser.add_argument("--share", type=float, default=90, help="percent of the points that must be within")
    parser.add_argument("--regret", type=float, default=5, help="percent")
    parser.add_argument("--json", metavar="FILE", help="write all points and the figures, too")
    options = parser.parse_args(arguments)
    options.collectives = options.collectives.split(",")
    for what in options.collectives:
        if what not in COLLECTIVES:
            parser.error(f"--collectives: '{what}' given; expected some of {', '.join(COLLECTIVES)}")
    if options.rdma and (options.rate or options.nodes != 2):
        parser.error("--rdma is between 2 nodes, without --rate")
    if (options.nodes < 2 or options.factor < 2 or options.rounds < 1
            or not SMALLEST <= options.largest <= LARGEST):
        parser.error("--nodes and --factor must be at least 2, --rounds at least 1, --largest from 8 to "
                     "67108864")
    options.bin = os.path.abspath(options.programs)
    for program in ("hdtcommd", "hdtctl", "hdt-commbench", "hdt-bench-groups"):
        if not os.access(os.path.join(options.bin, program), os.X_OK):
            parser.error(f"--programs: no {program} in {options.bin}; build it first")
    return options


def main():
    options = parse(sys.argv[1:])
    if options.rdma:
        place = OverRdma()
    elif options.rate:
        place = OnHosts(options.nodes, options.rate)
    else:
        place = Loopback(options.nodes)
    calls = [(what, size) for what in options.collectives for size in all_sizes(options)]
    rounds = []
    order = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="hdt-collectives-") as folder, place:
        runs = calls_of_algorithms(options, place, folder, calls)
    if not any(runs.values()):
        sys.exit("collectives.py: no algorithm is predicted: the daemons have no figures")
    for turn in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="hdt-collectives-") as folder, place:
            rounds.append(run_round(options, place, folder, calls, runs, order))
        if not all(seconds_predicted(rounds[-1][0][call], algorithm) for algorithm in runs
                   for call in runs[algorithm]):
            sys.exit(f"collectives.py: nothing is predicted in round {turn + 1}: its daemons have no figures")
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    result, met = report(options, rounds)
    result["figures"] = [figures for _, _, figures in rounds]
    for figures in result["figures"]:
        print(f"figures of node 0: {json.dumps(figures)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0 if met else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotPossible as problem:
        sys.exit(f"collectives.py: hosts are not possible here: {problem}")
    except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
        sys.exit(f"collectives.py: {problem}")
