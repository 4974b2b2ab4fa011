"""leaks.py: jobs that end in every way, one after the other, over daemons that are never started again. What
these use in the end is no more than after the first jobs: descriptors, ports, threads, shared memory, memory,
as hdtctl status counts them.
"""

import signal
import subprocess
import time

from soak_parts import report as reports
from soak_parts.job import LIMIT_S, Failure, Job

PLACEMENT = [0, 0, 1, 1]
HOSTS = 2
# The groups of a form: one of all, which is split by node, across nodes, and once more as a whole: all, 2, 2,
# 1.
GROUPS_A_FORM = 6
ENDINGS = ("finalize", "exit", "kill", "stop-kill", "shrink")
# By then every ending has been there twice, and what a daemon keeps of what is over is full: records of 64
# ranks.
WARM_JOBS = 10
EXACT = ("descriptors", "ports_listening", "ports_connected", "threads", "shared_memories", "shared_bytes",
         "sessions", "groups")
# Memory that was freed is not given back to the last page.
MEMORY_PART = 0.02
MEMORY_BYTES = 2 << 20
SETTLED_S = 30
STILL = 6
SAY_EVERY_S = 10


class Leaks:
    def __init__(self, options, nodes):
        self.options, self.nodes = options, nodes
        self.begin = time.monotonic()
        self.said = 0.0
        self.jobs = self.groups = 0
        self.samples = []

    def say(self, what):
        print(f"{time.monotonic() - self.begin:8.1f} s  {what}", flush=True)

    def job(self, forms, ending):
        job = Job(self.nodes, f"job{self.jobs}", PLACEMENT, self.options.seed + self.jobs, lambda *_: None)
        try:
            for number in range(forms):
                job.form()
                self.groups += GROUPS_A_FORM
                job.run()
                job.await_steps(1)
                if number + 1 < forms or ending in ("finalize", "exit"):
                    job.pause()
            getattr(self, "_" + ending.replace("-", "_"))(job)
        finally:
            job.end()
        if wrong := job.totals()["mismatches"]:
            raise Failure(f"job {self.jobs} ({ending}): {wrong} results differ from what they must be")
        self.jobs += 1

    def _finalize(self, job):
        job.leave()

    def _exit(self, job):
        for rank in job.ranks:
            rank.say("exit")
        for rank in job.ranks:
            rank.process.wait(LIMIT_S)

    def _kill(self, job):
        job.kill(self.jobs % len(PLACEMENT))

    def _stop_kill(self, job):
        job.ranks[self.jobs % len(PLACEMENT)].process.send_signal(signal.SIGSTOP)
        job.kill(self.jobs % len(PLACEMENT))

    def _shrink(self, job):
        lost = self.jobs % len(PLACEMENT)
        job.kill(lost)
        job.shrink(lost)
        self.groups += GROUPS_A_FORM
        job.run()
        job.await_steps(1)
        job.pause()
        job.leave()

    def use(self):
        return [self.nodes.control(host, "status")["daemon"] for host in range(HOSTS)]

    def settled(self):
        """The use when it no longer falls: ends are heard of at once, but some things are kept for
        latecomers."""
        least, still = self.use(), 0
        deadline = time.monotonic() + SETTLED_S
        while still < STILL and time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.use()
            falls = any(now[host][what] < least[host][what] for host in range(HOSTS) for what in EXACT)
            grows = any(now[host][what] > least[host][what] for host in range(HOSTS) for what in EXACT)
            still = 0 if falls or grows else still + 1
            least = now
        return least

    def progress(self):
        if time.monotonic() - self.said < SAY_EVERY_S:
            return
        self.said = time.monotonic()
        use = self.use()
        self.samples.append({"groups": self.groups, "jobs": self.jobs, "use": use})
        self.say(f"{self.groups} groups, {self.jobs} jobs; "
                 + "; ".join(f"h{host}: {one['memory_bytes'] / 2**20:.1f} MiB, {one['descriptors']} "
                             f"descriptors"
                             for host, one in enumerate(use)))

    def run(self):
        for number in range(WARM_JOBS):
            self.job(1, ENDINGS[number % len(ENDINGS)])
        first = self.settled()
        self.say(f"after {self.groups} groups and {self.jobs} jobs: {first}")
        begun = self.groups
        while self.groups - begun < self.options.groups or self.jobs - WARM_JOBS < self.options.jobs:
            left = self.options.groups - (self.groups - begun)
            jobs_left = max(self.options.jobs - (self.jobs - WARM_JOBS), 1)
            forms = max(-(-left // (jobs_left * GROUPS_A_FORM)), 1)
            self.job(forms, ENDINGS[self.jobs % len(ENDINGS)])
            self.progress()
        last = self.settled()
        self.say(f"after {self.groups} groups and {self.jobs} jobs: {last}")
        return first, last


def growth(first, last):
    """The growth, in words."""
    grown = []
    for host, (before, after) in enumerate(zip(first, last)):
        for what in EXACT:
            if after[what] > before[what]:
                grown.append(f"h{host}: {what} from {before[what]} to {after[what]}")
        allowed = before["memory_bytes"] + max(before["memory_bytes"] * MEMORY_PART, MEMORY_BYTES)
        if after["memory_bytes"] > allowed:
            grown.append(f"h{host}: memory_bytes from {before['memory_bytes']} to {after['memory_bytes']}")
    return grown


def soak_for_leaks(options, nodes):
    run = Leaks(options, nodes)
    first, last, failure = [], [], None
    try:
        first, last = run.run()
        if grown := growth(first, last):
            failure = "it has not all come back: " + "; ".join(grown)
    except (Failure, RuntimeError, subprocess.SubprocessError) as error:
        failure = str(error)
        print(nodes.diagnosis(), flush=True)
    reports.write(options.report,
                  {"seed": options.seed, "groups": run.groups, "jobs": run.jobs, "failure": failure,
                                   "first": first, "last": last, "samples": run.samples})
    print(f"soak: {failure}" if failure else f"{run.groups} groups, {run.jobs} jobs: nothing has stayed "
                                             f"behind", flush=True)
    return 1 if failure else 0
