"""tidy_test.py: clang-tidy finds nothing in the files that the latest commits changed (tools/tidy), and its
configuration finds what it is there for."""

import os
import subprocess
import sys
import tempfile
import unittest

import project_rules

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
TIDY = os.path.join(ROOT, "tools", "tidy")
SKIPPED = 77
USE_AFTER_MOVE = """#include <string>
#include <utility>
std::string taken(std::string text) {
  const std::string other = std::move(text);
  return text + other;
}
"""


def run(*command):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    return done.returncode, done.stdout


class Tidy(unittest.TestCase):
    def test_nothing_is_found_in_what_was_changed(self):
        code, output = OF_CHANGES
        self.assertEqual(code, 0, output)

    def test_a_use_after_a_move_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "moved.cc")
            with open(path, "w", encoding="utf-8") as file:
                file.write(USE_AFTER_MOVE)
            code, output = run(f"clang-tidy-{project_rules.CLANG_VERSION}",
                               f"--config-file={ROOT}/.clang-tidy", path, "--", "-std=c++20")
        self.assertNotEqual(code, 0)
        self.assertIn("bugprone-use-after-move", output)

    def test_wrong_use_is_refused(self):
        for wrong in (["README.md"], ["--all", "base/log.cc"]):
            code, output = run(TIDY, *wrong)
            self.assertEqual(code, 2, output)


if __name__ == "__main__":
    OF_CHANGES = run(TIDY)
    if OF_CHANGES[0] == SKIPPED:
        print(OF_CHANGES[1])
        sys.exit(SKIPPED)
    unittest.main()
