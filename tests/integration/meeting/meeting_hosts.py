"""meeting_hosts.py: hosts made of network namespaces, with addresses of either family, an /etc/hosts of their
own, and a daemon or none. Tests that use it are skipped where the machine does not permit namespaces."""

import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import clean_environment, cluster_key  # noqa: E402

BUILD = os.path.join(ROOT, "build", "release") if len(sys.argv) < 2 else sys.argv.pop(1)
PROGRAM = os.path.join(BUILD, "tests", "meeting_program")
SKIPPED = 77
READY_S = 60
# The launchers' variables that a test's own environment may have.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "XDG_RUNTIME_DIR")


def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=READY_S, check=False)


def must(command):
    done = shell(command)
    if done.returncode != 0:
        raise RuntimeError(f"'{command}' failed: {done.stderr.strip() or done.stdout.strip()}")


def environment(**more):
    variables = clean_environment(**more)
    for name in FOREIGN:
        if name not in more:
            variables.pop(name, None)
    return {name: value for name, value in variables.items()
            if not name.startswith(("OMPI_", "PMIX_", "SLURM_")) or name in more or name == "OMPI_MCA_rtc"}


def skip_without_namespaces():
    name = f"hdt-m-try-{os.getpid()}"
    if os.geteuid() != 0 or shell(f"ip netns add {name}").returncode != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    shell(f"ip netns del {name}")


class Rank:
    """A process of a job; result() waits for its end."""

    def __init__(self, process):
        self.process = process
        self.started = time.monotonic()

    def result(self, timeout_s=READY_S):
        """(code, wrong, rank, ranks, output, seconds); code None: it hangs, or ended without a result."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
            return None, 0, -1, 0, "HANGS\n" + output, time.monotonic() - self.started
        seconds = time.monotonic() - self.started
        lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
        if not lines:
            return None, 0, -1, 0, output, seconds
        code, wrong, rank, ranks = (int(word) for word in lines[-1].split()[1:])
        return code, wrong, rank, ranks, output, seconds


def start_daemon(wrapper, name, socket, log, *flags):
    """A hdtcommd that serves when this returns."""
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen([*wrapper, os.path.join(BUILD, "bin", "hdtcommd"), "--node.name", name,
                                    "--node.socket", socket, *flags], env=environment(), stdout=file,
                                   stderr=file)
    deadline = time.monotonic() + READY_S
    while not os.path.exists(socket):
        if process.poll() is not None or time.monotonic() > deadline:
            with open(log, encoding="utf-8", errors="replace") as file:
                raise RuntimeError(f"the daemon {name} did not start: {file.read()}")
        time.sleep(0.02)
    return process


class Network:
    """Two hosts, a and b, joined by a cable. families: "4", "6" or "46". `hosts`: the text of each host's
    /etc/hosts."""

    V4 = {"a": "10.9.0.1", "b": "10.9.0.2"}
    V6 = {"a": "fd00:9::1", "b": "fd00:9::2"}

    def __init__(self, name, families, hosts, daemons):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o755)
        self.spaces = {host: f"hdt-m{name}{host}-{os.getpid()}" for host in "ab"}
        self.daemons = daemons
        self.processes = []
        for host, space in self.spaces.items():
            must(f"ip netns add {space}")
            must(f"ip -n {space} link set lo up")
            self.write(f"hosts.{host}", hosts[host])
            os.mkdir(self.file(f"run.{host}"), 0o700)
        must(f"ip -n {self.spaces['a']} link add eth0 type veth peer name eth0 netns {self.spaces['b']}")
        for host, space in self.spaces.items():
            if "4" in families:
                must(f"ip -n {space} addr add {self.V4[host]}/24 dev eth0")
            if "6" in families:
                must(f"ip -n {space} addr add {self.V6[host]}/64 dev eth0 nodad")
            must(f"ip -n {space} link set eth0 up")
        self.cable("b", "up")
        if daemons:
            for host in "ab":
                self.start_daemon(host)

    def cable(self, host, state):
        """Returns when both ends have, or have lost, their carrier."""
        must(f"ip -n {self.spaces[host]} link set eth0 {state}")
        for space in self.spaces.values():
            deadline = time.monotonic() + READY_S
            while ("state UP" in shell(f"ip -n {space} link show dev eth0").stdout) != (state == "up"):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the cable is not {state}")
                time.sleep(0.01)

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="utf-8") as file:
            file.write(text)

    def command(self, host, *command):
        inner = f"mount --bind {self.file('hosts.' + host)} /etc/hosts; exec \"$@\""
        return ["ip", "netns", "exec", self.spaces[host], "unshare", "-m", "sh", "-c", inner, "sh", *command]

    def start_daemon(self, host, *flags):
        self.processes.append(start_daemon(self.command(host), host, self.socket(host),
                                           self.file(f"log.{host}"), *self.security(), *flags))

    def security(self):
        return ["--security.cluster_key_file", cluster_key(self.folder.name)]

    def socket(self, host):
        return self.file(f"{host}.sock")

    def variables(self, host, **more):
        """Those of a process on the host, beside the job's own."""
        own = {"HDT_SOCKET": self.socket(host)} if self.daemons else \
            {"XDG_RUNTIME_DIR": self.file(f"run.{host}"), "HDT_NODE_NAME": host}
        return environment(**own, **more)

    def rank(self, host, *arguments, **variables):
        return Rank(subprocess.Popen(self.command(host, PROGRAM, *arguments),
                                     env=self.variables(host, **variables),
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        for space in self.spaces.values():
            shell(f"ip netns del {space}")
        self.folder.cleanup()
