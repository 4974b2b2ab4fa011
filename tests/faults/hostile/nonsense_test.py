"""nonsense_test.py: messages that make no sense end the session that sent them."""

import attackers
from daemons import SECONDS, HostileTest, main


class Nonsense(HostileTest):
    def test_it_ends_the_session_that_sent_it(self):
        told = self.attack(attackers.nonsense, self.daemons[0].socket, SECONDS)
        self.assertTrue(any("malformed" in words for words in told), told)
        self.assert_unharmed()


if __name__ == "__main__":
    main()
