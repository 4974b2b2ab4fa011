"""hung_test.py: a socket at which nobody answers, as its owner is stopped or lets no more connections wait,
holds up nobody beyond the deadline: a rank's process, hdtctl, a daemon that is started there. A daemon that
hangs in its start ends at SIGTERM."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from daemons import BUILD, NOBODY, WAIT_S, Attacker, Daemon, main, wait_for
from processes import clean_environment, end

HDTCTL = os.path.join(BUILD, "bin", "hdtctl")
HDTCOMMD = os.path.join(BUILD, "bin", "hdtcommd")
NEIGHBOUR = os.path.join(BUILD, "tests", "neighbour")
SHORT_MS = 1500


def take_no_connection(path, pipe):
    """An attacker: has the socket, and lets as many wait as it may."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(0)
    waiting = []
    while True:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.setblocking(False)
        waiting.append(client)
        try:
            client.connect(path)
        except BlockingIOError:
            break
    os.write(pipe, b"full")
    while True:
        time.sleep(1)


def run(command, **environment):
    """(exit code, all that it said). Fails where it does not end."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=WAIT_S, env=clean_environment(**environment))
    return done.returncode, done.stdout


class Hung(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(self.folder, 0o777)

    def ask_rank(self, path):
        """What a rank hears that asks for a unique id, which needs its daemon."""
        rank = subprocess.Popen([NEIGHBOUR, str(NOBODY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, env=clean_environment(HDT_SOCKET=path,
                                                                 HDT_TIMEOUT_MS=str(SHORT_MS)))
        self.addCleanup(end, [rank])
        return rank.communicate("id\n", timeout=WAIT_S)[0]

    def test_a_socket_whose_owner_takes_no_connection(self):
        path = os.path.join(self.folder, "hung.sock")
        pipe = os.pipe()
        owner = Attacker(take_no_connection, path, pipe[1])
        self.addCleanup(owner.kill)
        owner.said(pipe, 4)
        why = f"of user {NOBODY} that listens there has taken no connection"
        code, told = run([HDTCTL, "--socket", path, "--timeout", "1", "status"])
        self.assertEqual(code, 1, told)
        self.assertIn(why, told)
        told = self.ask_rank(path)
        self.assertIn(f"{why} for {SHORT_MS} ms", told)
        code, told = run([HDTCOMMD, "--node.socket", path, "--nics.addresses", "127.0.1.9"])
        self.assertEqual(code, 1, told)
        self.assertIn("another daemon has the socket", told)

    def test_a_daemon_that_is_stopped(self):
        with Daemon(self.folder, "first", "127.0.1.1") as daemon:
            os.kill(daemon.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)  # all its threads
            why = f"pid {daemon.pid} of user 0) is stuck"
            code, told = run([HDTCTL, "--socket", daemon.socket, "--timeout", "1", "status"])
            self.assertEqual(code, 1, told)
            self.assertIn(why, told)
            self.assertIn(why, self.ask_rank(daemon.socket))
            code, told = run([HDTCOMMD, "--node.socket", daemon.socket, "--nics.addresses", "127.0.1.9"])
            self.assertEqual(code, 1, told)
            os.kill(daemon.pid, signal.SIGCONT)
            self.assertEqual(daemon.status()["node"], "first")

    def test_a_daemon_that_hangs_in_its_start_ends_at_sigterm(self):
        os.mkfifo(os.path.join(self.folder, "measurements.json"))  # opened, and never written to
        log = os.path.join(self.folder, "log")
        with open(log, "w", encoding="utf-8") as output:
            daemon = subprocess.Popen([HDTCOMMD, "--node.socket", os.path.join(self.folder, "starts.sock"),
                                       "--nics.addresses", "127.0.1.9", "--node.state_folder", self.folder],
                                      stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                      env=clean_environment())
        self.addCleanup(end, [daemon])

        def starts():
            with open(f"/proc/{daemon.pid}/status", encoding="ascii") as status:
                blocked = next(line for line in status if line.startswith("SigBlk:"))
            return int(blocked.split()[1], 16) >> (signal.SIGTERM - 1) & 1

        wait_for("the daemon takes signals itself", starts)
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(WAIT_S), 0)
        with open(log, encoding="utf-8") as told:
            self.assertNotIn("serves", told.read())

    def test_nobody_reads_the_log(self):
        """The daemon goes on, although what it writes to its log has no reader."""
        reading, writing = os.pipe()
        path = os.path.join(self.folder, "log.sock")
        daemon = subprocess.Popen([HDTCOMMD, "--node.socket", path, "--nics.addresses", "127.0.1.9",
                                   "--log.level", "debug"],
                                  stdin=subprocess.DEVNULL, stdout=writing, stderr=writing,
                                  env=clean_environment())
        self.addCleanup(end, [daemon])
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        wait_for("the daemon answers", lambda: run([HDTCTL, "--socket", path, "status"])[0] == 0)
        self.assertEqual(run([HDTCTL, "--socket", path, "status"])[0], 0)
        self.assertIsNone(daemon.poll())


if __name__ == "__main__":
    main()
