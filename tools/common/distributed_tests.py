"""distributed_tests.py BACKEND MEANT_FOR WORLD NODES JOURNAL ONLY: runs tests of torch's distributed_test
whose names have the text ONLY. The standard input has their list in JSON, or null for all. tools/check-torch
starts it.

Each rank of each test is a process of its own. The journal gets a line of JSON for each event, as the next
test may end this program:

["names", [NAME...]]             the tests that will be run, in this order
["begin", NAME, SECONDS]         a test has begun; torch ends it after that time
["end", NAME, RESULT, REASON]    RESULT is passed, failed or skipped"""

import dataclasses
import importlib.util
import json
import os
import signal
import sys
import types
import unittest
import unittest.mock

TEST_S = 120
# They make their model where BACKEND is one of torch's own, and none where it has another name.
NAME_OF_TORCH = "test_accumulate_gradients_no_sync"


class Recorder(unittest.TestResult):
    """Writes the journal."""

    def __init__(self, path, seconds_of):
        super().__init__()
        self.path, self.seconds_of = path, seconds_of
        self.has_ended = False

    def write(self, *event):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def end(self, test, result, reason=""):
        if not self.has_ended:
            self.write("end", name_of(test), result, reason)
        self.has_ended = True

    def startTest(self, test):
        super().startTest(test)
        self.has_ended = False
        self.write("begin", name_of(test), self.seconds_of(test.id()))

    def stopTest(self, test):
        super().stopTest(test)
        self.end(test, "failed", "it ended without a result")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.end(test, "passed")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.end(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.end(test, "skipped", reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.end(test, "failed", str(err[1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.end(test, "failed", str(err[1]))


def name_of(test):
    return test.id().split(".")[-1]


def import_shards():
    """DistributedDataParallel of torch 1.13 imports a module whose data classes Python 3.11 refuses, as they
    have members with default values that have no hash. They get one."""
    real = dataclasses.dataclass

    def hashable(cls=None, **options):
        if cls is None:
            return lambda given: hashable(given, **options)
        made = real(cls, **options)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    with unittest.mock.patch.object(dataclasses, "dataclass", hashable):
        import torch.distributed._shard.sharded_tensor  # noqa: F401, pylint: disable=unused-import


def import_tests():
    """torch's modules of tests. They need a class and a flag of expecttest, which Debian does not have."""
    if importlib.util.find_spec("expecttest") is None:
        module = types.ModuleType("expecttest")
        module.TestCase, module.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = module
    import torch
    if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):
        import_shards()
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(TEST_S)
    from torch.testing._internal import common_distributed
    common_distributed.DistTestCases.backend_feature["ddp"].add("hdt")
    from torch.testing._internal.distributed import distributed_test
    return common_distributed, distributed_test


def class_of_tests(distributed_test, meant_for, ranks_per_node):
    import torch.multiprocessing

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        """Ranks are forked: importing torch takes longer than most tests."""

        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def tearDown(self):
            """A rank that does not end would be in the way of the next test."""
            processes = self.processes
            super().tearDown()
            for process in processes:
                process.join(5)
                process.kill()

        def _check_return_codes(self, *arguments):
            """Which ranks crashed says more than torch does, that their exit codes differ."""
            crashed = [f"rank {rank} ended by {signal.Signals(-process.exitcode).name}"
                       for rank, process in enumerate(self.processes)
                       if (process.exitcode or 0) < 0 and process.exitcode != -signal.SIGTERM]
            try:
                super()._check_return_codes(*arguments)
            except unittest.SkipTest:
                raise
            except Exception as error:
                if crashed:
                    raise RuntimeError("\n".join([str(error), *crashed])) from error
                raise

        @classmethod
        def _run(cls, rank, *arguments, **named):
            """Ranks of two nodes have two daemons, and meet by the loopback interface."""
            node = rank // ranks_per_node
            runtime = os.path.join(os.environ["XDG_RUNTIME_DIR"], f"node{node}")
            os.makedirs(runtime, mode=0o700, exist_ok=True)
            os.environ.update(XDG_RUNTIME_DIR=runtime, HDT_NICS_ADDRESSES=f"127.0.0.{node + 1}")
            super()._run(rank, *arguments, **named)

        def run_test(self, test_name, *arguments):
            """The group has been made."""
            if test_name.startswith(NAME_OF_TORCH):
                distributed_test.BACKEND = meant_for
            super().run_test(test_name, *arguments)

    return Tests


def main():
    backend, meant_for, world, nodes, journal, only = sys.argv[1:]
    # The decorators of distributed_test read the variable when it is imported, the tests when they run.
    os.environ.update(BACKEND=meant_for, WORLD_SIZE=world)
    if backend == "hdt":
        import hdt_torch  # noqa: F401, pylint: disable=unused-import
    common_distributed, distributed_test = import_tests()
    os.environ["BACKEND"] = distributed_test.BACKEND = backend
    tests = class_of_tests(distributed_test, meant_for, int(world) // int(nodes))
    wanted = json.load(sys.stdin)
    names = [name for name in unittest.TestLoader().getTestCaseNames(tests)
             if only in name and (wanted is None or name in wanted)]
    recorder = Recorder(journal, common_distributed.get_timeout)
    recorder.write("names", names)
    unittest.TestSuite(tests(name) for name in names).run(recorder)


if __name__ == "__main__":
    main()
