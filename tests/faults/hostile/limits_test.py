"""limits_test.py: a user who asks for more and more is refused by name at its limit, and nobody else is."""

import os
import subprocess

import attackers
from daemons import BUILD, NEIGHBOUR, NOBODY, SECONDS, HostileTest, main

HDTCTL = os.path.join(BUILD, "bin", "hdtctl")


class Limits(HostileTest):
    flags = ("--limits.sessions", "40", "--limits.listeners", "4", "--limits.hello_ms", "500",
             "--limits.unread", "20")

    def test_sessions(self):
        count, told = self.attack(attackers.sessions, self.daemons[0].socket, 100)
        self.assertEqual(count, 40)
        self.assertIn(f"user {NOBODY} has 40 sessions at this daemon, and may have 40 (limits.sessions)",
                      told)
        self.assert_unharmed()

    def test_status_shows_use_and_limits(self):
        daemon = self.daemons[0]
        limits = daemon.status()["limits"]
        self.assertEqual(limits["each"]["sessions"], 40)
        users = {user["uid"]: user for user in limits["users"]}
        ranks = users[NEIGHBOUR]
        self.assertEqual([ranks[what] for what in ("sessions", "groups", "seats")], [4, 2, 4])
        self.assertTrue(ranks["limited"])
        self.assertFalse(users[0]["limited"])
        table = subprocess.run([HDTCTL, "--socket", daemon.socket, "status"], capture_output=True, text=True,
                               check=True).stdout
        self.assertIn(f"uid {NEIGHBOUR}: groups 2/", table)
        self.assertIn(" sessions 4/40", table)
        # A user sees its own use.
        told = self.attack(attackers.limits_in_status, daemon.socket)
        self.assertEqual([user["uid"] for user in told["users"]], [NOBODY])
        self.assert_unharmed()

    def test_silent_sessions_are_ended(self):
        told = self.attack(attackers.idle, self.daemons[0].socket, SECONDS, 40)
        self.assertTrue(any("limits.hello_ms" in words for words in told), told)
        self.assert_unharmed()

    def test_answers_that_nobody_reads(self):
        told = self.attack(attackers.unread, self.daemons[0].socket, SECONDS)
        self.assertIn(f"user {NOBODY} has 20 unread answers with descriptors", told)
        self.assertIn("limits.unread", told)
        self.assert_unharmed()

    def test_meeting_places(self):
        told = self.attack(attackers.listeners, self.daemons[0].socket, SECONDS)
        self.assertTrue(any("meeting places" in words and "limits.listeners" in words for words in told),
                        told)
        self.assertTrue(any("ports below 1024 are root's" in words for words in told), told)
        self.assert_unharmed()


if __name__ == "__main__":
    main()
