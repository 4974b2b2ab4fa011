"""protocol.py: what processes say to their daemon and daemons to each other, for programs that say it
wrongly. Numbers that change from release to release are read from the headers that define them; what the
messages hold stands here once."""

import array
# getaddrinfo() loads it, which an attacker cannot where the interpreter lives in a home folder.
import encodings.idna  # noqa: F401
import fcntl
import hashlib
import hmac
import mmap
import os
import re
import socket
import struct
import subprocess
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
WAIT_S = 10  # for an answer


def _header(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def constant(path, name):
    """The value of `constexpr ... name = value;` in a header."""
    return int(re.search(rf"\b{name} = (\w+);", _header(path)).group(1), 0)


def _kinds():
    body = re.search(r"enum class Kind : uint8_t \{(.*?)\};", _header("ipc/messages.h"), re.S).group(1)
    names = re.findall(r"^\s*k(\w+)(?: = 1)?,", re.sub(r"//.*", "", body), re.M)
    return {name: number for number, name in enumerate(names, 1)}


KINDS = _kinds()  # {"Hello": 1, ...}
KIND_NAMES = {number: name for name, number in KINDS.items()}
SESSION_MAGIC = constant("ipc/messages.h", "kSessionMagic")
SESSION_VERSION = constant("ipc/messages.h", "kSessionVersion")
SEGMENT_MAGIC = constant("ipc/segment.h", "kSegmentMagic")
SEGMENT_VERSION = constant("ipc/segment.h", "kSegmentVersion")
PEER_MAGIC = constant("daemon/protocol/handshake.h", "kPeerMagic")
PEER_VERSION = constant("daemon/protocol/handshake.h", "kPeerVersion")
FRAME_MAGIC = constant("transports/tcp/frame.h", "kFrameMagic")
FRAME_VERSION = constant("transports/tcp/frame.h", "kFrameVersion")
HELLO_MAGIC = constant("transports/tagged/control.h", "kHelloMagic")
HELLO_VERSION = constant("transports/tagged/control.h", "kHelloVersion")
MESSAGE, WRITE, GOODBYE, REFUSED, PATH = 1, 2, 3, 4, 5  # types of frames
# steps of the test of the path (transports/tcp/path_test.h), without sizes
PATH_HERE, PATH_ALL, PATH_SEEN = 1, 3, 4
CONTROL, RAIL = 1, 2  # purposes of connections between daemons
IMMEDIATE_BYTES = 64


def text(words):
    data = words if isinstance(words, bytes) else words.encode()
    return struct.pack("<I", len(data)) + data


class Fields:
    """Reads a message from its beginning."""

    def __init__(self, data):
        self.rest = data

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.rest)
        self.rest = self.rest[struct.calcsize("<" + layout):]
        return values[0] if len(values) == 1 else values

    def bytes(self, count):
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def text(self):
        return self.bytes(self.take("I")).decode(errors="replace")


# --- a process and its daemon: one packet is one message ---

def hello(version=SESSION_VERSION, magic=SESSION_MAGIC):
    return struct.pack("<BII", KINDS["Hello"], magic, version) + text("libhdt 0.1.0")


def empty(kind):
    return struct.pack("<B", KINDS[kind])


def join(request, key, rendezvous, ranks=1, rank=0, group_class="hostile", timeout_ms=5000, host=0, meeting=0,
         place="", age_ms=0, code=0, words=""):
    return (struct.pack("<BI", KINDS["Join"], request) + key + struct.pack("<BB", meeting, host) +
            text(rendezvous) + text(place) +
            struct.pack("<qII", age_ms, ranks, rank) + text(group_class) +
            struct.pack("<qi", timeout_ms, code) + text(words))


def adopt(handle, engine, local):
    return struct.pack("<BIII", KINDS["Adopt"], handle, engine, local)


def notice(kind, handle, code, rank, words):
    return struct.pack("<BIii", KINDS[kind], handle, code, rank) + text(words)


def memory_request(kind, request, handle, memory):
    return struct.pack("<BIIQ", KINDS[kind], request, handle, memory)


def ask(what, about=""):
    return empty("Ask") + text(what) + text(about)


def explain(group, what, data_type, count, root=0):
    return empty("Explain") + text(group) + text(what) + text(data_type) + struct.pack("<Qi", count, root)


def segment_header(ranks, nodes, node, local_ranks, group, group_class=b"hostile", key=bytes(32)):
    """Of a group's memory, as far as it tells of what the group is like."""
    return struct.pack("<Q6IQ32s32sq", SEGMENT_MAGIC, SEGMENT_VERSION, ranks, nodes, node, local_ranks, 1,
                       group, group_class, key, 0)


def sealed_memory(size, name="hostile"):
    """A descriptor of memory as the daemon takes it."""
    add_seals, seal, shrink, grow = 1033, 1, 2, 4
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, add_seals, seal | shrink | grow)
    return descriptor


