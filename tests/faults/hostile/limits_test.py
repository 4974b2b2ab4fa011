"""limits_test.py: a user who asks for more and more is refused by name at its limit, and nobody else is."""

import attackers
from daemons import NOBODY, SECONDS, HostileTest, main


class Limits(HostileTest):
    flags = ("--limits.sessions", "40", "--limits.listeners", "4", "--limits.hello_ms", "500")

    def test_sessions(self):
        count, told = self.attack(attackers.sessions, self.daemons[0].socket, 100)
        self.assertEqual(count, 40)
        self.assertIn(f"user {NOBODY} has 40 sessions at this daemon, and may have 40 (limits.sessions)", told)
        self.assert_unharmed()

    def test_silent_sessions_are_ended(self):
        told = self.attack(attackers.idle, self.daemons[0].socket, SECONDS, 40)
        self.assertTrue(any("limits.hello_ms" in words for words in told), told)
        self.assert_unharmed()

    def test_meeting_places(self):
        told = self.attack(attackers.listeners, self.daemons[0].socket, SECONDS)
        self.assertTrue(any("meeting places" in words and "limits.listeners" in words for words in told), told)
        self.assertTrue(any("ports below 1024 are root's" in words for words in told), told)
        self.assert_unharmed()


if __name__ == "__main__":
    main()
