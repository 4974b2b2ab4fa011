"""sandbox_test.py ROOT BUILD [TESTS FILTER]: the service's unit file. Without TESTS: how it is judged, and
that its restrictions hold; with TESTS: that program of the test suite, each hdtcommd of which runs inside of
them.
"""

import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import sandbox

ROOT, BUILD = map(os.path.realpath, sys.argv[1:3])
UNIT = os.path.join(ROOT, "dist", "hdtcommd.service")
EXPOSURE = 3.0
SKIPPED = 77
ANALYZE = "systemd-analyze"


def why_not():
    """Why nothing can be run in the sandbox here; empty: it can be."""
    if os.geteuid() != 0:
        return "needs root, for another user's processes and a mount namespace"
    if shutil.which(ANALYZE) is None:
        return f"{ANALYZE} is missing, which knows the groups of system calls (Debian package systemd)"
    if any(is_sanitized(os.path.join(BUILD, "bin", name)) for name in ("hdtcommd",)):
        return "the sanitizers need system calls that the sandbox refuses"
    folder = BUILD
    while folder != "/":
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return f"{folder} is closed to other users, and the daemon is to run as one"
        folder = os.path.dirname(folder)
    done = subprocess.run([*SANDBOX, os.path.join(BUILD, "tests", "sandbox_probe")], capture_output=True,
                          text=True, timeout=60, check=False)
    if "Operation not permitted" in done.stderr and done.returncode != 0:
        return "this machine does not let root make it: " + done.stderr.strip().splitlines()[-1]
    return ""


def is_sanitized(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=False)
    return "libasan" in done.stdout or "libtsan" in done.stdout


SANDBOX = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox.py"), UNIT,
           BUILD]


class Unit(unittest.TestCase):
    def test_exposure(self):
        if shutil.which(ANALYZE) is None:
            self.skipTest(f"{ANALYZE} is missing (Debian package systemd)")
        done = subprocess.run([ANALYZE, "--no-pager", "security", "--offline=yes", UNIT], capture_output=True,
                              text=True, timeout=60, check=False)
        line = [line for line in done.stdout.splitlines() if "Overall exposure level" in line]
        self.assertEqual(len(line), 1, done.stdout + done.stderr)
        print(line[0])
        self.assertLessEqual(float(line[0].split(":")[1].split()[0]), EXPOSURE, done.stdout)

    def test_drop_ins_and_files_beside_it_are_there(self):
        for name in ("rdma.conf", "ucx.conf", "hdt.sysusers", "hdt.tmpfiles"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "dist", name)), name)

    def test_unknown_settings_are_not_left_out_unseen(self):
        with tempfile.NamedTemporaryFile("w", suffix=".service") as file:
            file.write("[Service]\nProtectEverything=yes\n")
            file.flush()
            with self.assertRaisesRegex(ValueError, "ProtectEverything"):
                sandbox.read_service(file.name)


class Sandbox(unittest.TestCase):
    def setUp(self):
        if REASON:
            self.skipTest(REASON)

    def test_what_it_refuses_and_what_it_does_not(self):
        with tempfile.TemporaryDirectory(prefix="hdt-sandbox-") as folder:
            done = subprocess.run([*SANDBOX, os.path.join(BUILD, "tests", "sandbox_probe"), "--node.socket",
                                   os.path.join(folder, "n.sock")], capture_output=True, text=True,
                                  timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = dict(line.split() for line in done.stdout.splitlines())
        told = {what: int(number) for what, number in told.items()}
        self.assertNotEqual(told.pop("uid"), 0)
        refused = {"write_etc": {30}, "write_usr": {30}, "write_sysctl": {13, 30}, "see_kmsg": {2},
                   "see_root": {2},
                   "packet": {97}, "bluetooth": {97}, "raw": {1, 93}, "ptrace": {1}, "namespace": {1},
                   "mount": {1}, "setuid": {1}, "bpf": {1}, "keyring": {1}, "write_and_execute": {1}}
        for what, errors in refused.items():
            self.assertIn(told.pop(what), errors, what)
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.assertIn(told.pop("files"), {524288, allowed})
        self.assertEqual(told, dict.fromkeys(told, 0))
        self.assertIn("pidfd", told)


def run_tests(program, only):
    """The exit code of the test program: its daemons are started through a program that enters the sandbox
    first."""
    if REASON:
        print("skipped:", REASON)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="hdt-sandbox-") as folder:
        wrapper = os.path.join(folder, "hdtcommd")
        with open(wrapper, "w", encoding="utf-8") as file:
            words = " ".join(f"'{word}'" for word in [*SANDBOX, os.path.join(BUILD, "bin", "hdtcommd")])
            file.write(f'#!/bin/sh\nexec {words} "$@"\n')
        os.chmod(wrapper, 0o755)
        return subprocess.run([os.path.join(BUILD, "tests", program), "--gtest_filter=" + only],
                              env=os.environ | {"HDT_TEST_HDTCOMMD": wrapper}, check=False).returncode


REASON = why_not()

if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(run_tests(sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "*"))
    unittest.main(argv=sys.argv[:1], verbosity=2)
