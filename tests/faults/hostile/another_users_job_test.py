"""another_users_job_test.py: another user of the node can guess the key of a job that meets at an address; he
is no rank of the job by that."""

import hashlib
import os

from daemons import NEIGHBOUR, Attacker, HostileTest, main
from protocol import Client

BY_ADDRESS, LISTEN = 1, 1
ALONE_MS = 1500  # for who waits in vain
GRACE_MS = 20000


def key_of(place):
    host, port = place.rsplit(":", 1)
    return hashlib.sha256(f"job at {host} {port} group 0 secret  run ".encode()).digest()


def join(path, place, rank, timeout_ms):
    """(code, words, whether there was a segment)"""
    with Client(path) as client:
        client.socket.settimeout(60)
        told = client.join(request=1, key=key_of(place), rendezvous=place, ranks=2, rank=rank,
                           timeout_ms=timeout_ms, host=LISTEN if rank == 0 else 0, meeting=BY_ADDRESS,
                           place=place)
        if told["segment"] is not None:
            os.close(told["segment"])
        return told["code"], told["text"], told["segment"] is not None


class AnotherUsersJob(HostileTest):
    with_jobs = False
    place = "127.0.0.1:29471"

    def test_who_guesses_its_key_is_no_rank_of_it(self):
        thief = self.begin(join, self.daemons[0].socket, self.place, 1, ALONE_MS)
        code, _, has_segment = thief.result()
        self.assertNotEqual(code, 0)
        self.assertFalse(has_segment)
        thief = self.begin(join, self.daemons[0].socket, self.place, 1, ALONE_MS)
        ranks = [Attacker(join, self.daemons[0].socket, self.place, rank, GRACE_MS, user=NEIGHBOUR)
                 for rank in (0, 1)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        for rank in ranks:
            self.assertEqual(rank.result(), (0, "", True))
        self.assertNotEqual(thief.result()[0], 0)
        self.assert_unharmed()


if __name__ == "__main__":
    main()
