"""adoption_test.py: memory that is handed over as that of a group of the daemon's predecessor: only what a
daemon made is taken, and what its header says counts once."""

import attackers
from daemons import SECONDS, HostileTest, main


class Adoption(HostileTest):
    def test_memory_that_no_daemon_made(self):
        told = self.attack(attackers.forged_group, self.daemons[0].socket, SECONDS)
        self.assertEqual(told, ["the memory was not made by a daemon of this one's user"])
        self.assert_unharmed()

    def test_a_header_that_changes_while_it_is_read(self):
        told = self.attack(attackers.changing_group, self.daemons[0].socket, SECONDS)
        self.assertTrue(any("geometry" in words or "version" in words for words in told), told)
        self.assert_unharmed()

    def test_ranks_that_the_group_does_not_have(self):
        first, told = self.attack(attackers.ranks_that_are_none, self.daemons[0].socket, SECONDS)
        self.assertIsNone(first)
        self.assertEqual(len(told), 128, told)
        for words in told:
            self.assertRegex(words, "of a group that has 1 on this node|has been taken over already")
        self.assert_unharmed()


if __name__ == "__main__":
    main()
