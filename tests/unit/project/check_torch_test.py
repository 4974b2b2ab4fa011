"""check_torch_test.py: tools/check-torch keeps the results of a run whose tests crash, hang or are cut off.
A short program writes the journal in the place of torch's tests, so no torch is needed."""

import contextlib
import io
import os
import signal
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))

from program_module import load_program  # noqa: E402

# Its tests: each is named after what it does.
TESTS = '''
import json, os, signal, sys, time
backend, meant_for, world, nodes, journal, only = sys.argv[1:]
wanted = json.load(sys.stdin)
def write(*event):
    with open(journal, "a") as file:
        file.write(json.dumps(event) + "\\n")
names = [name for name in NAMES if wanted is None or name in wanted]
write("names", names)
for name in names:
    write("begin", name, 0)
    if "crash" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in name:
        time.sleep(600)
    if "exit" in name:
        os._exit(3)
    if "term" in name:
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)
    if name == "nowhere" or (name == "mpi_only" and meant_for != "mpi"):
        write("end", name, "skipped", f"for MPI only, not for {meant_for}")
    else:
        failed = "bad" in name or ("once" in name and meant_for != "hdt")
        write("end", name, "failed" if failed else "passed", "")
'''


class CheckTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hdt-check-torch-")
        self.addCleanup(folder.cleanup)
        self.tool = load_program(os.path.join(ROOT, "tools", "check-torch"))
        self.tool.TESTS = os.path.join(folder.name, "tests.py")
        self.tool.GRACE_S = 0.5

    def run_of(self, names, backend="hdt", minutes=None):
        with open(self.tool.TESTS, "w", encoding="utf-8") as file:
            file.write(f"NAMES = {names!r}\n{TESTS}")
        options = types.SimpleNamespace(build="/nowhere", world=2, nodes=1, only="", log=None, verbose=False)
        run = self.tool.Run(backend, options, self.tool.Clock(minutes))
        self.addCleanup(run.folder.cleanup)
        return run

    def results_of(self, names, **more):
        run = self.run_of(names, **more)
        run.run_all()
        return run.results

    def test_the_tests_behind_one_that_crashes_or_hangs_are_run(self):
        names = ["good", "bad", "crash", "good_2", "hang", "exit", "good_3"]
        results = self.results_of(names)
        self.assertEqual({name: what for name, (what, _) in results.items()},
                         {name: "passed" if name.startswith("good") else "failed" for name in names})
        self.assertIn("SIGKILL", results["crash"][1])
        self.assertIn("in its time", results["hang"][1])
        self.assertIn("exit code 3", results["exit"][1])

    def test_a_test_for_another_backend_is_tried_again(self):
        self.assertEqual(self.results_of(["good", "mpi_only", "crash"])["mpi_only"][0], "passed")
        self.assertEqual(self.results_of(["good_once"])["good_once"][0], "passed")
        self.assertEqual(self.results_of(["mpi_only"], backend="gloo")["mpi_only"],
                         ["skipped", "for MPI only, not for gloo"])
        self.assertEqual(self.results_of(["nowhere"])["nowhere"], ["skipped", "for MPI only, not for gloo"])

    def test_a_run_that_is_cut_off_says_what_was_not_run(self):
        run = self.run_of(["good", "bad", "term", "good_2"])
        for number in (signal.SIGINT, signal.SIGTERM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        run.clock.listen()
        with self.assertRaisesRegex(self.tool.CutOff, "SIGTERM"):
            run.run_all()
        self.assertEqual([run.results[name][0] for name in ("good", "bad", "term", "good_2")],
                         ["passed", "failed", "not run", "not run"])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.tool.report({"hdt": run.results})
        self.assertIn("1 passed, 1 failed, 0 skipped, 2 not run", printed.getvalue())

    def test_the_reason_is_the_last_error_and_who_crashed(self):
        text = ("Process 0 exited with error code 10 and exception:\n  File \"x.py\", line 3, in f\n"
                "AssertionError: 'a' != 'b'\n- a\n+ b\n\n"
                "To execute this test, run the following\n  python x\n")
        self.assertEqual(self.tool.words_of(text), "AssertionError: 'a' != 'b'")
        self.assertEqual(self.tool.words_of("Process 1 timed out"), "Process 1 timed out")
        self.assertEqual(self.tool.words_of("RuntimeError: lost\nrank 1 ended by SIGSEGV"),
                         "RuntimeError: lost; rank 1 ended by SIGSEGV")
        self.assertEqual(self.tool.words_of(""), "")

    def test_the_limit_cuts_off(self):
        run = self.run_of(["good", "hang"], minutes=0.02)
        self.tool.GRACE_S = 60
        with self.assertRaisesRegex(self.tool.CutOff, "limit"):
            run.run_all()
        self.assertEqual(run.results["hang"][0], "not run")

    def test_a_program_that_does_not_begin_is_no_endless_loop(self):
        run = self.run_of([])
        with open(self.tool.TESTS, "w", encoding="utf-8") as file:
            file.write("raise SystemExit(4)\n")
        with self.assertRaisesRegex(self.tool.CutOff, "exit code 4"):
            run.run_all()


if __name__ == "__main__":
    sys.exit(unittest.main())
