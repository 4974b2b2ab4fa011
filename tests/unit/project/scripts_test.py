"""scripts_test.py: the scripts refuse wrong usage in one line, and their steps report success, failure and
sums."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))

from program_module import load_program  # noqa: E402

TIMEOUT_S = 30


def tool(name):
    return os.path.join(ROOT, "tools", name)


def bash(script, folder):
    """Runs a script that has sourced the steps, with its logs in `folder`."""
    text = f'set -euo pipefail\nroot="{folder}"\n. "{ROOT}/tools/common/steps.sh"\n{script}'
    return subprocess.run(["bash", "-c", text, "script"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False)


class Usage(unittest.TestCase):
    def test_wrong_flags_are_refused_in_one_line(self):
        for name in ("setup", "check", "quickstart", "docs"):
            done = subprocess.run([tool(name), "--bogus"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                  check=False)
            self.assertEqual(done.returncode, 2, name)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, rf"^{name}: '--bogus' given; expected .*\n$")

    def test_testhosts_and_what_measures_on_them(self):
        for words in (["tools/testhosts"], ["tools/testhosts", "up", "--rates", "1x"],
                      ["tools/testhosts", "link", "0", "0", "rate"],
                      ["tools/testhosts", "up", "--hosts", "2", "--nics", "1,2,3"],
                      ["bench/failover", "--times", "0"], ["bench/striping", "--rows", "none"],
                      ["bench/protection", "--rounds", "0"], ["bench/unequal", "--rows", "none"],
                      ["tools/openmpi-chroot", "--bogus"], ["tools/openmpi-chroot"],
                      ["tools/soak", "--faults", "none"], ["tools/fuzz", "nothing"],
                      ["tools/fuzz", "--jobs", "0"]):
            done = subprocess.run([os.path.join(ROOT, words[0]), *words[1:]], capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("given" if len(words) > 1 and words[1] != "link" else "", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_the_state_of_testhosts_is_never_found_half_written(self):
        testhosts = load_program(tool("testhosts"))
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
            hosts = testhosts.Hosts("tried")
            hosts.state = {"hosts": [[]], "namespaces": ["first"]}
            hosts.save()
            before = dict(hosts.state)
            hosts.state["namespaces"] = [object()]  # writing it ends in the middle
            with self.assertRaises(TypeError):
                hosts.save()
            self.assertEqual(testhosts.Hosts("tried").load().state, before)

    def test_no_virtual_machine_is_said_with_the_reason(self):
        with tempfile.TemporaryDirectory(prefix="hdt-no-kernel-") as folder:
            with open(os.path.join(folder, "apt-cache"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n")  # knows no kernel
            os.chmod(file.name, 0o755)
            done = subprocess.run([tool("rdma-vm"), "--setup"], capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False,
                                  env=os.environ |
                                  {"RDMA_VM_CACHE": folder, "PATH": folder + ":" + os.environ["PATH"]})
        self.assertEqual(done.returncode, 125, done)
        self.assertRegex(done.stderr, "^rdma-vm: .+\n$")

    def test_help_shows_an_example(self):
        for name in ("setup", "check", "quickstart", "docs", "fuzz"):
            done = subprocess.run([tool(name), "--help"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                  check=False)
            self.assertEqual(done.returncode, 0, name)
            self.assertRegex(done.stdout, "(?i)examples?:")

    def test_the_fuzzers_of_the_tool_are_those_of_the_tree(self):
        fuzz = load_program(tool("fuzz"))
        folder = os.path.join(ROOT, "tests", "fuzz")
        with_target = []
        for name in os.listdir(folder):
            if name.endswith(".cc"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    with_target += [name[:-3]] if "\nHDT_FUZZ_TARGET(" in file.read() else []
        self.assertEqual(sorted(with_target), sorted(fuzz.PARSERS))
        for paths in fuzz.PARSERS.values():
            for path in paths:
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)
        for target in os.listdir(fuzz.CORPUS):
            files = os.listdir(os.path.join(fuzz.CORPUS, target))
            self.assertIn(target, fuzz.PARSERS)
            self.assertLess(len(files), 150, target)

    def test_continuous_integration_does_nothing_but_check(self):
        with open(os.path.join(ROOT, ".ci", "run"), encoding="utf-8") as file:
            commands = [line for line in file if line.strip() and not line.startswith("#")]
        self.assertEqual(len(commands), 1)
        self.assertIn("tools/check", commands[0])


class FailedTests(unittest.TestCase):
    def test_names_the_assertion_and_where_it_stands(self):
        output = ("[ RUN      ] A.good\n[       OK ] A.good (1 ms)\n[ RUN      ] A.bad\n"
                  "a.cc:7: Failure\nValue of: x\n  Actual: 3")
        with tempfile.TemporaryDirectory(prefix="hdt-results-") as folder:
            path = os.path.join(folder, "results.xml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'<testsuite><testcase name="fine"><system-out>fine</system-out></testcase>'
                           f'<testcase name="a_test"><failure message="Failed"/>'
                           f'<system-out>{output}</system-out></testcase></testsuite>')
            absent = os.path.join(folder, "absent.xml")
            done = subprocess.run([sys.executable, tool("common/failed_tests.py"), path, absent],
                                  capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        for words in ("--- a_test (", "[ RUN      ] A.bad", "a.cc:7: Failure", "Actual: 3",
                      f"--- {absent}: "):
            self.assertIn(words, done.stdout)
        for words in ("A.good", "fine"):
            self.assertNotIn(words, done.stdout)


class Steps(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="hdt-steps-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name

    def test_a_step_is_one_line(self):
        done = bash('step "first thing" echo noise\nstep "second" true', self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^first thing +ok +\d+ s \(\d+\)\nsecond +ok +\d+ s \(\d+\)\n$")

    def test_a_failed_step_shows_why_and_ends_the_script(self):
        done = bash('step "breaks" bash -c "echo the reason; exit 7"\nsay "not reached"', self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^breaks +FAILED +\d+ s \(\d+\)\n$")
        self.assertIn("the reason", done.stderr)
        self.assertIn("exit code 7", done.stderr)

    def test_a_signal_ends_the_step_with_all_its_processes(self):
        # The step's grandchild says its pid and sleeps.
        pid_file = os.path.join(self.folder, "pid")
        os.mkfifo(pid_file)
        script = (f'set -euo pipefail\nroot="{self.folder}"\n. "{ROOT}/tools/common/steps.sh"\n'
                  "trap steps_end EXIT\ntrap 'exit 143' TERM\n"
                  f"step long bash -c 'bash -c \"echo \\$\\$ >{pid_file}; exec sleep 600\"; true'\n")
        process = subprocess.Popen(["bash", "-c", script, "script"], stdin=subprocess.DEVNULL)
        with open(pid_file, encoding="utf-8") as file:
            grandchild = os.pidfd_open(int(file.readline()))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 143)
        # Readable once the process has ended.
        self.assertTrue(select.select([grandchild], [], [], TIMEOUT_S)[0])
        os.close(grandchild)

    def test_the_sum_of_check_is_read_from_what_ctest_writes(self):
        with open(tool("check"), encoding="utf-8") as file:
            source = file.read()
        start = source.index("add_results() {")
        function = source[start:source.index("\n}\n", start) + 3]
        results = os.path.join(self.folder, "results.xml")
        with open(results, "w", encoding="utf-8") as file:
            file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="(empty)"\n'
                       '\ttests="7"\n\tfailures="2"\n'
                       '\tdisabled="1"\n\tskipped="1"\n\thostname=""\n\t>\n'
                       '\t<testcase name="x"><system-out>tests="99"</system-out></testcase>\n</testsuite>\n')
        done = bash(f'passed=0; failed=0; skipped=0\n{function}\nadd_results "{results}"\n'
                    f'add_results "{results}"\n'
                    f'add_results "{self.folder}/missing"\nsay "$passed $failed $skipped"', self.folder)
        self.assertEqual(done.stdout, "6 5 4\n", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
