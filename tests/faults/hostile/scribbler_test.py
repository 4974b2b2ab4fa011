"""scribbler_test.py: a member of live groups writes whatever it likes over the memory it shares with its
daemons (scribbler.cc): the daemons live, and jobs of another user compute what they should."""

import os
import random
import subprocess

from daemons import BUILD, NOBODY, HostileTest, main

SECONDS = float(os.environ.get("HDT_TEST_SECONDS", "8"))
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
PATIENCE_S = 120  # beyond the attack


class Scribbler(HostileTest):
    def test_it_harms_nobody_else(self):
        print(f"scribbler: HDT_TEST_SEED={SEED}", flush=True)
        command = [os.path.join(BUILD, "tests", "scribbler"), str(NOBODY), str(SECONDS), str(SEED),
                   *(daemon.socket for daemon in self.daemons)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=SECONDS + PATIENCE_S)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_unharmed()

    def test_what_is_no_call_is_not_described(self):
        command = [os.path.join(BUILD, "tests", "scribbler"), str(NOBODY), "no-call",
                   *(daemon.socket for daemon in self.daemons)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"^call 0 of .* by rank 1: unknown type 255$")
        self.assert_unharmed()


if __name__ == "__main__":
    main()
