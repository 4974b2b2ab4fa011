"""verdict_test.py: what hdtctl why says of a rail that swallows packets, of one that is slow, and within 5
s of a daemon that is stopped."""

import json
import os
import signal
import subprocess
import time

from on_hosts import BUILD, WAIT_S, OnHosts, main

WORK_S = 20
ANSWER_S = 5  # the promise: hdtctl why has answered by then
NIC = 2
ADDRESSES = (f"10.77.{NIC}.1", f"10.77.{NIC}.2")


class Verdicts(OnHosts):
    def setUp(self):
        super().setUp()
        self.ranks = self.hosts.ranks("allreduce", WORK_S, 16384)
        self.addCleanup(self.end_ranks)

    def end_ranks(self):
        self.ranks.end()
        for process in self.ranks.processes:
            process.communicate()

    def why(self, host):
        done = subprocess.run([os.path.join(BUILD, "bin", "hdtctl"), "--socket", self.hosts.socket(host),
                               "why", "--json"],
                              capture_output=True, text=True, timeout=ANSWER_S, check=True)
        return json.loads(done.stdout)["verdicts"]

    def await_verdict(self, cause, host=0):
        deadline = time.monotonic() + WAIT_S
        while True:
            verdicts = self.why(host)
            found = [verdict for verdict in verdicts if verdict["cause"] == cause]
            if found:
                return found[0]
            self.assertLess(time.monotonic(), deadline, f"no '{cause}': {json.dumps(verdicts, indent=1)}")

    def assert_names_the_rail(self, verdict):
        self.assertTrue(any(address in verdict["sentence"] for address in ADDRESSES), verdict["sentence"])
        self.assertIn(f"eth{NIC}", verdict["sentence"])

    def test_a_rail_that_swallows_packets_is_named_dead(self):
        self.hosts.link(0, NIC, "blackhole")
        self.assert_names_the_rail(self.await_verdict("rail down"))

    def test_a_rail_at_a_tenth_of_its_rate_is_named_slow(self):
        self.hosts.link(0, NIC, "rate", "40m")
        self.assert_names_the_rail(self.await_verdict("slow rail"))

    def test_the_answer_comes_while_a_daemon_is_stopped(self):
        self.hosts.daemons[1].send_signal(signal.SIGSTOP)
        self.addCleanup(self.hosts.daemons[1].send_signal, signal.SIGCONT)
        verdict = self.await_verdict("unreachable daemon")
        self.assertEqual(verdict["node"], "h1")


if __name__ == "__main__":
    main()
