"""lying_coordinator_test.py: a program that answers as a daemon does tells what cannot be: memberships with
nodes of no ranks, JSON of any depth. To be heard at all it must be of root or of the daemon's user."""

import json
import os

from daemons import NOBODY, Attacker, HostileTest, main
from protocol import (Client, FakeDaemon, ask, control_membership, control_outcome, control_reply, join,
                      node_info)

SUCCESS, INTERNAL = 0, 5
# Deeper than any stack.
DEPTH = 2_000_000


def wait_in_group(path, place, key, ranks):
    """All ranks of a group that is made at `place`: (whether it has joined, what it hears)."""
    with Client(path) as client:
        client.socket.settimeout(60)
        for rank in range(ranks):
            client.send(join(rank, key, place, ranks=ranks, rank=rank, timeout_ms=20000))
        return [(told["code"] == SUCCESS, told["text"]) for told in (client.joined() for _ in range(ranks))]


def doctor(path, address):
    with Client(path) as client:
        client.socket.settimeout(60)
        return client.json(ask("doctor", address))


def coordinate(fake):
    """True if a daemon takes this process for one."""
    with fake.accept() as peer:
        try:
            peer.answer_handshake("ghost")
            return bool(peer.receive_control())
        except (EOFError, OSError):
            return False


class LyingCoordinator(HostileTest):
    @staticmethod
    def memberships(own, peer):
        ends = [[("tcp", "lo", "127.0.0.1:1")]]
        ghost = node_info(peer.node, "ghost", "127.0.0.1:1", ends)
        nameless = node_info(peer.node, "gh\x1b[2Jost", "127.0.0.1:1", ends)
        bare = node_info(peer.node, "ghost", "127.0.0.1:1", [])
        return {"a node of no ranks": ([own, ghost], [0, 0]), "a node twice": ([own, own], [0, 1]),
                "no node": ([], []), "a rank on no node": ([own, ghost], [0, 2]),
                "a name that is none": ([own, nameless], [0, 1]),
                "a node that has no port": ([own, bare], [0, 1])}

    def test_memberships_that_make_no_sense(self):
        daemon = self.daemons[0]
        with FakeDaemon() as fake:
            key = os.urandom(32)
            waiting = self.begin(wait_in_group, daemon.socket, fake.address, key, 2)
            with fake.accept() as peer:
                node, name = peer.answer_handshake("ghost")
                self.assertEqual(name, daemon.name)
                for _ in range(2):
                    self.assertEqual(peer.receive_control()[:33], b"\1" + key)
                own = node_info(node, name, daemon.address, [[("tcp", "lo", "127.0.0.1:2")]])
                told = self.memberships(own, peer)
                for nodes, ranks in told.values():
                    peer.control(control_membership(key, os.urandom(32), "hostile", nodes, ranks))
                peer.control(control_outcome(key, INTERNAL, -1, "enough of that"))
                for joined, words in waiting.result():
                    self.assertFalse(joined)
                    self.assertIn("enough of that", words)
            self.assertEqual(daemon.words().count("malformed control message"), len(told), daemon.words())
        self.assert_unharmed()

    def test_a_user_is_no_daemon(self):
        with FakeDaemon() as fake:
            lying = self.begin(coordinate, fake)
        waiting = Attacker(wait_in_group, self.daemons[0].socket, fake.address, os.urandom(32), 1)
        self.addCleanup(waiting.kill)
        self.assertFalse(lying.result())
        self.assertIn(f"it comes from a process of user {NOBODY}", self.daemons[0].words())
        waiting.kill()
        self.assert_unharmed()

    def test_json_of_any_depth(self):
        with FakeDaemon() as fake:
            asking = self.begin(doctor, self.daemons[0].socket, fake.address)
            with fake.accept() as peer:
                peer.answer_handshake("ghost")
                what = "clock"
                while what == "clock":
                    message = peer.receive_control()
                    self.assertEqual(message[:1], b"\5")
                    number = int.from_bytes(message[1:9], "little")
                    what = message[13:13 + int.from_bytes(message[9:13], "little")].decode()
                    words = "{}" if what == "clock" else "[" * DEPTH + "]" * DEPTH
                    peer.control(control_reply(number, SUCCESS, words))
                code, words = asking.result()
            self.assertEqual(code, SUCCESS, words)
            self.assertIn("levels", json.loads(words)["peers"][0]["error"])
        self.assert_unharmed()


if __name__ == "__main__":
    main()
