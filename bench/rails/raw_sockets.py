"""raw_sockets.py: the bound of striping. One plain TCP connection a pair of NICs, all sending and receiving
at once, and nothing done with the bytes. Run on both hosts: raw_sockets.py listen|connect SECONDS OURS=THEIRS
... ; prints bytes received a second."""

import socket
import sys
import threading
import time

PORT = 19000
BLOCK = bytes(1 << 20)
CONNECT_S = 10


def open_pair(role, index, ours, theirs):
    if role == "listen":
        with socket.create_server((ours, PORT + index)) as listener:
            listener.settimeout(CONNECT_S)
            return listener.accept()[0]
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection((theirs, PORT + index), CONNECT_S, (ours, 0))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def send(connection, until):
    connection.settimeout(1)
    try:
        while time.monotonic() < until:
            connection.send(BLOCK)
    except OSError:
        pass  # the other end is done


def receive(connection, begin, until, counts, index):
    connection.settimeout(1)
    buffer = bytearray(1 << 20)
    try:
        while (now := time.monotonic()) < until:
            got = connection.recv_into(buffer)
            if got == 0:
                return
            if now >= begin:
                counts[index] += got
    except OSError:
        pass


def main():
    role, seconds, pairs = sys.argv[1], float(sys.argv[2]), [pair.split("=") for pair in sys.argv[3:]]
    connections = [open_pair(role, index, *pair) for index, pair in enumerate(pairs)]
    counts = [0] * len(pairs)
    begin = time.monotonic() + 1  # when the windows have opened
    threads = []
    for index, connection in enumerate(connections):
        threads.append(threading.Thread(target=send, args=(connection, begin + seconds)))
        threads.append(threading.Thread(target=receive,
                                        args=(connection, begin, begin + seconds, counts, index)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts) / seconds)


if __name__ == "__main__":
    main()
