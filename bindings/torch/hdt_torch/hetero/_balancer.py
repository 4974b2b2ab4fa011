"""Who takes how many samples: pure functions of numbers that all ranks have, so that all decide the same."""

import collections
import statistics


def divide(total, speeds, minimum=0, fixed=None):
    """Divides `total` samples among ranks so that the slowest one is done as early as possible: rank r needs
    fixed[r] + samples / speeds[r]; fixed: of no rank if None. Each rank gets at least `minimum`, as long as
    there are enough. Returns a list of whole numbers whose sum is `total`."""
    fixed = [0.0] * len(speeds) if fixed is None else fixed
    if total < 0 or not speeds or not min(speeds) > 0 or not min(fixed) >= 0:
        raise ValueError(f"divide: {total} samples, speeds {speeds}, fixed {fixed}; expected no negative "
                         "number of samples, and positive speeds")
    minimum = min(minimum, total // len(speeds))
    # Ranks that are done at one time T take (T - fixed) * speed samples. A rank that would take fewer than
    # the minimum takes that, and the others share the rest; so one rank at least leaves in each round.
    shares, sharing = [minimum] * len(speeds), list(range(len(speeds)))
    while sharing:
        rest = total - minimum * (len(speeds) - len(sharing))
        done = ((rest + sum(fixed[rank] * speeds[rank] for rank in sharing))
                / sum(speeds[rank] for rank in sharing))
        exact = {rank: (done - fixed[rank]) * speeds[rank] for rank in sharing}
        late = [rank for rank in sharing if exact[rank] < minimum]
        if not late:
            for rank in sharing:
                shares[rank] = max(minimum, int(exact[rank]))
            break
        sharing = [rank for rank in sharing if rank not in late]
    # The rest of rounding goes, one by one, to the rank that would be done first with one more. The lower
    # rank wins a tie.
    while sum(shares) < total:
        first = min(range(len(shares)),
                    key=lambda rank: (fixed[rank] + (shares[rank] + 1) / speeds[rank], rank))
        shares[first] += 1
    while sum(shares) > total:  # by the rounding of `exact`
        last = max((rank for rank in range(len(shares)) if shares[rank] > minimum),
                   key=lambda rank: (fixed[rank] + shares[rank] / speeds[rank], -rank))
        shares[last] -= 1
    return shares


class Balancer:
    """Moves shares until all ranks need equally long for a step.

    It takes the median time of the last steps of each rank, divides the batch so that all are done at once,
    and goes there in bounded moves: a rank's share changes by at most half of it, or of an equal share, at a
    time. It stays where it is unless the slowest rank would need at least 3 % less, so that shares do not
    swing with the noise of measurements. The first step after a move is not counted, as caches and buffers
    may be of new sizes.

    A rank's time is taken for proportional to its samples at first. From two shares on that it has had, it is
    a fixed part and a part for each sample: otherwise a rank with a large fixed part would seem slower the
    less it has, and get ever less.

    shares: of each rank, at least `minimum`: a rank without samples would never show its speed.
    """

    STEPS = 5  # that are measured before a move
    MOST = 0.5  # of its share, or of an equal one if that is more: what a rank gains or loses in a move
    WORTH = 0.97  # a move is made if the slowest rank then needs at most this part of its time
    STUCK = 20  # steps without a move after which the times at other shares are doubted
    CHANGED = 0.1  # a time that changes by more, with one share, is a change of the rank's speed
    APART = 0.1  # shares that differ by less, as a part of the larger, say nothing of what is fixed

    def __init__(self, shares, minimum=1):
        if min(shares) < max(minimum, 1):
            raise ValueError(f"Balancer: shares {shares}; expected at least {max(minimum, 1)} for each rank")
        self.shares = list(shares)
        self._minimum = minimum
        self._times = [collections.deque(maxlen=self.STEPS) for _ in shares]
        # The last (samples, seconds) of each rank at another share than the present one; None: there is none.
        self._other = [None] * len(shares)
        self._seen = 0  # steps with the present shares
        self._first = None  # the first times of all ranks that were measured with the present shares

    def observe(self, counts, seconds):
        """What each rank took in a step, and how long it computed. Returns new shares, or None."""
        if list(counts) != self.shares:  # a last batch, or one that was dealt before a move
            return None
        self._seen += 1
        if self._seen == 1:
            return None
        for times, time in zip(self._times, seconds):
            times.append(time)
        if self._seen <= self.STEPS or min(map(min, self._times)) <= 0:
            return None
        now = [statistics.median(times) for times in self._times]
        self._first = self._first or now
        for rank, (time, first) in enumerate(zip(now, self._first)):
            if abs(time - first) > self.CHANGED * first:  # its speed is another one than at the other share
                self._other[rank] = None
        if self._seen % self.STUCK == 0 and max(now) > (1 + self.CHANGED) * statistics.median(now):
            # Ranks are not done together, and no move seemed worth it: a speed may have changed just with a
            # move, which looks like work that does not depend on the share. Another move will tell.
            self._other = [None] * len(now)
        fixed, speeds = zip(*map(self._model, range(len(now)), now))
        wanted = divide(sum(self.shares), speeds, self._minimum, fixed)
        # All moves are scaled by one factor, so that their sum stays zero but for rounding.
        equal = sum(self.shares) / len(self.shares)
        limits = [self.MOST * max(share, equal) / abs(new - share)
                  for new, share in zip(wanted, self.shares) if new != share]
        scale = min([1.0, *limits])
        if scale < 1:
            # As speeds that would give just these shares.
            between = [share + scale * (new - share) for new, share in zip(wanted, self.shares)]
            wanted = divide(sum(self.shares), [max(part, 0.01) for part in between], self._minimum)
        expected = max(part + share / speed for part, share, speed in zip(fixed, wanted, speeds))
        if expected > self.WORTH * max(now):
            return None
        for rank, (share, time) in enumerate(zip(self.shares, now)):
            if abs(wanted[rank] - share) > self.APART * max(wanted[rank], share):
                self._other[rank] = (share, time)
        self.shares, self._seen, self._first = wanted, 0, None
        for times in self._times:
            times.clear()
        return list(wanted)

    def _model(self, rank, time):
        """(fixed seconds, samples a second) of a rank that needs `time` for its present share."""
        share = self.shares[rank]
        if self._other[rank] is not None:
            samples, seconds = self._other[rank]
            if abs(samples - share) > self.APART * max(samples, share):
                # By the line through both points. Noise, or a rank that has become slower meanwhile, may
                # make it fall or begin below zero; neither part is less than none.
                each = (time - seconds) / (share - samples)
                each = min(max(each, 0.05 * time / share), time / share)
                return max(0.0, time - each * share), 1 / each
        return 0.0, share / time
