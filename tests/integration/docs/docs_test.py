"""docs_test.py ROOT BUILD: runs every block of the documentation that is marked runnable.

The blocks of one page run one after the other in one empty folder, as a reader would; $PREFIX is an installed
tree, the build's programs are in PATH.
"""

import os
import subprocess
import sys
import tempfile

import doc_blocks

BLOCK_TIMEOUT_S = 120


def run_page(page, environment):
    failures = ran = 0
    with tempfile.TemporaryDirectory(prefix="hdt-docs-") as folder:
        for file, text, line in doc_blocks.blocks(page):
            if file:
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(text)
                continue
            ran += 1
            try:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, timeout=BLOCK_TIMEOUT_S,
                                      check=False)
                code, output = done.returncode, done.stdout
            except subprocess.TimeoutExpired as error:
                code, output = "timeout", (error.stdout or b"").decode(errors="replace")
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
