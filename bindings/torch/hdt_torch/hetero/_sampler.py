"""Deals the samples of a data set: global batches of one size, each divided among the ranks by their
shares."""

import torch
import torch.distributed as dist
from torch.utils.data import Sampler, default_collate

from hdt_torch.hetero._balancer import divide


class UnequalSampler(Sampler):
    """A batch sampler for DataLoader (`batch_sampler=`): yields the indices that this rank takes.

    Global batch k of an epoch has the samples k * batch to (k + 1) * batch - 1 of a permutation that `seed`
    and the epoch determine; shares only say which rank takes which of them. So all ranks have the same number
    of steps, each sample is dealt exactly once in an epoch, and what is left of an epoch does not depend on
    the number of ranks or on their shares. The last batch may be smaller; a rank may get no sample of it (an
    empty list, for which `collate` makes tensors of no rows).

    data: a data set, or the number of its samples. batch: samples of all ranks together. shares: samples of
    each rank, which add up to `batch`; None: as equal as possible. drop_last: leaves out a smaller last
    batch.
    rank, ranks: None: of torch's default group. Every rank must give the same arguments. Not thread-safe;
    with DataLoader's workers it is used by the main process alone. """

    def __init__(self, data, batch, *, shares=None, seed=0, shuffle=True, drop_last=False, rank=None,
                 ranks=None):
        # Not torch's constructor: it does nothing, and wants the data in some versions and nothing in others.
        self._data = None if isinstance(data, int) else data
        self._samples = data if isinstance(data, int) else len(data)
        self.rank = dist.get_rank() if rank is None else rank
        self.ranks = dist.get_world_size() if ranks is None else ranks
        if batch < self.ranks:
            raise ValueError(f"UnequalSampler: batch {batch} for {self.ranks} ranks; expected at least one "
                             "sample for each rank")
        if self._samples < 1 or not 0 <= self.rank < self.ranks:
            raise ValueError(f"UnequalSampler: {self._samples} samples, rank {self.rank} of {self.ranks}")
        self.batch = batch
        self._seed, self._shuffle, self._drop_last = seed, shuffle, drop_last
        self.epoch = 0
        # How many batches of the epoch have been trained on; UnequalDataParallel counts. And how many have
        # been dealt: DataLoader's workers fetch some in advance.
        self.done = 0
        self.dealt = 0
        # (first batch since the sampler was made, shares from there on), in that order; the dealing of
        # batches in advance makes changes come later than they were decided.
        self._plan = [(0, self._checked(shares or divide(batch, [1.0] * self.ranks)))]

    def _checked(self, shares):
        shares = [int(share) for share in shares]
        if len(shares) != self.ranks or sum(shares) != self.batch or min(shares) < 0:
            raise ValueError(f"UnequalSampler: shares {shares} for {self.ranks} ranks and a batch of "
                             f"{self.batch}; expected a number for each rank, which add up to the batch")
        return shares

    @property
    def shares(self):
        """The latest shares, by rank."""
        return list(self._plan[-1][1])

    def set_shares(self, shares, first=None):
        """From the batch `first` on, counted from the first batch that this sampler has dealt (`dealt`);
        None: from the next one. Every rank must call it with the same arguments."""
        self._plan.append((self.dealt if first is None else first, self._checked(shares)))

    def set_epoch(self, epoch):
        """Before each epoch, as for DistributedSampler: another permutation, from its beginning."""
        self.epoch, self.done = epoch, 0

    def __len__(self):
        """Batches of a whole epoch, the same on all ranks."""
        return self._samples // self.batch if self._drop_last else -(-self._samples // self.batch)

    def __iter__(self):
        order = torch.arange(self._samples)
        if self._shuffle:
            generator = torch.Generator()
            generator.manual_seed(self._seed + self.epoch)
            order = torch.randperm(self._samples, generator=generator)
        if self.done >= len(self):  # the next epoch without set_epoch()
            self.done = 0
        for number in range(self.done, len(self)):
            while len(self._plan) > 1 and self._plan[1][0] <= self.dealt:
                del self._plan[0]
            self.dealt += 1
            whole = order[number * self.batch:(number + 1) * self.batch]
            shares = self._plan[0][1]
            if len(whole) < self.batch:
                shares = divide(len(whole), [max(share, 1e-9) for share in shares])
            begin = sum(shares[:self.rank])
            yield whole[begin:begin + shares[self.rank]].tolist()

    def collate(self, samples):
        """For DataLoader (`collate_fn=`): as torch's own, and tensors of no rows for a batch without
        samples."""
        if samples:
            return default_collate(samples)
        if self._data is None:
            raise ValueError("UnequalSampler.collate: made with a number of samples; it needs the data set")

        def without_rows(part):
            if isinstance(part, torch.Tensor):
                return part[:0]
            if isinstance(part, dict):
                return {key: without_rows(value) for key, value in part.items()}
            if isinstance(part, (list, tuple)):
                return type(part)(without_rows(value) for value in part)
            return []

        return without_rows(default_collate([self._data[0]]))

    def state_dict(self):
        """Where the training is, after a step: for load_state_dict(), also with other ranks and shares."""
        return {"epoch": self.epoch, "done": self.done, "batch": self.batch, "seed": self._seed,
                "samples": self._samples, "shuffle": self._shuffle, "shares": self.shares}

    def load_state_dict(self, state):
        """The next iteration goes on behind the batches that were done. Shares are taken over where there are
        as many ranks; otherwise they stay as they are."""
        here = self.state_dict()
        for name in ("batch", "seed", "samples", "shuffle"):
            if state[name] != here[name]:
                raise ValueError(f"UnequalSampler: the state has {name} {state[name]}, this sampler has "
                                 f"{here[name]}; what is left of the epoch would be another one")
        self.epoch, self.done = state["epoch"], state["done"]
        if len(state["shares"]) == self.ranks:
            self.set_shares(state["shares"])
