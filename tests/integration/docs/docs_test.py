"""docs_test.py ROOT BUILD: runs every block of the documentation that is marked runnable.

The blocks of one page run one after the other in one empty folder, as a reader would; $PREFIX is an installed
tree, the build's programs are in PATH.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

import doc_blocks

BLOCK_TIMEOUT_S = 120


def of_session(session):
    """(pid, description) of each process of the session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                state, parent, _, of, *_ = file.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read().replace("\0", " ").strip()
            with open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
                waits_in = file.read()
        except OSError:  # it has ended meanwhile
            continue
        if int(of) == session:
            found.append((int(pid), f"pid {pid}, parent {parent}, state {state}, waits in {waits_in}: "
                                    f"{command}"))
    return found


def run_block(text, folder, environment, limit_s=BLOCK_TIMEOUT_S):
    """Exit code and output. A block that does not end is ended with all processes of its session, which are
    described behind its output: they may explain it, and would be in the way of the next block."""
    with subprocess.Popen(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", start_new_session=True) as block:
        try:
            output, _ = block.communicate(timeout=limit_s)
            return block.returncode, output
        except subprocess.TimeoutExpired:
            left = of_session(block.pid)
            for pid, _ in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            output, _ = block.communicate(timeout=BLOCK_TIMEOUT_S)
            return "timeout", "\n".join([output, f"--- not ended after {limit_s} s:",
                                         *(what for _, what in left), ""])


def run_page(page, environment):
    failures = ran = 0
    with tempfile.TemporaryDirectory(prefix="hdt-docs-") as folder:
        for file, text, line in doc_blocks.blocks(page):
            if file:
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(text)
                continue
            ran += 1
            code, output = run_block(text, folder, environment)
            print(f"{page}:{line}: {'ok' if code == 0 else f'FAILED ({code})'}", flush=True)
            if code != 0:
                failures += 1
                print(text + "---\n" + output + "---", flush=True)
    return ran, failures


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    environment = dict(os.environ, PATH=os.path.join(build, "bin") + ":" + os.environ["PATH"], BUILD=build,
                       OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
    total = failed = 0
    with tempfile.TemporaryDirectory(prefix="hdt-prefix-") as prefix:
        environment["PREFIX"] = prefix
        subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL)
        for page in doc_blocks.pages(root):
            ran, failures = run_page(page, environment)
            total += ran
            failed += failures
    print(f"{total} blocks run, {failed} failed")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
