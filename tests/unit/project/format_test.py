"""format_test.py: every file of C++ is as clang-format writes it (.clang-format; the version stands in
project_rules.py)."""

import os
import re
import shutil
import subprocess
import sys
import unittest

import project_rules

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
FORMATTER = f"clang-format-{project_rules.CLANG_VERSION}"
SKIPPED = 77


class Format(unittest.TestCase):
    def test_is_clang_formats(self):
        files = [path for path in project_rules.files_of(ROOT) if re.search(r"\.(h|hpp|cc|c)$", path)]
        self.assertGreater(len(files), 500)
        done = subprocess.run([FORMATTER, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True,
                              text=True, timeout=120, check=False)
        mend = f"mend it with: {FORMATTER} -i FILE"
        self.assertEqual(done.returncode, 0, f"{done.stderr[:4000]}\n{mend}")

    def test_would_see_another_format(self):
        done = subprocess.run([FORMATTER, "--dry-run", "-Werror", "--assume-filename=base/a.cc"], cwd=ROOT,
                              text=True, input="int  a ;\n", capture_output=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    if not shutil.which(FORMATTER):
        print(f"skipped: there is no {FORMATTER} (Debian: clang-format)")
        sys.exit(SKIPPED)
    unittest.main()
