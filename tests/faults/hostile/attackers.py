"""attackers.py: attacks as functions attack(target, seconds), where the target is the path of a daemon's
socket or the address of its control port. Each goes on for so long, or until it is shut out for good, and
returns what it was told: a list of sentences."""

import json
import mmap
import os
import random
import resource
import socket
import struct
import threading
import time

from protocol import (HELLO_MAGIC, HELLO_VERSION, IMMEDIATE_BYTES, KINDS, MESSAGE, SEGMENT_MAGIC, WRITE,
                      Client, Peer, Refused, adopt, ask, close_all, empty, explain, frame, hello, join,
                      memory_request, notice, path_test, sealed_memory, segment_header)


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
                    client.send(bytes([kind]) +
                                dice.randbytes(dice.choice([0, 1, 4, 8, 12, 16, 60, 500, 60000])))
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


def own_group(client, request=1, **values):
    """A group of one rank."""
    return client.join(request=request, key=os.urandom(32), rendezvous=client.rendezvous(), **values)


def steal(path, seconds, known=()):
    """Opens memory by numbers: near those of its own, `known` ones, and any. What was told, and how much was
    opened."""
    told, opened = set(), 0
    with Client(path) as client:
        joined = own_group(client)
        assert joined["code"] == 0, joined
        mine = sealed_memory(4096)
        client.send(memory_request("Share", 7, joined["handle"], 0), [mine])
        fields, _ = client.receive_kind("Memory")
        fields.take("Ii")
        fields.text()
        own = fields.take("Q")
        numbers = [*known, *(own + step for step in range(-200, 200) if step), *range(1, 200)]
        for count in until(seconds):
            number = numbers[count] if count < len(numbers) else random.randrange(1, 1 << 64)
            client.send(memory_request("Open", 8, joined["handle"], number % (1 << 64)))
            fields, descriptors = client.receive_kind("Memory")
            _, code = fields.take("Ii")
            opened += len(descriptors)
            close_all(descriptors)
            told.add((code, fields.text().rsplit(" ", 1)[0]))
    return sorted(told), opened


def unread(path, seconds):
    """Asks for its own memory again and again, and reads no answer until it is shut out."""
    with Client(path) as client:
        joined = own_group(client)
        client.send(memory_request("Share", 7, joined["handle"], 0), [sealed_memory(4096)])
        fields, _ = client.receive_kind("Memory")
        fields.take("Ii")
        fields.text()
        own = fields.take("Q")
        client.socket.settimeout(0.2)
        try:
            for _ in until(seconds):
                client.send(memory_request("Open", 8, joined["handle"], own))
        except OSError:
            pass
        client.socket.settimeout(5)
        try:
            while True:
                close_all(client.receive()[2])
        except Refused as refused:
            return str(refused)


def share_and_wait(path, pipe):
    """A victim: shares memory in a group of its own, tells its number through the pipe, and lives until it is
    killed."""
    client = Client(path)
    joined = own_group(client)
    client.send(memory_request("Share", 7, joined["handle"], 0), [sealed_memory(1 << 20)])
    fields, _ = client.receive_kind("Memory")
    fields.take("Ii")
    fields.text()
    os.write(pipe, fields.take("Q").to_bytes(8, "little"))
    while True:
        time.sleep(1)


def limits_in_status(path):
    """What the status tells its own user of use and limits."""
    with Client(path) as client:
        return json.loads(client.json(empty("Status"))[1])["limits"]


def sessions(path, count):
    """As many sessions as it gets; what the first one that is refused hears, and how many there were."""
    held = []
    try:
        for _ in range(count):
            held.append(Client(path))
    except Refused as refused:
        return len(held), str(refused)
    finally:
        for client in held:
            client.socket.close()
    return len(held), ""


def listeners(path, seconds):
    """Joins that each want a meeting place at an address of its own."""
    told = set()
    with Client(path) as client:
        client.socket.settimeout(0.2)
        for count in until(seconds):
            place = f"127.0.0.{2 + count // 5000 % 200}:{20000 + count % 5000}"
            client.send(join(count + 1, os.urandom(32), place, ranks=2, host=1, timeout_ms=200))
            try:
                while count % 20 == 19:
                    told.add(client.joined()["text"])
            except TimeoutError:
                pass
        client.send(join(1 << 30, os.urandom(32), "127.0.0.2:99", ranks=2, host=1, timeout_ms=200))
        try:
            while True:
                told.add(client.joined()["text"])
        except TimeoutError:
            pass
    return sorted(told)


def flood(path, seconds, kind):
    """One kind of message as fast as it goes, and no answer is read."""
    messages = {"unshare": memory_request("Unshare", 0, 0, 12345),
                "fail": notice("Fail", 999, 5, 0, "x" * 4000), "rendezvous": empty("Rendezvous"),
                "status": empty("Status"), "trace": ask("trace"), "why": ask("why"),
                "backends": ask("backends"), "explain": explain("none", "allreduce", "float32", 1 << 20)}
    sent = 0
    with Client(path) as client:
        client.socket.settimeout(0.05)
        for _ in until(seconds):
            try:
                client.send(messages[kind])
                sent += 1
            except TimeoutError:
                pass
            except OSError:
                break
    return sent


def not_adopted(client, handle):
    """Why the daemon does not go on with the group of this handle; None while it does."""
    client.send(empty("Rendezvous"))
    why = None
    while True:
        kind, fields, descriptors = client.receive()
        close_all(descriptors)
        if kind == "NotAdopted":
            of, _, _ = fields.take("Iii")
            why = fields.text() if of == handle else why
        elif kind == "RendezvousAt":
            return why


