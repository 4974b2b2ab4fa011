"""all_at_once_test.py: all attacks of users of the node at the same time, each by a user of its own, on both
daemons, beside a job of one node and one of two: these compute what they should, a job that begins meanwhile
is made, root is answered, the daemons' memory is bounded. HDT_TEST_SECONDS=600 is the long run; the longest
pause is printed."""

import os
import random
import subprocess
import time

import attackers
from daemons import BUILD, SLACK, UNASKED, Attacker, HostileTest, Job, main

SECONDS = float(os.environ.get("HDT_TEST_SECONDS", "12"))
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
FIRST_USER = 60001
MIB = 1 << 20
TURN_S = 3  # of an attack, before it begins again
# The limit of a daemon's memory, for the sessions, groups and answers of all attackers at their limits.
MOST_MIB = 512 * SLACK
FLOODS = tuple(kind for kind in ("unshare", "fail", "rendezvous", "status", "trace", "why", "backends",
                                 "explain")
               if kind not in UNASKED)


def again(attack, path, seconds, *arguments):
    """The attack, as often as the time lasts: also where it was refused, or has lost its session."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            attack(path, min(left, TURN_S), *arguments)
        except (OSError, EOFError, attackers.Refused):
            time.sleep(0.01)


def many_sessions(path, _):
    attackers.sessions(path, 200)


class AllAtOnce(HostileTest):
    flags = ("--limits.sessions", "400", "--limits.hello_ms", str(1000 * SLACK))

    def test_jobs_beside_all_of_them(self):
        print(f"all_at_once: HDT_TEST_SEED={SEED}", flush=True)
        os.environ["HDT_TEST_SEED"] = str(SEED)
        before = [daemon.resident_bytes() for daemon in self.daemons]
        users = iter(range(FIRST_USER, FIRST_USER + 1000))
        begun = []
        for daemon in self.daemons:
            attacks = [(attackers.nonsense,), (attackers.idle, 200), (attackers.idle, 200, True),
                       (attackers.steal,),
                       (many_sessions,), (attackers.unread,), (attackers.listeners,),
                       *((attackers.flood, kind) for kind in FLOODS)]
            for attack, *arguments in attacks:
                attacker = Attacker(again, attack, daemon.socket, SECONDS, *arguments, user=next(users))
                self.addCleanup(attacker.kill)
                begun.append((attack, attacker))
        scribbler = subprocess.Popen([os.path.join(BUILD, "tests", "scribbler"), str(next(users)),
                                      str(SECONDS), str(SEED), *(daemon.socket for daemon in self.daemons)],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        self.addCleanup(scribbler.kill)
        newcomer = Job(self.daemons)
        self.addCleanup(newcomer.end)
        newcomer.start()
        end = time.monotonic() + SECONDS
        questions = 0
        while time.monotonic() < end:
            for daemon, least in zip(self.daemons, before):
                self.assertTrue(daemon.alive(), daemon.words()[-8000:])
                self.assertEqual(daemon.status()["node"], daemon.name)
                self.assertLess(daemon.resident_bytes(), least + MOST_MIB * MIB)
                questions += 1
            time.sleep(0.2)
        rounds, longest = newcomer.stop()
        newcomer.end()
        self.assertGreater(rounds, 0)
        for attack, attacker in begun:
            if attack is attackers.idle:
                attacker.kill()  # it would wait on
            else:
                attacker.result()
        self.assertEqual(scribbler.wait(SECONDS + 120), 0)
        print(f"{questions} questions answered; the newcomer's job: {rounds} rounds, longest pause "
              f"{longest} ms", flush=True)
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            rounds, longest = job.stop()
            self.assertGreater(rounds, 0)
            print(f"a job: {rounds} rounds, longest pause {longest} ms", flush=True)
        for job in jobs:
            job.end()
        self.assert_unharmed()


if __name__ == "__main__":
    main()