class Refused(Exception):
    """The daemon has ended the session, and says why."""


class Client:
    """A session with the daemon at `path`. Descriptors that come are closed by whoever gets them."""

    def __init__(self, path, greet=True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(path)
        if greet:
            try:
                self.send(hello())
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was turned away before it said anything, and is told why
            kind, _, descriptors = self.receive()
            assert kind == "Welcome", kind
            close_all(descriptors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data, descriptors=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                      array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([data], ancillary)

    def receive(self):
        """(kind, Fields, descriptors). A refusal raises Refused, an end without a word EOFError."""
        room = socket.CMSG_SPACE(64 * 4)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, room)
        except ConnectionResetError:  # told once, before what the daemon had said last
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, room)
        descriptors = []
        for level, kind, body in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                some = array.array("i")
                some.frombytes(body[:len(body) // 4 * 4])
                descriptors += list(some)
        if not data:
            raise EOFError
        fields = Fields(data[1:])
        if data[0] == KINDS["Refused"]:
            close_all(descriptors)
            fields.take("i")
            raise Refused(fields.text())
        return KIND_NAMES.get(data[0], data[0]), fields, descriptors

    def receive_kind(self, wanted):
        """The next message of this kind; others are passed over."""
        while True:
            kind, fields, descriptors = self.receive()
            if kind == wanted:
                return fields, descriptors
            close_all(descriptors)

    def json(self, question):
        """(code, words) of an answer that comes as a text in shared memory."""
        self.send(question)
        kind, fields, descriptors = self.receive()
        code = fields.take("i") if kind != "StatusIs" else 0
        if not descriptors:
            return code, fields.text()
        with mmap.mmap(descriptors[0], os.fstat(descriptors[0]).st_size, prot=mmap.PROT_READ) as memory:
            words = memory[:].rstrip(b"\0").decode()
        close_all(descriptors)
        return code, words

    def rendezvous(self):
        self.send(empty("Rendezvous"))
        fields, _ = self.receive_kind("RendezvousAt")
        fields.take("i")
        return fields.text()

    def join(self, **values):
        """Joins a group: {code, text, handle, engine, local, secret, segment}; the segment is a descriptor
        or None."""
        self.send(join(**values))
        return self.joined()

    def joined(self):
        fields, descriptors = self.receive_kind("Joined")
        names = ("request", "code")
        answer = dict(zip(names, fields.take("Ii")))
        answer["text"] = fields.text()
        answer["handle"], answer["engine"], answer["local"] = fields.take("III")
        answer["secret"] = fields.bytes(32)
        answer["segment"] = descriptors[0] if descriptors else None
        return answer


def close_all(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


# --- daemons on TCP: frames ---

def frame(kind, payload=b"", region=0, offset=0, immediate=b"", length=None, version=FRAME_VERSION,
          magic=FRAME_MAGIC):
    return struct.pack("<IBBHIIQQ", magic, version, kind, 0, len(payload) if length is None else length, 0,
                       region, offset) + immediate + payload


def path_test():
    """What who dials says in the test of the path, with which each connection begins."""
    return frame(PATH, region=PATH_HERE) + frame(PATH, region=PATH_ALL)


class NodeKey:
    """The node key of a daemon: what daemon/protocol/trust.h says of it. openssl signs, where anything is
    to be signed."""

    def __init__(self):
        made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True,
                              check=True)
        self.pem = made.stdout
        told = subprocess.run(["openssl", "pkey", "-pubout", "-outform", "DER"], input=self.pem,
                              capture_output=True, check=True)
        self.public = told.stdout[-32:]

    def sign(self, data):
        with tempfile.TemporaryDirectory() as folder:
            key, message = os.path.join(folder, "key"), os.path.join(folder, "message")
            for path, content in ((key, self.pem), (message, data)):
                with open(path, "wb") as file:
                    file.write(content)
            return subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", message],
                                  capture_output=True, check=True).stdout


def node_id(public_key, start):
    return hashlib.sha256(b"HDT node id\0" + public_key + start).digest()[:16]


def peer_hello(purpose, name, public_key=None, start=None, node=None, engine=0, link=0, rail=0,
               group_class="", lasting=0, version=PEER_VERSION, magic=PEER_MAGIC):
    """`node`: another id than the one that belongs to the key."""
    public_key, start = public_key or os.urandom(32), start or os.urandom(16)
    return (struct.pack("<BIIB", 1, magic, version, purpose) + (node or node_id(public_key, start)) +
            text(name) +
            struct.pack("<III", engine, link, rail) + text(group_class) + public_key + start +
            struct.pack("<B", lasting) +
            os.urandom(32))


def transcript(role, dialer, acceptor, binding=bytes(32)):
    return (b"HDT handshake\0" + struct.pack("<B", role) + binding + struct.pack("<I", len(dialer)) + dialer +
            struct.pack("<I", len(acceptor)) + acceptor)


class Peer:
    """A TCP connection to a port of a daemon, as another daemon makes one. `address`: "127.0.1.1:4000"; or a
    connection that a daemon has made."""

    def __init__(self, address):
        self.dials = not isinstance(address, socket.socket)
        if not self.dials:
            self.socket = address
            self.socket.settimeout(WAIT_S)
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def need(self, count):
        while len(self.buffer) < count:
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError
            self.buffer += more
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def receive_frame(self):
        """(type, payload, region, offset)."""
        _, _, kind, _, length, _, region, offset = struct.unpack("<IBBHIIQQ", self.need(32))
        if kind == WRITE:
            self.need(IMMEDIATE_BYTES)
        return kind, self.need(length), region, offset

    def receive(self):
        kind, payload, step, _ = self.receive_frame()
        while kind == PATH:
            if step == PATH_ALL and not self.dials:
                self.send(frame(PATH, region=PATH_HERE) + frame(PATH, region=PATH_ALL) +
                          frame(PATH, region=PATH_SEEN))
            kind, payload, step, _ = self.receive_frame()
        if kind == REFUSED:
            raise Refused(payload.decode(errors="replace"))
        if kind == GOODBYE:
            raise EOFError
        return payload

    def handshake(self, purpose=CONTROL, name="stranger", key=b"", node_key=None, start=None, **values):
        """Of who dials. `key`: the cluster's, as far as it is known; `node_key`: a NodeKey, needed with
        it."""
        public, start = node_key.public if node_key else os.urandom(32), start or os.urandom(16)
        self.node = values.get("node") or node_id(public, start)
        own = peer_hello(purpose, name, public, start, **values)
        self.send(frame(PATH, region=PATH_HERE) + frame(PATH, region=PATH_ALL) + frame(MESSAGE, own))
        theirs = self.receive()
        words = transcript(0, own, theirs)
        proof = hmac.new(key, words, hashlib.sha256).digest() + node_key.sign(words) if key else b""
        self.send(frame(MESSAGE, b"\x02" + proof))
        self.receive()

    def answer_handshake(self, name="stranger"):
        """Of who is dialled, without a cluster key. (node, name) of the daemon that dials."""
        hello = Fields(self.receive())
        hello.take("BIIB")
        theirs = hello.bytes(16), hello.text()
        self.node = node_id(public := os.urandom(32), start := os.urandom(16))
        self.send(frame(MESSAGE, peer_hello(CONTROL, name, public, start)))
        self.send(frame(MESSAGE, b"\x02"))
        self.receive()
        return theirs

    def receive_control(self):
        message = b""
        while True:
            part = self.receive()
            message += part[1:]
            if part[:1] == b"\1":
                return message

    def control(self, message, part=8191):
        """A control message, cut as daemons do it."""
        while True:
            now, message = message[:part], message[part:]
            self.send(frame(MESSAGE, (b"\0" if message else b"\1") + now))
            if not message:
                return


class FakeDaemon:
    """Listens as the control port of a daemon does."""

    def __init__(self, host="127.0.0.1"):
        self.socket = socket.create_server((host, 0))
        self.socket.settimeout(WAIT_S)
        self.address = f"{host}:{self.socket.getsockname()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        return Peer(self.socket.accept()[0])


def node_info(node, name, address, engines):
    """`engines`: of each the list of its (backend, NIC, address)."""
    data = node + text(name) + text(address) + struct.pack("<I", len(engines))
    for ends in engines:
        data += struct.pack("<I", len(ends)) + b"".join(text(part) for end in ends for part in end)
    return data


def control_join(key, ranks, rank, node, group_class="hostile", timeout_ms=5000, algorithm=0xff, meeting=0,
                 pid=1, uid=65534, age_ms=0):
    return (b"\1" + key + struct.pack("<II", ranks, rank) + text(group_class) +
            struct.pack("<Bq", algorithm, timeout_ms) + node +
            struct.pack("<BIIq", meeting, pid, uid, age_ms))


def control_cancel(key, code, rank, words):
    return b"\2" + key + struct.pack("<iI", code, rank) + text(words)


def control_membership(key, secret, group_class, nodes, node_of_rank):
    return (b"\3" + key + secret + text(group_class) + struct.pack("<I", len(nodes)) + b"".join(nodes) +
            struct.pack(f"<I{len(node_of_rank)}I", len(node_of_rank), *node_of_rank))


def control_outcome(key, code, rank, words):
    return b"\4" + key + struct.pack("<ii", code, rank) + text(words)


def control_reply(number, code, words):
    return b"\6" + struct.pack("<Qiq", number, code, time.monotonic_ns()) + text(words)


def control_inquiry(number, what, sees_all=True, user=None, groups=()):
    """On behalf of a user, who sees everything or is in these groups."""
    viewer = struct.pack("<BBII", sees_all, user is not None, user or 0, len(groups))
    return b"\5" + struct.pack("<Q", number) + text(what) + viewer + b"".join(map(text, groups))
