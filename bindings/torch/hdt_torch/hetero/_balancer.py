"""Who takes how many samples: pure functions of numbers that all ranks have, so that all decide the same."""

import collections
import statistics


def divide(total, speeds, minimum=0):
    """Divides `total` samples among ranks so that the slowest one is done as early as possible: rank r needs
    samples / speeds[r]. Each rank gets at least `minimum`, as long as there are enough. Returns a list of
    whole numbers whose sum is `total`."""
    if total < 0 or not speeds or any(not speed > 0 for speed in speeds):
        raise ValueError(f"divide: {total} samples, speeds {speeds}; expected no negative number of samples, "
                         "and positive speeds")
    minimum = min(minimum, total // len(speeds))
    sum_of_speeds = sum(speeds)
    # The part below the exact quotient is certain; what is left goes, one by one, to the rank that would be
    # done first with one more. The lower rank wins a tie.
    shares = [max(minimum, int(total * speed / sum_of_speeds)) for speed in speeds]
    while sum(shares) > total:  # what `minimum` gave is taken from the rank that is done last
        last = max((rank for rank in range(len(shares)) if shares[rank] > minimum),
                   key=lambda rank: (shares[rank] / speeds[rank], -rank))
        shares[last] -= 1
    while sum(shares) < total:
        first = min(range(len(shares)), key=lambda rank: ((shares[rank] + 1) / speeds[rank], rank))
        shares[first] += 1
    return shares


class Balancer:
    """Moves shares until all ranks need equally long for a step.

    It takes the median speed of the last steps of each rank, divides the batch by these speeds, and goes
    there
    in bounded moves: a rank's share changes by at most half of it, or of an equal share, at a time. It stays
    where it is unless the slowest rank would need at least 3 % less, so that shares do not swing with the
    noise of measurements. The first step after a move is not counted, as caches and buffers may be of new
    sizes.

    shares: of each rank, at least `minimum`: a rank without samples would never show its speed.
    """

    STEPS = 5  # that are measured before a move
    MOST = 0.5  # of its share, or of an equal one if that is more: what a rank gains or loses in a move
    WORTH = 0.97  # a move is made if the slowest rank then needs at most this part of its time

    def __init__(self, shares, minimum=1):
        if min(shares) < max(minimum, 1):
            raise ValueError(f"Balancer: shares {shares}; expected at least {max(minimum, 1)} for each rank")
        self.shares = list(shares)
        self._minimum = minimum
        self._speeds = [collections.deque(maxlen=self.STEPS) for _ in shares]
        self._seen = 0  # steps with the present shares

    def observe(self, counts, seconds):
        """What each rank took in a step, and how long it computed. Returns new shares, or None."""
        self._seen += 1
        if self._seen == 1:
            return None
        for speeds, count, time in zip(self._speeds, counts, seconds):
            if count > 0 and time > 0:
                speeds.append(count / time)
        if self._seen <= self.STEPS or not all(self._speeds):
            return None
        speeds = [statistics.median(seen) for seen in self._speeds]
        wanted = divide(sum(self.shares), speeds, self._minimum)
        # All moves are scaled by one factor, so that their sum stays zero but for rounding.
        equal = sum(self.shares) / len(self.shares)
        limits = [max(1, self.MOST * max(share, equal)) / abs(new - share)
                  for new, share in zip(wanted, self.shares) if new != share]
        scale = min([1.0, *limits])
        if scale < 1:
            # As speeds that would give just these shares.
            between = [share + scale * (new - share) for new, share in zip(wanted, self.shares)]
            wanted = divide(sum(self.shares), [max(part, 0.01) for part in between], self._minimum)
        slowest = max(share / speed for share, speed in zip(self.shares, speeds))
        if max(share / speed for share, speed in zip(wanted, speeds)) > self.WORTH * slowest:
            return None
        self.shares, self._seen = wanted, 0
        for seen in self._speeds:
            seen.clear()
        return list(wanted)
