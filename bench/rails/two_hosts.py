"""two_hosts.py: hosts made by tools/testhosts with a hdtcommd on each, and ranks (hdt-bench-rails) on them,
one each."""

import json
import os
import re
import statistics
import subprocess
import time

from processes import LIMIT_S, clean_environment, cluster_key, end

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESTHOSTS = os.path.join(ROOT, "tools", "testhosts")
COMMAND_LIMIT_S = 600  # of what has no reason to wait: only a machine that stands still takes it long
PORT = 18520
PAYLOAD_SHARE = 1448 / 1514  # of a full frame


class NotPossible(RuntimeError):
    """The machine does not permit network namespaces."""


class Namespaces:
    """For a block: hosts and NICs."""

    def __init__(self, count, nics, rates):
        self.name = f"t{os.getpid()}"
        self.count = count
        self.nics, self.rates = nics, rates

    def testhosts(self, *words, check=True):
        done = subprocess.run([TESTHOSTS, "--name", self.name, *words], capture_output=True, text=True,
                              timeout=COMMAND_LIMIT_S, check=False)
        if check and done.returncode != 0:
            raise NotPossible(done.stderr.strip())
        return done.stdout

    def command_on(self, host, command):
        return [TESTHOSTS, "--name", self.name, "exec", str(host), "--", *command]

    def on(self, host, *command, stdin=subprocess.DEVNULL, **more):
        return subprocess.Popen(self.command_on(host, command), text=True, stdin=stdin, **more)

    def __enter__(self):
        self.testhosts("up", "--hosts", str(self.count), "--nics", self.nics, "--rates", self.rates)
        return self

    def __exit__(self, *_):
        self.testhosts("down", check=False)

    def link(self, host, nic, *action):
        self.testhosts("link", str(host), str(nic), *action)

    def address(self, host=0):
        """The address of a host's first NIC."""
        lines = [line.split() for line in self.testhosts("show").splitlines()]
        return next(line[3] for line in lines if line[1] == str(host))