def forged_group(path, _):
    """Memory of its own making, as that of a group of the daemon's predecessor; also a huge file with
    nothing in it."""
    told = set()
    with Client(path) as client:
        for handle, size in enumerate((1 << 20, 64 << 20, 1 << 40)):
            memory = sealed_memory(size)
            os.pwrite(memory, segment_header(1, 1, 0, 1, random.randrange(1 << 64), key=os.urandom(32)), 0)
            client.send(adopt(handle, 0, 0), [memory])
            os.close(memory)
            told.add(str(not_adopted(client, handle)))
    return sorted(told)


def ended_group(client):
    """The memory of a group of one rank that has ended: a daemon made it, and it is still there."""
    joined = own_group(client)
    assert joined["code"] == 0, joined
    client.send(notice("Leave", joined["handle"], 0, -1, ""))
    return joined["segment"]


def changing_group(path, seconds):
    """Hands over the memory of a group that has ended, and writes over its header at the same time."""
    told = set()
    dice = random.Random(int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32))))
    with Client(path) as client:
        descriptor = ended_group(client)
        memory = mmap.mmap(descriptor, 4096)
        stop = threading.Event()

        def change():
            while not stop.is_set():
                ranks = dice.choice([1, 1, 2, 128, 60000])
                header = segment_header(ranks, 1, 0, min(ranks, 128), dice.randrange(1 << 64),
                                        key=dice.randbytes(32))
                for at in range(0, len(header), 8):
                    memory[at:at + 8] = header[at:at + 8]
                memory[0:8] = struct.pack("<Q", dice.choice([1, SEGMENT_MAGIC]))

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for count in until(seconds):
                handle = 1 + count % 1000
                client.send(adopt(handle, 0, 0), [descriptor])
                told.add(str(not_adopted(client, handle)))
                client.send(notice("Leave", handle, 0, -1, ""))
        except (Refused, EOFError, OSError) as end:
            told.add(str(end))
        finally:
            stop.set()
            changing.join()
    return sorted(told)


def ranks_that_are_none(path, _):
    """Takes over a group of one rank, says in its memory then that it has 128 of them, and takes over
    those."""
    told = []
    with Client(path) as client:
        joined = own_group(client)
        assert joined["code"] == 0, joined
        descriptor = joined["segment"]
        group, key = random.randrange(1 << 64), os.urandom(32)
        os.pwrite(descriptor, segment_header(1, 1, 0, 1, group, key=key), 0)
        client.send(adopt(999, 0, 0), [descriptor])
        first = not_adopted(client, 999)
        os.pwrite(descriptor, segment_header(128, 1, 0, 128, group, key=key), 0)
        for local in range(127, -1, -1):
            client.send(adopt(1000 + local, 0, local), [descriptor])
            told.append(str(not_adopted(client, 1000 + local)))
    return first, told


def write_unasked(ports, seconds, seen):
    """Writes over connections that are new and begin with it, where others were seen to write: {(region,
    offset, length)}. How many were refused, and what was told; a connection that stays open raises
    TimeoutError."""
    refused, told, begin = 0, set(), path_test()
    writes = sorted(seen)
    for count in until(seconds):
        region, offset, length = writes[count % len(writes)]
        with Peer(ports[count % len(ports)]) as peer:
            try:
                peer.send(begin + frame(WRITE, b"\xaa" * length, region, offset, bytes(IMMEDIATE_BYTES)))
                while True:
                    peer.receive()
            except Refused as why:
                told.add(str(why))
            except (EOFError, ConnectionError):
                pass
            refused += 1
    return refused, sorted(told)


def half_open(ports, seconds, sources, each):
    """Connections from each of the addresses `sources`, `each` to every port, that say nothing or begin a
    frame and say no more; those that are closed are made again. How often that was."""
    wanted = [(source, port) for port in ports for source in sources for _ in range(each)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held, again = {}, 0
    for turn in until(seconds):
        for number, (source, port) in enumerate(wanted):
            if number in held:
                try:
                    if held[number].recv(1000, socket.MSG_DONTWAIT):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                held.pop(number).close()
                again += 1
            one = socket.socket()
            try:
                one.bind((source, 0))
                one.settimeout(0.2)
                host, at = port.split(":")
                one.connect((host, int(at)))
                if number % 2:
                    one.send((path_test() + frame(MESSAGE, bytes(10)))[:turn % 100])
                held[number] = one
            except OSError:
                one.close()
    for one in held.values():
        one.close()
    return again


def name_endpoints(ports, seconds):
    """Hellos of ofi and ucx connections with any endpoint address, of which the daemon does not know whose
    they are. How many connections that ended."""
    seed = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 32)))
    print(f"name_endpoints: HDT_TEST_SEED={seed}", flush=True)
    dice = random.Random(seed)
    ended = 0
    for count in until(seconds):
        protocol = dice.choice([b"ofi tcp;ofi_rxm", b"ucx", dice.randbytes(8)])
        address = dice.randbytes(dice.choice([16, 40, 64, 500, 4000]))
        hello_ = struct.pack("<IHHII", HELLO_MAGIC, HELLO_VERSION, len(protocol), len(address),
                             dice.choice([4096, 131072, 1 << 20])) + protocol + address
        with Peer(ports[count % len(ports)]) as peer:
            try:
                peer.send(dice.choice([b"", b"A", b"M\1\0xA"]) + hello_ + dice.choice([b"", b"RTR", b"G"]))
                while peer.socket.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
            ended += 1
    return ended
