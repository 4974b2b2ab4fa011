"""daemons.py: what tests of attacks share: daemons in a folder of their own, healthy jobs beside them whose
values are verified, attackers that are processes of a user who is nobody's relation, and the question whether
anybody else noticed."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import warnings

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "bench"))

from processes import clean_environment, end  # noqa: E402
from protocol import Client, empty  # noqa: E402

# The build whose programs are tested.
BUILD = os.path.join(ROOT, "build", "release") if len(sys.argv) < 2 else sys.argv.pop(1)
SKIPPED = 77


def _sanitizers():
    done = subprocess.run(["ldd", os.path.join(BUILD, "bin", "hdtcommd")], capture_output=True, text=True,
                          timeout=60, check=False)
    return {kind for kind in "at" if f"lib{kind}san" in done.stdout}


# Those of the build's daemon: "a" of addresses, "t" of threads.
SANITIZERS = _sanitizers()
# UCX's hooks in the end of a thread end the thread sanitizer: there nobody may have UCX loaded.
UNASKED = ("backends",) if "t" in SANITIZERS else ()
# So much more memory and time a sanitizer takes.
SLACK = 8 if SANITIZERS else 1
WAIT_S = 30  # for what happens within moments
NEIGHBOUR = 65533  # the user whose jobs run beside the attack
NOBODY = 65534  # the attacker
# The time of one attack; HDT_TEST_SECONDS makes it longer.
SECONDS = float(os.environ.get("HDT_TEST_SECONDS", "2"))
# Descriptors that come and go while nothing happens.
SPARE_DESCRIPTORS = 4


class Daemon:
    """An hdtcommd that ends with the context."""
    program = os.path.join("bin", "hdtcommd")

    def __init__(self, folder, name, address, *flags):
        self.name, self.address = name, address
        self.socket = os.path.join(folder, f"{name}.sock")
        self.log = os.path.join(folder, f"{name}.log")
        command = [os.path.join(BUILD, self.program), "--node.name", name, "--node.socket", self.socket,
                   "--nics.addresses", address, *flags]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=clean_environment())
        self.pid = self.process.pid

    def __enter__(self):
        wait_for(f"daemon {self.name} answers", self.answers, lambda: self.words())
        return self

    def __exit__(self, *_):
        end([self.process])

    def words(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def alive(self):
        return self.process.poll() is None

    def answers(self):
        if not self.alive():
            raise AssertionError(f"daemon {self.name} ended with {self.process.returncode}:\n{self.words()}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.socket) == 0

    def status(self):
        with Client(self.socket) as client:
            return json.loads(client.json(empty("Status"))[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def ports(self):
        """Where it listens for others, control and data ports alike: ["127.0.1.1:4000", ...]."""
        host = socket.inet_aton(self.address)[::-1].hex().upper()
        with open("/proc/net/tcp", encoding="ascii") as table:
            local = [line.split()[1].split(":") for line in table.readlines()[1:] if line.split()[3] == "0A"]
        return sorted(f"{self.address}:{int(port, 16)}" for at, port in local if at == host)

    def open_files(self):
        """What its descriptors are of, and how many of each kind."""
        kinds = {}
        for descriptor in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                kind = os.readlink(f"/proc/{self.pid}/fd/{descriptor}").split(":[")[0]
            except OSError:  # closed since
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
        return dict(sorted(kinds.items()))

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(what, done, more=lambda: ""):
    deadline = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {WAIT_S} s\n{more()}")
        time.sleep(0.02)


class Job:
    """Ranks of one job, `ranks` on each of `daemons`, of a user. They verify what they compute."""

    def __init__(self, daemons, ranks=2, user=NEIGHBOUR):
        self.processes = []
        for daemon in [daemon for daemon in daemons for _ in range(ranks)]:
            command = [os.path.join(BUILD, "tests", "neighbour"), str(user)]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                   text=True,
                                                   env=clean_environment(HDT_SOCKET=daemon.socket)))

    def tell(self, rank, line):
        self.processes[rank].stdin.write(line + "\n")
        self.processes[rank].stdin.flush()

    def hear(self, rank):
        line = self.processes[rank].stdout.readline()
        result, words = (line.rstrip("\n").split(" ", 1) + [""])[:2]
        if result != "0":
            raise AssertionError(f"rank {rank} of a neighbour's job: {line or 'ended'}")
        return words

    def join(self):
        self.tell(0, "id")
        name = self.hear(0)
        every = range(len(self.processes))
        for rank in every:
            self.tell(rank, f"join {len(self.processes)} {rank} {name}")
        for rank in every:
            self.hear(rank)

    def start(self):
        self.join()
        self.work()

    def work(self):
        every = range(len(self.processes))
        for rank in every:
            self.tell(rank, "work")
        for rank in every:
            self.hear(rank)

    def stop(self):
        """(rounds, longest pause in ms). Fails where a value was wrong, or a rank did not go on to the
        end."""
        every = range(len(self.processes))
        for rank in every:
            self.tell(rank, "stop")
        told = [[int(word) for word in self.hear(rank).split()] for rank in every]
        for rank, (_, wrong, _) in enumerate(told):
            if wrong:
                raise AssertionError(f"rank {rank} of a neighbour's job saw {wrong} wrong values")
        for rank in every:
            self.tell(rank, "destroy")
        for rank in every:
            self.hear(rank)
        return told[0][0], max(longest for _, _, longest in told)

    def end(self):
        for process in self.processes:
            process.kill()
            process.communicate()


class Attacker:
    """attack(*arguments) in a process of another user; result() gives what it returned, or raises what it
    raised."""

    def __init__(self, attack, *arguments, user=NOBODY):
        self.name = attack.__name__
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            self._run(writing, user, attack, arguments)
        os.close(writing)
        self.pipe = reading

    def _run(self, writing, user, attack, arguments):
        # sockets that an attack leaves open end with the process
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            outcome = (attack(*arguments), "")
        except BaseException:  # pylint: disable=broad-except
            outcome = (None, traceback.format_exc())
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(outcome, pipe)
        os._exit(0)  # what the parent has open is not this process's to close in order

    def result(self):
        with os.fdopen(self.pipe, "rb") as pipe:
            told = pipe.read()
        os.waitpid(self.pid, 0)
        self.pid = None
        if not told:
            raise AssertionError(f"the attacker {self.name} was killed")
        value, wrong = pickle.loads(told)
        if wrong:
            raise AssertionError(f"the attacker {self.name} failed itself:\n{wrong}")
        return value

    def said(self, pipe, size):
        """The first bytes that the attack writes to the pipe that it was given, which is closed here. If it
        ends without them, raises what it raised."""
        reading, writing = pipe
        os.close(writing)
        with os.fdopen(reading, "rb") as end:
            first = end.read(size)
        if len(first) < size:
            self.result()
            raise AssertionError(f"the attacker {self.name} has ended and said nothing")
        return first

    def kill(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.pipe)
            self.pid = None


class HostileTest(unittest.TestCase):
    """Two daemons, a job of one node (of `daemons[0]`) and one of both, and whoever attacks them."""
    flags = ()
    with_jobs = True
    daemon_class = Daemon

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(self.folder, 0o755)
        self.daemons = [self.enterContext(self.daemon_class(self.folder, name, address, *self.flags))
                        for name, address in (("first", "127.0.1.1"), ("second", "127.0.1.2"))]
        self.jobs = []
        for on in ([self.daemons[:1], self.daemons] if self.with_jobs else []):
            job = Job(on)
            self.addCleanup(job.end)
            job.start()
            self.jobs.append(job)
        self.before = [daemon.descriptors() for daemon in self.daemons]
        self.open_before = [daemon.open_files() for daemon in self.daemons]

    def attack(self, attack, *arguments):
        """What the attack returns, when it has ended."""
        return self.begin(attack, *arguments).result()

    def begin(self, attack, *arguments):
        attacker = Attacker(attack, *arguments)
        self.addCleanup(attacker.kill)
        return attacker

    def assert_unharmed(self):
        """After the attack: daemons answer, descriptors come back, jobs have gone on and computed what
        they should."""
        for daemon in self.daemons:
            self.assertTrue(daemon.alive(), daemon.words())
            self.assertEqual(daemon.status()["node"], daemon.name)
        for daemon, before, files in zip(self.daemons, self.before, self.open_before):
            wait_for(f"the descriptors of {daemon.name} come back to {before}",
                     lambda daemon=daemon, before=before: daemon.descriptors() <= before + SPARE_DESCRIPTORS,
                     lambda daemon=daemon, files=files: (f"it had {files}, has {daemon.open_files()}\n"
                                                         f"{daemon.words()[-4000:]}"))
        for job in self.jobs:
            rounds, _ = job.stop()
            self.assertGreater(rounds, 0)
        self.jobs = []


def main():
    if os.geteuid() != 0:
        print("skipped: the attacker and its victim are different users, which needs root")
        sys.exit(SKIPPED)
    unittest.main()