class Hosts(Namespaces):
    """With a daemon on each."""

    def __init__(self, build, folder, count, nics, rates, flags=()):
        super().__init__(count, nics, rates)
        self.bin = os.path.join(build, "bin")
        self.folder = folder
        self.flags = list(flags)
        self.daemons = []

    def environment(self, _host):
        """The environment of a host's daemon."""
        return clean_environment()

    def start_daemon(self, host):
        with open(self.log(host), "a", encoding="utf-8") as log:
            return self.on(host, os.path.join(self.bin, "hdtcommd"), "--node.name", f"h{host}",
                           "--node.socket", self.socket(host), "--nics.use", "eth*",
                           "--security.cluster_key_file", cluster_key(self.folder), *self.flags, stdout=log,
                           stderr=log, env=self.environment(host))

    def await_serving(self, host, before=0):
        """Until the log says once more than `before` times that the daemon serves."""
        deadline = time.monotonic() + LIMIT_S
        while self.starts(host) <= before:
            if self.daemons[host].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"hdtcommd does not start: {self.read_log(host)}")
            time.sleep(0.01)

    def restart_daemon(self, host):
        """Kills it, and starts another one in its place."""
        before = self.starts(host)
        self.daemons[host].kill()
        self.daemons[host].wait()
        self.daemons[host] = self.start_daemon(host)
        self.await_serving(host, before)

    def starts(self, host):
        return self.read_log(host).count(" serves ")

    def __enter__(self):
        super().__enter__()
        try:
            for host in range(self.count):
                self.daemons.append(self.start_daemon(host))
            for host in range(self.count):
                self.await_serving(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(self.daemons)
        super().__exit__()

    def socket(self, host):
        return os.path.join(self.folder, f"{self.name}-{host}.sock")

    def log(self, host):
        return os.path.join(self.folder, f"{self.name}-{host}.log")

    def read_log(self, host):
        with open(self.log(host), encoding="utf-8") as file:
            return file.read()

    def ranks(self, *arguments, port=PORT, on=None):
        """Ranks on these hosts, or on all."""
        return Ranks(self, arguments, port, range(self.count) if on is None else on)

    def control(self, host, *words):
        """What hdtctl answers, as JSON."""
        done = subprocess.run([os.path.join(self.bin, "hdtctl"), "--socket", self.socket(host), *words,
                               "--json"],
                              capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True)
        return json.loads(done.stdout)

    def explained(self, size):
        """What hdtctl explains of an allreduce of that size, once the group has measured its links."""
        deadline = time.monotonic() + COMMAND_LIMIT_S
        while time.monotonic() < deadline:
            time.sleep(0.05)
            try:
                explained = self.control(0, "explain", "allreduce", size, "--group", "default")
            except subprocess.CalledProcessError:  # there is no such group yet
                continue
            if "predicted_for" in explained:
                return explained
        raise RuntimeError("the group has no measurements")


class TwoHosts(Hosts):
    """Two of them, between which pairs of ranks exchange."""

    def __init__(self, build, folder, nics, rates, flags=()):
        super().__init__(build, folder, 2, nics, rates, flags)

    def rails(self, host):
        """The rails of the host's only link, as hdtctl tells."""
        return self.control(host, "status")["peers"][0]["rails"]

    def sent_by_class(self, host):
        """Payload that the host has sent so far, by class."""
        sent = {}
        for peer in self.control(host, "status")["peers"]:
            sent[peer["class"]] = sent.get(peer["class"], 0) + sum(rail["bytes_out"]
                                                                   for rail in peer["rails"])
        return sent


class Ranks:
    """Running hdt-bench-rails, one on each host of `places`."""

    def __init__(self, hosts, arguments, port, places):
        self.processes = []
        for rank, host in enumerate(places):
            environment = clean_environment(HDT_RANK=str(rank), HDT_SIZE=str(len(places)),
                                            HDT_SOCKET=hosts.socket(host),
                                            HDT_RENDEZVOUS=f"{hosts.address(places[0])}:{port}")
            self.processes.append(hosts.on(host, os.path.join(hosts.bin, "hdt-bench-rails"),
                                           *map(str, arguments), stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, env=environment))
        for process in self.processes:
            if process.stdout.readline() != "ready\n":
                self.end()
                raise RuntimeError("a rank did not start: " + process.communicate()[1])

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()

    def end_soon(self):
        """In order, after the call under way."""
        self.processes[0].terminate()

    def results(self, limit_s):
        """Begin and end of every operation of rank 0, in seconds of the monotonic clock. Fails if anything
        was wrong."""
        operations = []
        for rank, process in enumerate(self.processes):
            try:
                output, errors = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                self.end()
                raise RuntimeError(f"rank {rank} hangs") from None
            last = output.splitlines()[-1] if output else ""
            if process.returncode != 0 or not last.endswith("wrong 0"):
                self.end()
                raise RuntimeError(f"rank {rank}: {last} {errors.strip()}")
            if rank == 0:
                operations = [tuple(int(word) / 1e9 for word in line.split()[1:])
                              for line in output.splitlines()
                              if line.startswith("op ")]
        return operations


def rates_of(hosts):
    """Bits a second of each NIC of each host."""
    rates = [[], []]
    for line in hosts.testhosts("show").splitlines():
        host, _, address, rate = re.fullmatch(r"host (\d+) (\S+) (\S+) (\d+) bit/s", line).groups()
        rates[int(host)].append((address, int(rate)))
    return rates


def bound_of(rates):
    """Payload bytes a second of the smaller side."""
    return min(sum(rate for _, rate in side) for side in rates) / 8 * PAYLOAD_SHARE


def pause_after(operations, moment, window_s):
    """How much longer than usual the slowest operation under way within the window after the moment took,
    in seconds."""
    usual = statistics.median(end - begin for begin, end in operations)
    slow = max((end - begin for begin, end in operations if end > moment and begin < moment + window_s),
               default=0)
    return max(0.0, slow - usual)
