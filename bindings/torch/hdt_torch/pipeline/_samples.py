"""Which samples a step is of."""

import torch
from torch.utils.data import default_collate


class Samples:
    """The samples of a data set in the order of training: number n is one of epoch n // len(data). Each epoch
    has every sample once, in an order that follows from (seed, epoch), or in that of the data set."""

    def __init__(self, data, shuffle, seed):
        if len(data) == 0:
            raise ValueError("the data set has no samples")
        self._data, self._shuffle, self._seed = data, shuffle, seed
        self._orders = {}  # of the epochs last used

    def _order_of(self, epoch):
        if epoch not in self._orders:
            # A micro-batch may lie in two epochs.
            self._orders = {known: order for known, order in self._orders.items() if known == epoch - 1}
            dice = torch.Generator().manual_seed(self._seed + epoch)
            self._orders[epoch] = torch.randperm(len(self._data), generator=dice)
        return self._orders[epoch]

    def index_of(self, number):
        """The place of a sample in the data set."""
        epoch, place = divmod(number, len(self._data))
        return int(self._order_of(epoch)[place]) if self._shuffle else place

    def batch(self, numbers):
        """(inputs, targets) of the samples with these numbers, as a DataLoader would collate them."""
        inputs, targets = default_collate([tuple(self._data[self.index_of(number)]) for number in numbers])
        return inputs, targets
