"""wired_hosts.py: two hosts, as network namespaces, whose NICs a test names, gives addresses and joins."""

import json
import os
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import clean_environment, cluster_key, end  # noqa: E402

WAIT_S = 30
COMMAND_LIMIT_S = 60
PORT = 18731  # of rendezvous


class NotPossible(RuntimeError):
    """The machine does not permit network namespaces."""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    if done.returncode != 0:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Daemon:
    """A hdtcommd on a host, and ranks of it (tests/faults/communicator/rank_program.cc)."""

    def __init__(self, hosts, host, name, flags):
        self.hosts, self.host = hosts, host
        self.socket = os.path.join(hosts.folder, f"{len(hosts.daemons)}.sock")
        self.log_path = self.socket + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = hosts.on(host, hosts.program("bin", "hdtcommd"), "--node.name", name,
                                    "--node.socket", self.socket, "--security.cluster_key_file",
                                    cluster_key(hosts.folder), *flags, stdout=log, stderr=log)
        hosts.daemons.append(self)
        deadline = time.monotonic() + WAIT_S
        while " serves " not in self.log():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"hdtcommd does not start: {self.log()}")
            time.sleep(0.01)

    def log(self):
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def rails(self):
        """Those that are up, as (own address, the other one's), without ports."""
        command = [self.hosts.program("bin", "hdtctl"), "--socket", self.socket, "status", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True)
        return sorted((rail["local"].rsplit(":", 1)[0], rail["remote"].rsplit(":", 1)[0])
                      for peer in json.loads(done.stdout)["peers"] for rail in peer["rails"]
                      if rail["state"] == "up")

    def rank(self, number, ranks, rendezvous):
        environment = clean_environment(HDT_SOCKET=self.socket, HDT_RANK=str(number), HDT_SIZE=str(ranks),
                                        HDT_RENDEZVOUS=f"{rendezvous}:{PORT}", HDT_TIMEOUT_MS="30000")
        return self.hosts.on(self.host, self.hosts.program("tests", "rank_program"), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, env=environment)


class WiredHosts:
    """For a block."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.names = [f"paths{os.getpid()}-{host}" for host in "ab"]
        self.daemons = []
        self.cables = 0
        self.to_come_up = ([], [])  # NICs, by host

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
        except (NotPossible, FileNotFoundError) as error:
            self.__exit__()
            raise NotPossible(str(error)) from None
        return self

    def __exit__(self, *_):
        end([daemon.process for daemon in self.daemons])
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_LIMIT_S,
                           check=False)

    def program(self, *path):
        return os.path.join(self.build, *path)

    def on(self, host, *command, **more):
        more.setdefault("env", clean_environment())
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], *command], text=True, **more)

    def ip(self, host, *words):
        run("ip", "-n", self.names[host], *words)

    def system(self, host, setting):
        run("ip", "netns", "exec", self.names[host], "sysctl", "-qw", setting)

    def up(self, host, nic, addresses):
        for address in addresses:
            self.ip(host, "addr", "add", address, "dev", nic, *(["nodad"] if ":" in address else []))
        self.ip(host, "link", "set", nic, "up")

    def await_carriers(self, host):
        """The system says of a NIC that it works a moment after it does."""
        deadline = time.monotonic() + WAIT_S
        while self.to_come_up[host]:
            nic = self.to_come_up[host][-1]
            state = json.loads(run("ip", "-n", self.names[host], "-j", "link", "show", "dev", nic))
            if state[0]["operstate"] == "UP":
                self.to_come_up[host].pop()
            elif time.monotonic() > deadline:
                raise RuntimeError(f"no carrier: {state}")
            else:
                time.sleep(0.02)

    def cable(self, nics, addresses, more_addresses=((), ())):
        """Between a NIC of the first host and one of the second."""
        self.ip(0, "link", "add", nics[0], "type", "veth", "peer", "name", nics[1], "netns", self.names[1])
        for host in range(2):
            self.up(host, nics[host], [addresses[host], *more_addresses[host]])
            self.to_come_up[host].append(nics[host])

    def island(self, host, nic, *addresses, carrier=True):
        """A NIC, with a carrier, of a network on which nobody else is."""
        self.cables += 1
        self.ip(host, "link", "add", nic, "type", "veth", "peer", "name", f"far{self.cables}")
        if carrier:
            self.ip(host, "link", "set", f"far{self.cables}", "up")
            self.to_come_up[host].append(nic)
        self.up(host, nic, addresses)

    def daemon(self, host, *flags, name=None):
        self.await_carriers(host)
        return Daemon(self, host, name or "ab"[host], flags)
