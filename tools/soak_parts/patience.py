"""patience.py: time as it passes for who looks at it often: a moment in which the whole machine stood still
counts for little. So a soak does not take for stuck what could not run, no more than its own process
could."""

import time

MOST_AT_ONCE_S = 1.0


class Patience:
    def __init__(self):
        self.seen = time.monotonic()
        self.passed = 0.0

    def now(self):
        seen = time.monotonic()
        self.passed += min(seen - self.seen, MOST_AT_ONCE_S)
        self.seen = seen
        return self.passed
