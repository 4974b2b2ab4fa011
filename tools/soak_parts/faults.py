"""faults.py: what a soak does to its nodes and ranks, at random."""

import signal
import subprocess
import threading
import time

# Actions of tools/testhosts that last until the NIC is put right.
RAIL_FAULTS = {"nic-down": ["down"], "blackhole": ["blackhole"], "no-address": ["noaddress"],
               "nic-slow": ["rate"]}
MOMENTS = ["reset", "damage", "rank-stop", "daemon-stop", "rank-kill", "daemon-kill", "daemon-kill-shared",
           "handover"]
KINDS = list(RAIL_FAULTS) + MOMENTS
# Faults of processes cost seconds, those of rails fractions of one.
WEIGHTS = {"reset": 2, "damage": 2, "nic-slow": 2, "nic-down": 3, "blackhole": 3, "no-address": 2}
HELD_S = (0.1, 2.5)
STOPPED_S = (0.1, 1.2)
AWAY_S = (0.0, 0.8)
LOOK_S = 0.02
DAMAGE_WAIT_S = 2
STEPS_AFTER = 2
STEPS_SHRUNK = 4


class Faults:
    def __init__(self, nodes, jobs, kinds, rate, chance, report, say):
        self.nodes, self.jobs, self.kinds, self.rate = nodes, jobs, kinds, rate
        self.chance, self.report, self.say = chance, report, say
        self.broken = {}  # (host, NIC) -> (kind, fault in the report, when it is put right)
        self.damaged = 0
        # NICs are put right whatever else is waited for meanwhile.
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.failed_to_heal = None
        self.healer = threading.Thread(target=self._heal_in_time)
        self.healer.start()

    def _heal_in_time(self):
        try:
            while not self.over.wait(LOOK_S):
                self._heal(time.monotonic())
        except (RuntimeError, subprocess.SubprocessError) as error:
            self.failed_to_heal = error

    def _heal(self, now):
        with self.lock:
            for (host, nic), (kind, fault, until) in list(self.broken.items()):
                if now >= until:
                    self.nodes.link(host, nic, *(["rate", self.rate] if kind == "nic-slow" else ["up"]))
                    del self.broken[host, nic]
                    self.report.over(fault, time.monotonic())

    def check(self):
        if self.failed_to_heal is not None:
            raise self.failed_to_heal

    def end(self):
        """No more faults; all NICs are put right."""
        self.over.set()
        self.healer.join()
        self.check()
        self._heal(float("inf"))

    def make_one(self):
        kind = self.chance.choices(self.kinds, [WEIGHTS.get(kind, 1) for kind in self.kinds])[0]
        if kind in RAIL_FAULTS:
            self._break(kind)
        else:
            getattr(self, "_" + kind.replace("-", "_"))(kind)

    def _break(self, kind):
        host, nic = self.chance.randrange(self.nodes.count), self.chance.randrange(self.nodes.nic_count)
        held_s = self.chance.uniform(*HELD_S)
        with self.lock:
            # Every pair of nodes keeps a rail: one of all first NICs, all second ones ... is whole.
            dead = {other for (_, other), (what, _, _) in self.broken.items() if what != "nic-slow"} | {nic}
            if (host, nic) in self.broken or len(dead) == self.nodes.nic_count:
                return
            now = time.monotonic()
            fault = self.report.begin(kind, now)
            self.nodes.link(host, nic, *RAIL_FAULTS[kind], *([self._tenth()] if kind == "nic-slow" else []))
            self.broken[host, nic] = (kind, fault, now + held_s)

    def _tenth(self):
        return f"{int(self.rate[:-1]) * 100}k"

    def _between_nodes(self):
        return sorted({host for job in self.jobs if len(set(job.placement)) > 1 for host in job.placement})

    def _reset(self, kind):
        host, nic = self.chance.choice(self._between_nodes()), self.chance.randrange(self.nodes.nic_count)
        with self.lock:
            if (host, nic) in self.broken:
                return
            fault = self.report.begin(kind, time.monotonic())
            self.nodes.link(host, nic, "reset")
            self.report.over(fault, time.monotonic())

    def _damage(self, kind):
        host, count = self.chance.choice(self._between_nodes()), self.chance.randint(1, 3)
        fault = self.report.begin(kind, time.monotonic())
        self.damaged += self.nodes.damage_reads(host, count, DAMAGE_WAIT_S)
        self.report.over(fault, time.monotonic())

    def _rank_stop(self, kind):
        job = self.chance.choice(self.jobs)
        process = self.chance.choice(job.ranks).process
        fault = self.report.begin(kind, time.monotonic())
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(*STOPPED_S))
        process.send_signal(signal.SIGCONT)
        self.report.over(fault, time.monotonic(), time.monotonic())
        job.await_steps(STEPS_AFTER)

    def _daemon_stop(self, kind):
        host = self.chance.randrange(self.nodes.count)
        fault = self.report.begin(kind, time.monotonic())
        self.nodes.daemons[host].send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(*STOPPED_S))
        self.nodes.daemons[host].send_signal(signal.SIGCONT)
        self.report.over(fault, time.monotonic(), time.monotonic())
        self._await_jobs_of(host)

    def _await_jobs_of(self, host):
        for job in self.jobs:
            if host in job.placement:
                job.await_steps(STEPS_AFTER)

    def _rank_kill(self, kind):
        """The survivors go on as a smaller group, or make a new one; then the job is whole again."""
        job = self.chance.choice(self.jobs)
        number = self.chance.randrange(len(job.ranks))
        shrinks = self.chance.random() < 0.5
        fault = self.report.begin(kind, time.monotonic())
        told = job.kill(number)
        begin = time.monotonic()
        if shrinks:
            job.shrink(number)
        else:
            job.form()
        job.run()
        job.await_steps(1)
        self.report.recovery(kind, told + time.monotonic() - begin)
        job.await_steps(STEPS_SHRUNK)
        job.pause()
        job.regroup()
        job.run()
        job.await_steps(STEPS_AFTER)
        self.report.over(fault, time.monotonic(), time.monotonic())
        self.say(f"rank {number} of job {job.name} killed; its survivors "
                 f"{'shrank' if shrinks else 'made a new group'}")

    def _replace(self, kind, hosts, end):
        host = self.chance.choice(sorted(hosts))
        fault = self.report.begin(kind, time.monotonic())
        end(host)
        time.sleep(self.chance.uniform(*AWAY_S))
        self.nodes.replace_daemon(host)
        self.report.over(fault, time.monotonic(), time.monotonic())
        self._await_jobs_of(host)
        self.say(f"daemon of h{host}: {kind}")

    def _daemon_kill(self, kind):
        self._replace(kind, set(range(self.nodes.count)) - set(self._between_nodes()), self.nodes.kill_daemon)

    def _daemon_kill_shared(self, kind):
        self._replace(kind, self._between_nodes(), self.nodes.kill_daemon)

    def _handover(self, kind):
        self._replace(kind, self._between_nodes(), self.nodes.hand_over)
