"""run_block_test.py: what docs_test.py says of a block of the documentation that does not end."""

import os
import unittest

import docs_test


class RunBlock(unittest.TestCase):
    def test_one_that_ends(self):
        self.assertEqual(docs_test.run_block("echo out; echo err >&2; exit 3", "/", dict(os.environ)),
                         (3, "out\nerr\n"))

    def test_one_that_does_not_end_is_described_and_ended(self):
        """The process in the background holds the output open, also when bash has ended."""
        for block in ("echo begun; sleep 1234 & sleep 1235", "echo begun; sleep 1234 &"):
            code, output = docs_test.run_block(block, "/", dict(os.environ), limit_s=2)
            self.assertEqual(code, "timeout")
            self.assertRegex(output, r"^begun\n\n--- not ended after 2 s:\n")
            self.assertRegex(output, r"pid \d+, parent \d+, state S, waits in \w+: sleep 1234\n")


if __name__ == "__main__":
    unittest.main()
