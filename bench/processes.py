"""processes.py: how benchmarks start and end the programs they compare."""

import os
import signal
import socket
import subprocess

LIMIT_S = 30


def clean_environment(**more):
    """Without what would make a program part of another job, or choose its daemon."""
    foreign = ("HDT_", "OMPI_", "PMIX_")
    return {**{key: value for key, value in os.environ.items() if not key.startswith(foreign)}, **more}


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
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]
