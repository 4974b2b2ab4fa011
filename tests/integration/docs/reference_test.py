"""reference_test.py ROOT BUILD: docs/reference/ says what the programs of this build say.

A program that was not built (hdt-train without torch) is left out, and named.
"""

import os
import subprocess
import sys
import tempfile


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    committed = os.path.join(root, "docs", "reference")
    wrong = compared = 0
    with tempfile.TemporaryDirectory(prefix="hdt-reference-") as folder:
        subprocess.run([os.path.join(root, "tools", "docs"), "--build", build, "--output", folder],
                       check=True)
        for name in sorted(set(os.listdir(committed)) | set(os.listdir(folder))):
            made = os.path.join(folder, name)
            if not os.path.exists(made):
                print(f"not built, not compared: {name}")
                continue
            compared += 1
            if subprocess.run(["diff", "-u", "-N", os.path.join(committed, name), made],
                              check=False).returncode != 0:
                wrong += 1
                print(f"docs/reference/{name} is not what the program says; run tools/docs")
    print(f"{compared} pages compared, {wrong} wrong")
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
