"""programs.py: one run of each program that moves bytes between two processes: ours, and the peers' own
tools. Each returns MB/s."""

import json
import os
import re
import shutil
import subprocess
import time

from processes import clean_environment, end, free_port

LIMIT_S = 60
TRY_AGAIN_S = 0.05
SERVER, CLIENT = "127.0.1.2", "127.0.1.1"
MEGA = 1e6
# ucx_perftest and ib_write_bw count MB of 2^20 bytes.
MEBI_AS_MEGA = (1 << 20) / MEGA


class NotPossible(RuntimeError):
    """A program or a device is missing; the text says which."""


def need(program):
    found = shutil.which(program)
    if found is None:
        raise NotPossible(f"{program} is not installed (tools/setup installs it)")
    return found


def run(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          stdin=subprocess.DEVNULL, env=env or clean_environment())
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"'{' '.join(command)}' ended with {done.returncode}: {lines[-1]}")
    return done.stdout


def number_in(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no bandwidth in: {text.strip()[-300:]}")
    return float(found.group(1))


def beside_server(server_command, client_command, env, figure):
    """figure(the client's output). Servers do not say when they listen, so the client tries again until
    the limit."""
    deadline = time.monotonic() + LIMIT_S
    with subprocess.Popen(server_command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, env=env) as server:
        try:
            while True:
                try:
                    return figure(run(client_command, env))
                except RuntimeError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(TRY_AGAIN_S)
        finally:
            end([server])
            server.communicate()


def hdt(build, backend, size, writes, connections=1, options=()):
    program = os.path.join(build, "bin", "backend_bandwidth")
    output = run([program, CLIENT, SERVER, str(size), str(writes), str(connections), backend, *options],
                 clean_environment(UCX_LOG_LEVEL="error"))
    return number_in(r"connections: ([\d.]+) MB/s", output)


def iperf3(size, writes, connections):
    """As many bytes, in calls of as many, with the congestion control that HDT takes between addresses of
    one node."""
    program, port = need("iperf3"), str(free_port(SERVER))
    def figure(output):
        document = json.loads(output)
        if "error" in document:  # of which its exit code does not tell
            raise RuntimeError(f"iperf3: {document['error']}")
        return document["end"]["sum_received"]["bits_per_second"] / 8 / MEGA

    return beside_server([program, "-s", "-1", "-B", SERVER, "-p", port],
                           [program, "-c", SERVER, "-B", CLIENT, "-p", port, "-P", str(connections), "-l",
                            str(min(size, 1 << 20)),
                            "-n", str(size * writes), "-C", "reno", "-J"], clean_environment(), figure)


def fi_pingpong(size, writes, provider):
    """It waits for each answer, which carries as much: its figure is of both directions, one after the
    other."""
    program, port = need("fi_pingpong"), str(free_port(SERVER))
    common = ["-e", "rdm", "-p", provider, "-S", str(size), "-I", str(max(10, writes // 4))]
    # bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
    return beside_server([program, *common, "-B", port],
                         [program, *common, "-P", port, SERVER if provider != "shm" else "127.0.0.1"],
                         clean_environment(),
                         lambda output: number_in(r"^\S+\s+\S+\s+\S+\s+\S+\s+\S+s\s+([\d.]+)", output))


def ucx_perftest(size, writes, transport):
    """With the error handling that HDT cannot do without: it excludes UCX's shared memory."""
    program, port = need("ucx_perftest"), str(free_port(SERVER))
    env = clean_environment(UCX_TLS=transport, UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error")
    common = ["-p", port, "-t", "tag_bw", "-s", str(size), "-e"]
    # Final: iterations, typical, average and overall time, average and overall MB/s, messages/s
    return MEBI_AS_MEGA * beside_server(
        [program, *common], [program, *common, "-n", str(writes), "-w", str(writes // 10), SERVER], env,
        lambda output: number_in(r"^Final:\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+([\d.]+)", output))


def rdma(build, addresses, size, writes):
    output = run([os.path.join(build, "bin", "rdma_bandwidth"), *addresses, str(size), str(writes)])
    return number_in(r"bytes: ([\d.]+) MB/s", output)


def ib_write_bw(devices, gid, address, size, writes):
    program, port = need("ib_write_bw"), str(free_port(SERVER))
    common = ["-s", str(size), "-n", str(writes), "-x", gid, "-F", "-p", port]
    return MEBI_AS_MEGA * beside_server(
        [program, "-d", devices[1], *common], [program, "-d", devices[0], *common, address],
        clean_environment(), lambda output: number_in(rf"^\s*{size}\s+\d+\s+[\d.]+\s+([\d.]+)", output))
