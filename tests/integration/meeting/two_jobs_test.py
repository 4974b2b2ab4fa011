"""Two jobs with the same variables on the same nodes: none ever gets the other's bytes, none hangs, and a job
that is refused says which job is there. HDT_TEST_ROUNDS sets how often jobs of several users start at the
same moment."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from meeting_hosts import BUILD, PROGRAM, SKIPPED, Rank, environment, start_daemon

ROUNDS = int(os.environ.get("HDT_TEST_ROUNDS", "10"))
USERS = (4311, 4312, 4313)
# On a busy machine a group takes its time; the group's own deadline is far beyond.
SOON_S = 30
TIMEOUT_MS = "120000"
# A group that was made less than a second before may have ranks of both jobs in it.
YOUNG_S = 1.1


class TwoJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chmod(cls.folder.name, 0o755)
        cls.daemons = [cls.daemon(node) for node in range(2)]

    @classmethod
    def daemon(cls, node):
        return start_daemon([], f"n{node}", cls.file(f"{node}.sock"), cls.file(f"{node}.log"),
                            "--nics.addresses",
                            f"127.0.1.{node + 1}", "--nics.port", "0")

    @classmethod
    def tearDownClass(cls):
        for daemon in cls.daemons:
            daemon.terminate()
            assert daemon.wait() == 0
        cls.folder.cleanup()

    @classmethod
    def file(cls, name):
        return os.path.join(cls.folder.name, name)

    def job(self, user, mark, port, held=None, delay=(0, 0), which=(0, 1), **more):
        """Ranks of `user`, of two, one on each node; each starts `delay` seconds later. `held`: the file that
        the job writes when its ranks have met, and until whose end it works."""
        what = ["job", str(mark)] if held is None else ["held", str(mark), held]
        ranks = []
        for rank in which:
            variables = environment(HDT_SOCKET=self.file(f"{rank}.sock"), HDT_TIMEOUT_MS=TIMEOUT_MS,
                                    MASTER_ADDR="127.0.1.1", MASTER_PORT=str(port), RANK=str(rank),
                                    WORLD_SIZE="2", **more)
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c",
                       f"sleep {delay[rank]}; exec \"$@\"", "sh", PROGRAM, *what]
            ranks.append(Rank(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT, text=True)))
        return ranks

    def held_job(self, user, mark, port, **more):
        """(ranks, file): a job that works until the file is removed. Its folder is the user's."""
        folder = self.file(f"held-{port}-{mark}")
        os.mkdir(folder)
        os.chown(folder, user, user)
        file = os.path.join(folder, "met")
        return self.job(user, mark, port, held=file, **more), file

    def wait_for(self, what, true):
        deadline = time.monotonic() + SOON_S
        while not true():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def have_met(self, ranks, file):
        self.wait_for("the first job", lambda: os.path.exists(file) or any(
            rank.process.poll() is not None for rank in ranks))
        self.assertTrue(os.path.exists(file), "a rank of the first job has ended")

    def end(self, ranks, file):
        os.unlink(file)
        self.succeeded(ranks)

    def succeeded(self, ranks):
        for number, rank in enumerate(ranks):
            code, wrong, own, count, output, _ = rank.result(SOON_S)
            self.assertEqual((code, wrong, own, count), (0, 0, number, 2), output)

    def refused(self, ranks, *words):
        """At once, not when the time of the group is over."""
        for rank in ranks:
            code, _, _, _, output, _ = rank.result(SOON_S)
            self.assertEqual(code, 3, output)  # HDT_ERR_INVALID_USAGE
            for word in words:
                self.assertIn(word, output)

    def test_a_second_job_is_refused_at_once_and_told_of_the_first(self):
        first, file = self.held_job(USERS[0], 1000, 29500)
        self.have_met(first, file)
        time.sleep(YOUNG_S)
        self.refused(self.job(USERS[0], 1, 29500), "MASTER_ADDR=127.0.1.1, MASTER_PORT=29500",
                     f"user {USERS[0]}", "pid ", "since ")
        self.end(first, file)
        # The address is free again.
        self.succeeded(self.job(USERS[0], 7, 29500))

    def test_a_daemon_that_was_started_again_knows_the_job(self):
        first, file = self.held_job(USERS[0], 1000, 29560)
        self.have_met(first, file)
        self.daemons[0].kill()
        self.daemons[0].wait()
        os.unlink(self.file("0.sock"))
        self.daemons[0] = self.daemon(0)
        self.wait_for("the rank brings its group", lambda: "adopted from pid" in self.log(0))
        self.refused(self.job(USERS[0], 1, 29560, which=(0,)), f"user {USERS[0]}")
        self.end(first, file)

    def test_only_one_rank_of_the_second_job_comes(self):
        first, file = self.held_job(USERS[0], 1000, 29510)
        self.have_met(first, file)
        time.sleep(YOUNG_S)
        self.refused(self.job(USERS[0], 1, 29510, which=(1,)))
        self.end(first, file)

    def test_jobs_of_two_users_do_not_touch(self):
        jobs = [self.held_job(user, 10 + user, 29520) for user in USERS]
        for job in jobs:
            self.have_met(*job)
        for job in jobs:
            self.end(*job)

    def test_jobs_with_secrets_of_their_own_do_not_touch(self):
        jobs = [self.held_job(USERS[0], 10 + number, 29530, HDT_JOB_SECRET=f"secret {number}")
                for number in range(3)]
        for job in jobs:
            self.have_met(*job)
        for job in jobs:
            self.end(*job)

    def test_users_of_one_job_with_a_secret_meet(self):
        ranks = [self.job(USERS[rank], 3, 29540, which=(rank,), HDT_JOB_SECRET="of both")
                 for rank in range(2)]
        self.succeeded(ranks[0] + ranks[1])

    def test_a_rank_that_comes_after_the_failure_hears_of_it(self):
        """The second rank's process is older than the first one's end: its sleep is part of its age."""
        ranks = self.job(USERS[0], 3, 29550, delay=(0, 3))
        self.await_listener(29551)
        ranks[0].process.kill()
        ranks[0].process.communicate()
        code, _, _, _, output, _ = ranks[1].result(SOON_S)
        self.assertEqual(code, 11, output)  # HDT_ERR_RANK_LOST

    def log(self, node):
        with open(self.file(f"{node}.log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def await_listener(self, port):
        """A rank 0 is in hdtCommInit: its daemon listens at the meeting place."""
        self.wait_for("a listener", lambda: subprocess.run(
            ["ss", "-tlnH", "sport", "=", f":{port}"], capture_output=True, text=True,
            check=False).stdout.strip())

    def test_at_the_same_moment(self):
        """Jobs of different users both work; of one user, none succeeds with anything but its own values."""
        seed = int(os.environ.get("HDT_TEST_SEED", random.randrange(10**6)))
        print(f"seed {seed}")
        random.seed(seed)
        for number in range(ROUNDS):
            port = 30000 + 10 * number
            users = random.sample(USERS, 2) if number % 3 else [random.choice(USERS)] * 2
            delays = [(random.choice((0, 0.05, 0.2)), random.choice((0, 0.05, 0.2))) for _ in users]
            jobs = [self.job(user, 100 + index, port, delay=delays[index])
                    for index, user in enumerate(users)]
            for job in jobs:
                for rank in job:
                    code, wrong, _, count, output, _ = rank.result(SOON_S)
                    self.assertIsNotNone(code, f"round {number}, users {users}: {output}")
                    self.assertEqual(wrong, 0, f"round {number}, users {users}, delays {delays}: {output}")
                    if users[0] != users[1]:
                        self.assertEqual((code, count), (0, 2), f"round {number}, users {users}: {output}")
                    elif code != 0:
                        self.assertIn(code, (3, 10, 11), output)


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("ss") is None:
        print("skipped: several users need root, setpriv and ss")
        sys.exit(SKIPPED)
    assert os.path.exists(os.path.join(BUILD, "bin", "hdtcommd")), BUILD
    unittest.main()
