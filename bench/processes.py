"""processes.py: how benchmarks start and end the programs they compare."""

import os
import random
import secrets
import signal
import socket
import subprocess

LIMIT_S = 30
PORTS, PORT_TRIES = range(20000, 32000), 100


def clean_environment(**more):
    """Without what would make a program part of another job, choose its daemon, or configure its MPI."""
    foreign = ("HDT_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "MPICH_", "MPIR_CVAR_")
    return {**{key: value for key, value in os.environ.items() if not key.startswith(foreign)}, **more}


def cluster_key(folder):
    """The file of a cluster key in the folder, made at the first call: daemons of several hosts need one."""
    path = os.path.join(folder, "cluster.key")
    if not os.path.exists(path):
        fresh = f"{path}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        os.rename(fresh, path)
    return path


def run_to_success(command, environment, limit_s):
    """Its output. RuntimeError if it fails or takes longer; whatever happens, none of its processes is
    left."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"'{' '.join(command)}' did not end within {limit_s} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        lines = (errors.strip() or output.strip() or "no message").splitlines()
        raise RuntimeError(f"'{' '.join(command)}' ended with {process.returncode}: {lines[0]}")
    return output


def end(processes, limit_s=LIMIT_S):
    """In order where they do so in time, else by force."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(address):
    """A TCP port at which nobody listens, nor at the one behind it, where HDT meets beside torch. Not one of
    those that the system gives to connections, which could take it at any moment."""
    for _ in range(PORT_TRIES):
        port = random.choice(PORTS)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind((address, port))
                second.bind((address, port + 1))
                return port
            except OSError:
                continue
    raise RuntimeError(f"no free port at {address} in {PORT_TRIES} tries")
