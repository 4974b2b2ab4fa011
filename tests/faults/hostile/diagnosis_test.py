"""diagnosis_test.py: whoever asks hears of its own jobs, on all nodes, and of others how many there are;
root hears of all."""

import json

from daemons import NEIGHBOUR, NOBODY, HostileTest, Job, main
from protocol import Client, ask, empty, explain

SUCCESS, INVALID_USAGE = 0, 3


def questions(path):
    """All that hdtctl asks about jobs: what was told, by question."""
    with Client(path) as client:
        told = {"status": client.json(empty("Status"))}
        for name, what, about in (("why", "why", ""), ("why of a class", "why", "neighbour"),
                                  ("trace", "trace", ""),
                                  ("link", "link", "second"), ("class", "class", "neighbour\nweight=2"),
                                  ("doctor", "doctor", "")):
            told[name] = client.json(ask(what, about))
        told["explain"] = client.json(explain("neighbour", "allreduce", "float32", 1024))
    return told


def pids_in(words):
    """Every number after a "pid" in JSON."""
    found = set()

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "pid" and isinstance(inner, int):
                    found.add(inner)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
    walk(json.loads(words))
    return found


class Diagnosis(HostileTest):
    def setUp(self):
        super().setUp()
        # The neighbour's two jobs run beside one of this user on both nodes.
        self.own = Job(self.daemons, ranks=1, user=NOBODY)
        self.addCleanup(self.own.end)
        self.own.start()
        self.own_pids = {process.pid for process in self.own.processes}
        self.their_pids = {process.pid for job in self.jobs for process in job.processes}

    def ask_as(self, user, daemon=0):
        path = self.daemons[daemon].socket
        return self.attack(questions, path) if user == NOBODY else questions(path)

    def test_a_user_sees_its_own(self):
        for daemon in range(2):
            told = self.ask_as(NOBODY, daemon)
            status = json.loads(told["status"][1])
            self.assertEqual([group["users"] for group in status["groups"]], [[NOBODY]])
            self.assertEqual(status["others"]["groups"], 2 if daemon == 0 else 1)
            self.assertEqual(status["others"]["sessions"], 4 if daemon == 0 else 2)
            self.assertEqual({session["uid"] for session in status["sessions"]}, {NOBODY})
            self.assertEqual(len(status["peers"]), 1)
            for question in ("status", "why", "why of a class", "trace"):
                code, words = told[question]
                self.assertEqual(code, SUCCESS, words)
                self.assertEqual(pids_in(words) & self.their_pids, set(), question)
            for question in ("why", "trace"):  # of both nodes
                self.assertLessEqual(self.own_pids, pids_in(told[question][1]), question)
                self.assertEqual(json.loads(told[question][1])["hidden"], 2 if daemon == 0 else 1)
            self.assertEqual(len(json.loads(told["why of a class"][1])["verdicts"]), 1)
            self.assertEqual(told["explain"][0], SUCCESS, told["explain"])
            self.assertEqual(told["class"][0], INVALID_USAGE)
            self.assertIn("only root and the daemon's own user", told["class"][1])
            self.assertEqual(pids_in(told["doctor"][1]) & self.their_pids, set())

    def test_without_a_job_there_is_nothing_to_see(self):
        self.own.stop()
        self.own.end()
        told = self.ask_as(NOBODY)
        status = json.loads(told["status"][1])
        self.assertEqual((status["groups"], status["peers"]), ([], []))
        self.assertEqual(status["others"]["groups"], 2)
        self.assertEqual(json.loads(told["trace"][1])["hidden"], 2)
        self.assertEqual(pids_in(told["trace"][1]) & self.their_pids, set())
        for question in ("explain", "link"):
            self.assertEqual(told[question][0], INVALID_USAGE, told[question])
            self.assertIn("that you may see", told[question][1])

    def test_root_sees_all(self):
        told = self.ask_as(0)
        status = json.loads(told["status"][1])
        self.assertEqual(sorted(group["users"] for group in status["groups"]),
                         [[NEIGHBOUR], [NEIGHBOUR], [NOBODY]])
        self.assertEqual(status["others"], {"sessions": 0, "groups": 0, "peers": 0})
        for question in ("why", "trace"):
            self.assertLessEqual(self.own_pids | self.their_pids, pids_in(told[question][1]), question)
        self.assertEqual(status["daemon"]["groups"], 3)
        for what in ("descriptors", "ports_listening", "ports_connected", "threads", "memory_bytes",
                     "shared_memories", "shared_bytes", "sessions"):
            self.assertGreater(status["daemon"][what], 0, what)
        self.assertEqual(status["daemon"]["descriptors_allowed"] > status["daemon"]["descriptors"], True)


if __name__ == "__main__":
    main()
