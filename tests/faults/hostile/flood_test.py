"""flood_test.py: messages as fast as they go, whose answers nobody reads, take a bounded amount of the
daemon's memory, and everybody else is served meanwhile."""

import attackers
from daemons import SLACK, UNASKED, HostileTest, main

KINDS = tuple(kind for kind in ("unshare", "fail", "rendezvous", "status", "trace", "why", "backends",
                                "explain")
              if kind not in UNASKED)
MIB = 1 << 20
MOST_MIB = 64 * SLACK  # that the daemon may grow by


class Flood(HostileTest):
    def test_the_daemon_does_not_grow_and_serves_others(self):
        daemon = self.daemons[0]
        before = daemon.resident_bytes()
        for kind in KINDS:
            attacker = self.begin(attackers.flood, daemon.socket, 0.5, kind)
            self.assertEqual(daemon.status()["node"], daemon.name, kind)
            self.assertGreater(attacker.result(), 0, kind)
            self.assertLess(daemon.resident_bytes(), before + MOST_MIB * MIB, kind)
        self.assert_unharmed()


if __name__ == "__main__":
    main()
