"""steal_test.py: memory of hdtMemAlloc is for the ranks of the group in which it is used, and for nobody who
knows or guesses its number."""

import os

import attackers
from daemons import NEIGHBOUR, SECONDS, Attacker, HostileTest, main


class Steal(HostileTest):
    def test_no_memory_of_another_user_is_opened(self):
        pipe = os.pipe()
        victim = Attacker(attackers.share_and_wait, self.daemons[0].socket, pipe[1], user=NEIGHBOUR)
        self.addCleanup(victim.kill)
        known = int.from_bytes(victim.said(pipe, 8), "little")
        told, opened = self.attack(attackers.steal, self.daemons[0].socket, SECONDS, (known,))
        self.assertEqual(opened, 0)
        # It hears the same of memory that is there and of memory that is not.
        self.assertEqual([words for _, words in told], ["no rank of the group shares memory"])
        victim.kill()
        self.assert_unharmed()


if __name__ == "__main__":
    main()
