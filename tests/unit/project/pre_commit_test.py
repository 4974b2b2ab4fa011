"""pre_commit_test.py: the hook .githooks/pre-commit in a repository with files of the project: what is staged
decides, and each kind of fault refuses the commit."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import project_rules

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
FORMATTER = f"clang-format-{project_rules.CLANG_VERSION}"
TIMEOUT_S = 60
SKIPPED = 77
GOOD = "// a.cc: adds.\nint add(int a, int b) { return a + b; }\n"


class PreCommit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hdt-hook-")
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "a tree")
        for path in (".githooks/pre-commit", ".clang-format", "tests/unit/project/project_rules.py"):
            os.makedirs(os.path.join(self.root, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))
        # Neither the user's settings nor the repository in whose hook this test may run.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment |= {"HOME": folder.name, "TMPDIR": folder.name, "GIT_CONFIG_NOSYSTEM": "1"}
        self.git("init", "--quiet")
        for setting in (("user.name", "test"), ("user.email", "test@localhost"),
                        ("core.hooksPath", ".githooks")):
            self.git("config", *setting)
        self.stage("base/a.cc", GOOD)
        self.git("add", "--all")
        self.assertEqual(self.commit().returncode, 0)

    def git(self, *words, **more):
        return subprocess.run(["git", *words], cwd=self.root, env=self.environment | more, timeout=TIMEOUT_S,
                              capture_output=True, text=True, check=words[0] != "commit")

    def stage(self, path, text):
        os.makedirs(os.path.join(self.root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)
        self.git("add", path)

    def commit(self, **more):
        return self.git("commit", "--quiet", "-m", "test", **more)

    def assert_refused(self, reason):
        done = self.commit()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(reason, done.stderr)
        return done.stderr

    def test_a_file_in_order_is_committed(self):
        self.stage("base/b c.cc", GOOD.replace("a.cc", "b c.cc"))
        done = self.commit()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        left = [name for name in os.listdir(os.path.dirname(self.root)) if "pre-commit" in name]
        self.assertEqual(left, [])

    def test_format(self):
        self.stage("base/a.cc", GOOD.replace("int b", "int  b"))
        self.assertIn(FORMATTER + " -i", self.assert_refused("base/a.cc:2"))

    def test_rules(self):
        self.stage("base/a.cc", '#include "daemon/daemon.h"\n')
        self.assert_refused("base may include only")
        self.stage("base/a.cc", GOOD)
        self.stage("tools/x.py", '"""x.py: wide."""\n\n# ' + 110 * "a" + "\n")
        self.assert_refused("tools/x.py:3: 112 columns")

    def test_what_is_staged_decides(self):
        self.stage("base/a.cc", GOOD + "int  c;\n")
        path = os.path.join(self.root, "base/a.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(GOOD)
        self.assert_refused("base/a.cc:3")
        self.stage("base/a.cc", GOOD + "int c;\n")
        with open(path, "a", encoding="utf-8") as file:
            file.write("int  d;\n")
        self.assertEqual(self.commit().returncode, 0)

    def test_without_the_formatter_it_says_so_and_keeps_the_rules(self):
        tools = os.path.join(os.path.dirname(self.root), "bin")
        os.mkdir(tools)
        os.symlink(sys.executable, os.path.join(tools, "python3"))
        for name in ("bash", "env", "git", "mktemp", "rm"):
            os.symlink(os.path.realpath(shutil.which(name)), os.path.join(tools, name))
        self.stage("base/a.cc", GOOD + "int c;\n")
        done = self.commit(PATH=tools)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"there is no {FORMATTER}", done.stderr)


if __name__ == "__main__":
    for program in ("git", FORMATTER):
        if not shutil.which(program):
            print(f"skipped: there is no {program} (Debian: git, clang-format)")
            sys.exit(SKIPPED)
    unittest.main()
