"""attackers.py: attacks as functions attack(target, seconds), where the target is the path of a daemon's socket or the address of its
control port. Each goes on for so long, or until it is shut out for good, and returns what it was told: a list of sentences."""

import os
import random
import time

from protocol import KINDS, Client, Refused, close_all, hello


def until(seconds):
    """Counts while the time lasts."""
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        yield count
        count += 1


def nonsense(path, seconds):
    """Every kind of message with random contents, to sessions of which each ends at the first refusal."""
    seed = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
    print(f"nonsense: HDT_TEST_SEED={seed}", flush=True)
    dice = random.Random(seed)
    told = set()
    for _ in until(seconds):
        try:
            with Client(path) as client:
                client.socket.settimeout(0.05)
                for _ in range(dice.randrange(1, 30)):
                    kind = dice.choice([*KINDS.values(), dice.randrange(256)])
                    client.send(bytes([kind]) + dice.randbytes(dice.choice([0, 1, 4, 8, 12, 16, 60, 500, 60000])))
                while True:
                    close_all(client.receive()[2])
        except Refused as refused:
            told.add(str(refused))
        except (OSError, EOFError):
            pass
    return sorted(told)


def idle(path, seconds, count=5000, greet=False):
    """Connections that say nothing, or nothing after the hello, and come again when they are turned away."""
    told, held = set(), []
    for _ in until(seconds):
        try:
            client = Client(path, greet=False)
            client.socket.settimeout(0.05)
            held.append(client)
            if greet:
                client.send(hello())
            close_all(client.receive()[2])
        except Refused as refused:
            told.add(str(refused))
            held.pop().socket.close()
        except EOFError:
            held.pop().socket.close()
        except OSError:
            pass
        if len(held) >= count:
            break
    # Those that are held are told when they have been silent too long.
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.1)
    for client in held:
        try:
            close_all(client.receive()[2])
            client.receive()
        except Refused as refused:
            told.add(str(refused))
        except (OSError, EOFError):
            pass
    return sorted(told)
