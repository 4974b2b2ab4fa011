"""job.py: a job of ranks (hdt-soak-rank): started, told to work, to pause, and to go on without a rank
that was killed."""

import os
import queue
import signal
import subprocess
import threading
import time

from processes import clean_environment
from soak_parts.patience import Patience

LIMIT_S = 60
LOOK_EVERY_S = 0.2
STUCK_S = 40
# The results that survivors get: the rank has failed, or another survivor has given up a group that the
# failed rank was not in.
RANK_LOST, ABORTED = 11, 13


class Failure(Exception):
    """Operations were lost, or came to a wrong result."""


class Rank:
    def __init__(self, nodes, job, host, seed, on_pause):
        self.job, self.host, self.on_pause = job, host, on_pause
        self.steps = self.operations = self.bytes = self.wrong = 0
        self.looked = (0, 0.0)  # steps, and when they were first seen
        self.replies = queue.Queue()
        self.errors = open(os.path.join(nodes.folder, f"{job}.errors"), "a+", encoding="utf-8")
        self.process = nodes.on(host, os.path.join(nodes.bin, "hdt-soak-rank"), str(seed),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                env=clean_environment(HDT_SOCKET=nodes.socket(host)))
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            verb, _, rest = line.strip().partition(" ")
            if verb == "step":
                self.steps += 1
                self.operations, self.bytes, self.wrong = map(int, rest.split()[1:])
            elif verb == "pause":
                name, begin, end, excess = rest.rsplit(" ", 3)
                self.on_pause(self, name, int(begin) / 1e9, int(end) / 1e9, int(excess) / 1e9)
            elif verb != "wrong":  # those are counted in the next step's line
                self.replies.put(line.strip())
        self.replies.put(None)

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is told by its output

    def answer(self, limit_s=LIMIT_S):
        """The next line; fails where there is none."""
        patience = Patience()
        while True:
            try:
                line = self.replies.get(timeout=LOOK_EVERY_S)
                break
            except queue.Empty:
                if patience.now() > limit_s:
                    raise Failure(f"a rank of job {self.job} on h{self.host} does not answer within "
                                  f"{limit_s} s") from None
        if line is None:
            raise Failure(f"a rank of job {self.job} on h{self.host} has ended: {self.last_error()}")
        return line

    def last_error(self):
        self.errors.seek(0)
        lines = self.errors.read().splitlines()
        return f"code {self.process.poll()}; {lines[-1] if lines else 'it printed nothing'}"

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.thread.join()
        self.errors.close()


class Job:
    def __init__(self, nodes, name, placement, seed, on_pause):
        self.nodes, self.name, self.placement = nodes, name, placement
        self.seed, self.on_pause = seed, on_pause
        self.ranks = [self._new(host) for host in placement]
        self.past = []  # ranks that are no more
        self.next_step = 0
        self.patience = Patience()

    def _new(self, host):
        return Rank(self.nodes, self.name, host, self.seed, self.on_pause)

    def _ask_all(self, command, expected, codes=()):
        """Tells all ranks; what they answer to it, which must begin with `expected`, or with "failed" with
        one of the codes."""
        for rank, line in zip(self.ranks,
                              command if isinstance(command, list) else [command] * len(self.ranks)):
            rank.say(line)
        return [self._expect(rank, expected, codes) for rank in self.ranks]

    def _expect(self, rank, expected, codes=()):
        line = rank.answer()
        words = line.split()
        if words[0] == expected or (words[0] == "failed" and int(words[2]) in codes):
            return line
        raise Failure(f"job {self.name}, a rank on h{rank.host}: expected '{expected}', and it answered: "
                      f"{line}")

    def form(self):
        """A new group over all ranks."""
        self.ranks[0].say("id")
        name = self._expect(self.ranks[0], "id").split()[1]
        self._ask_all([f"join {len(self.ranks)} {number} {name}" for number in range(len(self.ranks))],
                      "joined")

    def run(self):
        for rank in self.ranks:
            rank.looked = (-1, 0.0)
            rank.say(f"run {self.next_step}")

    def pause(self):
        self.ranks[0].say("stop")
        steps = {int(self._expect(rank, "paused").split()[1]) for rank in self.ranks}
        if len(steps) != 1:
            raise Failure(f"job {self.name}: ranks have paused after different steps: {sorted(steps)}")
        self.next_step = steps.pop() + 1

    def check(self):
        """Fails if an operation has: while nobody is killed or told to pause there is nothing to say but
        steps."""
        now = self.patience.now()
        for rank in self.ranks:
            if not rank.replies.empty():
                line = rank.replies.get()
                raise Failure(f"job {self.name}, a rank on h{rank.host}: "
                              f"{line or 'it has ended: ' + rank.last_error()}")
            if rank.wrong:
                raise Failure(f"job {self.name}, a rank on h{rank.host}: {rank.wrong} results differ from "
                              f"what they must be")
            if rank.looked[0] != rank.steps:
                rank.looked = (rank.steps, now)
            elif now - rank.looked[1] > STUCK_S:
                raise Failure(f"job {self.name}: a rank on h{rank.host} has not ended a step for {STUCK_S} s")

    def await_steps(self, count):
        """Until every rank has made so many more."""
        goals = [rank.steps + count for rank in self.ranks]
        while any(rank.steps < goal for rank, goal in zip(self.ranks, goals)):
            self.check()
            time.sleep(0.01)

    def kill(self, number):
        """Returns how long it took until every other rank was told."""
        killed = self.ranks.pop(number)
        killed.process.send_signal(signal.SIGKILL)
        begin = time.monotonic()
        for rank in self.ranks:
            step = int(self._expect(rank, "failed", (RANK_LOST, ABORTED)).split()[1])
            self.next_step = max(self.next_step, step + 1)
        took = time.monotonic() - begin
        killed.end()
        self.past.append(killed)
        return took

    def shrink(self, number):
        self._ask_all(f"shrink {number}", "joined")

    def regroup(self):
        """With a new rank for each that was lost."""
        present = list(self.ranks)
        self.ranks = []
        for host in self.placement:
            same = next((rank for rank in present if rank.host == host), None)
            if same is None:
                same = self._new(host)
            else:
                present.remove(same)
            self.ranks.append(same)
        self.form()

    def leave(self):
        self._ask_all("leave", "left")

    def totals(self):
        everyone = self.ranks + self.past
        return {"operations": sum(rank.operations for rank in everyone),
                "bytes": sum(rank.bytes for rank in everyone),
                "mismatches": sum(rank.wrong for rank in everyone),
                "steps": max(rank.steps for rank in everyone)}

    def end(self):
        for rank in self.ranks:
            rank.end()
