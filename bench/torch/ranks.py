"""ranks.py: starts a benchmark of this folder once for each rank, and ends all ranks when one fails."""

import os
import subprocess
import sys
import tempfile
import time


def run(build, nodes, local):
    """Runs the program itself, with its own arguments, by `local` ranks on each of `nodes` (loopback
    addresses). Each gets --rank, and --store, a file where they meet. `build` has HDT's modules; None: the
    program needs none. Returns 0, or 1 if a rank failed."""
    modules = {} if build is None else {"PYTHONPATH": os.path.join(build, "python")}
    with tempfile.TemporaryDirectory(prefix="hdt-bench-torch-") as folder:
        ranks = []
        for rank in range(nodes * local):
            node = rank // local
            runtime = os.path.join(folder, f"node{node}")
            os.makedirs(runtime, mode=0o700, exist_ok=True)
            ranks.append(subprocess.Popen(
                [sys.executable, "-B", os.path.abspath(sys.argv[0]), *sys.argv[1:], "--rank", str(rank),
                 "--store", os.path.join(folder, "store")],
                env=os.environ | modules | {"OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": runtime,
                                            "HDT_LOG_LEVEL": "error",
                                            "HDT_NICS_ADDRESSES": f"127.0.0.{node + 1}"}))
        # The others of a rank that fails would wait for a deadline.
        while any(process.poll() is None for process in ranks):
            if any(process.poll() for process in ranks):
                for process in ranks:
                    process.kill()
            time.sleep(0.1)
    return 1 if any(process.returncode for process in ranks) else 0
