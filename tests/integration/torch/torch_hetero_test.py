"""torch_hetero_test.py BUILD: unequal data parallelism (hdt_torch.hetero): the division of batches by itself,
and training in jobs. The interpreter must be the one that has torch."""

import os
import random
import sys
import unittest

from torch_job import BUILD, FOLDER, ROOT, TorchJobs

sys.path.insert(0, os.path.join(BUILD, "python"))

# pylint: disable-next=wrong-import-position
from hdt_torch.hetero import Balancer, UnequalSampler, divide  # noqa: E402

RANK = os.path.join(FOLDER, "hetero_rank.py")
MODELS = os.path.join(FOLDER, "hetero_models_rank.py")
EXAMPLE = os.path.join(ROOT, "docs", "examples", "torch", "unequal.py")
SEED = int(os.environ.get("HDT_TEST_SEED", random.randrange(1 << 31)))


def setUpModule():  # pylint: disable=invalid-name
    print(f"torch_hetero_test: HDT_TEST_SEED={SEED}", flush=True)


class Division(unittest.TestCase):
    def test_no_other_division_is_sooner_done(self):
        dice = random.Random(SEED)
        for _ in range(2000):
            speeds = [dice.uniform(0.1, 4) for _ in range(dice.randrange(1, 6))]
            fixed = [dice.choice([0, dice.uniform(0, 10)]) for _ in speeds]
            total, minimum = dice.randrange(0, 40), dice.randrange(0, 3)
            shares = divide(total, speeds, minimum, fixed)
            self.assertEqual(sum(shares), total)
            self.assertGreaterEqual(min(shares), min(minimum, total // len(speeds)), (total, speeds, minimum))
            # One sample less for the rank that is done last makes another one as late.
            needs = [part + share / speed for part, share, speed in zip(fixed, shares, speeds)]
            last = max((rank for rank, share in enumerate(shares) if share > 0), default=0,
                       key=lambda rank: needs[rank])
            if shares[last] > minimum:
                for rank, share in enumerate(shares):
                    if rank != last:
                        self.assertGreaterEqual(fixed[rank] + (share + 1) / speeds[rank],
                                                needs[last] * (1 - 1e-9), (total, speeds, minimum, shares))

    def test_what_makes_no_sense_is_refused(self):
        for total, speeds in ((-1, [1.0]), (1, []), (1, [1.0, 0.0]), (1, [float("nan")])):
            self.assertRaises(ValueError, divide, total, speeds)


class Balance(unittest.TestCase):
    def steps(self, balancer, speeds, steps, noise, dice, fixed=0.0):
        """Each step's throughput over that of all ranks alone, and how often shares have moved. `fixed`: of
        the time of a rank that has an equal share, the part that does not depend on its share."""
        parts, moves = [], 0
        for _ in range(steps):
            shares = list(balancer.shares)
            equal = sum(shares) / len(shares)
            seconds = [(fixed * equal + (1 - fixed) * share) / speed for share, speed in zip(shares, speeds)]
            parts.append(sum(shares) / max(seconds) / sum(speeds))
            measured = [second * dice.uniform(1 - noise, 1 + noise) for second in seconds]
            moved = balancer.observe(shares, measured)
            if moved is not None:
                moves += 1
                for new, old in zip(moved, shares):
                    # Rounding moves some samples more.
                    bound = 0.5 * max(old, sum(shares) / len(shares)) + len(shares)
                    self.assertLessEqual(abs(new - old), bound)
                self.assertEqual(sum(moved), sum(shares))
        return parts, moves

    def test_ranks_finish_together_within_twenty_steps_and_stay_so(self):
        dice = random.Random(SEED)
        for _ in range(200):
            speeds = [1.0] + [dice.uniform(0.2, 1) for _ in range(dice.randrange(1, 5))]
            batch = 64 * len(speeds)
            balancer = Balancer(divide(batch, [1.0] * len(speeds)))
            self.steps(balancer, speeds, 20, 0.02, dice)
            parts, moves = self.steps(balancer, speeds, 100, 0.02, dice)
            self.assertGreaterEqual(sum(parts) / len(parts), 0.95, speeds)
            self.assertLessEqual(moves, 5, f"{speeds}: shares swing")
            # A rank changes its speed: a neighbour on its host, or one that has gone.
            speeds[-1] *= 0.5
            self.steps(balancer, speeds, 50, 0.02, dice)
            parts, _ = self.steps(balancer, speeds, 20, 0.02, dice)
            self.assertGreaterEqual(sum(parts) / len(parts), 0.95, speeds)

    def test_work_that_does_not_depend_on_the_share(self):
        dice = random.Random(SEED)
        for _ in range(200):
            speeds, fixed = [1.0, dice.uniform(0.4, 1), dice.uniform(0.3, 1)], dice.uniform(0, 0.5)
            balancer = Balancer([64] * 3)
            self.steps(balancer, speeds, 30, 0.01, dice, fixed)
            parts, _ = self.steps(balancer, speeds, 20, 0.01, dice, fixed)
            # As good as any division can be, which is less than what ranks do alone.
            best = divide(192, [speed / (1 - fixed) for speed in speeds], 1,
                          [fixed * 64 / speed for speed in speeds])
            limit = 192 / max((fixed * 64 + (1 - fixed) * share) / speed
                              for share, speed in zip(best, speeds)) / sum(speeds)
            self.assertGreaterEqual(sum(parts) / len(parts), 0.95 * limit,
                                    (speeds, fixed, balancer.shares, best))

    def test_equal_ranks_stay_equal(self):
        dice = random.Random(SEED)
        balancer = Balancer([32] * 4)
        _, moves = self.steps(balancer, [1.0] * 4, 200, 0.01, dice)
        self.assertEqual((moves, balancer.shares), (0, [32] * 4))

    def test_shares_that_are_very_wrong_are_mended(self):
        balancer = Balancer([1, 46, 1])
        self.steps(balancer, [1.0, 0.25, 0.14], 40, 0.02, random.Random(SEED))
        self.assertGreater(balancer.shares[0], 30)

    def test_a_rank_without_samples_is_refused(self):
        self.assertRaises(ValueError, Balancer, [8, 0])

    def test_nobody_is_left_without_a_sample(self):
        balancer = Balancer([8, 8])
        self.steps(balancer, [1.0, 1e-4], 100, 0, random.Random(SEED))
        self.assertEqual(balancer.shares, [15, 1])


class Sampler(unittest.TestCase):
    @staticmethod
    def random_shares(dice, batch, ranks):
        cuts = sorted(dice.randrange(batch + 1) for _ in range(ranks - 1))
        return [end - begin for begin, end in zip([0, *cuts], [*cuts, batch])]

    def deal(self, samplers, dice, stop=None):
        """Global batches of the rest of an epoch, each as the ranks' parts; shares change at random."""
        batches, iterators = [], [iter(sampler) for sampler in samplers]
        while stop is None or len(batches) < stop:
            parts = [next(iterator, None) for iterator in iterators]
            if parts[0] is None:
                self.assertEqual(parts, [None] * len(parts), "ranks have other numbers of steps")
                break
            batches.append(parts)
            for sampler in samplers:
                sampler.done += 1
            if dice.random() < 0.3:
                shares = self.random_shares(dice, samplers[0].batch, len(samplers))
                for sampler in samplers:
                    sampler.set_shares(shares)
        return batches

    def test_each_sample_once_also_with_other_ranks_half_way(self):
        dice = random.Random(SEED)
        for _ in range(200):
            ranks, samples = dice.randrange(1, 5), dice.randrange(1, 200)
            batch = dice.randrange(ranks, 40)
            make = [{"data": samples, "batch": batch, "seed": SEED, "rank": rank, "ranks": ranks}
                    for rank in range(ranks)]
            samplers = [UnequalSampler(**one) for one in make]
            for sampler in samplers:
                self.assertEqual(len(sampler), -(-samples // batch))
                sampler.set_epoch(3)
            whole = self.deal([UnequalSampler(samples, batch, seed=SEED + 3, rank=0, ranks=1)], dice)
            stop = dice.randrange(len(whole) + 1)
            first = self.deal(samplers, dice, stop)
            state = samplers[0].state_dict()
            others = min(batch, dice.randrange(1, 6))
            resumed = [UnequalSampler(samples, batch, seed=SEED, rank=rank, ranks=others)
                       for rank in range(others)]
            for sampler in resumed:
                sampler.load_state_dict(state)
            rest = self.deal(resumed, dice) if stop < len(whole) else []
            dealt = [sum(parts, []) for parts in first + rest]
            self.assertEqual(dealt, [sum(parts, []) for parts in whole])
            self.assertEqual(sorted(sum(dealt, [])), list(range(samples)))

    def test_batches_dealt_in_advance_keep_their_shares(self):
        samplers = [UnequalSampler(100, 10, rank=rank, ranks=2) for rank in (0, 1)]
        iterators = [iter(sampler) for sampler in samplers]
        for fetched, iterator in zip((3, 5), iterators):
            for _ in range(fetched):
                next(iterator)
        first = max(sampler.dealt for sampler in samplers)
        for sampler in samplers:
            sampler.set_shares([9, 1], first)
        lengths = [[len(part) for part in iterator] for iterator in iterators]
        self.assertEqual(lengths, [[5, 5] + [9] * 5, [1] * 5])

    def test_wrong_use_is_refused(self):
        for arguments in ({"batch": 1}, {"batch": 4, "shares": [4]}, {"batch": 4, "shares": [3, 2]},
                          {"batch": 4, "shares": [5, -1]}, {"batch": 4, "rank": 2}):
            with self.assertRaises(ValueError, msg=arguments):
                UnequalSampler(10, **{"rank": 0, "ranks": 2} | arguments)
        sampler = UnequalSampler(10, 4, rank=0, ranks=2)
        with self.assertRaisesRegex(ValueError, "batch 5"):
            sampler.load_state_dict(sampler.state_dict() | {"batch": 5})


class Training(TorchJobs):
    def test_as_one_process(self):
        cases = "exact", "sums_and_tokens", "without_weights", "balanced", "throttled", "wrong_counts"
        self.passes(RANK, 1, 3, *cases, SEED=str(SEED))

    def test_other_models(self):
        cases = "unused_parameters", "buffers", "several_buckets", "bfloat16"
        self.passes(MODELS, 1, 3, *cases, SEED=str(SEED))

    def test_example(self):
        self.example_passes(EXAMPLE, 1, 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
