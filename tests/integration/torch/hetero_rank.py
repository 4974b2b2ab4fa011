"""hetero_rank.py CASE...: one rank of a job of unequal data parallelism, as torch_hetero_test.py starts it.
It ends with 0 if everything that it checks holds. SEED: of what is random, the same on all ranks."""

import datetime
import os
import random
import sys
import time
import unittest.mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hdt_torch  # noqa: F401
from hdt_torch.hetero import _throttle, Throttled, UnequalDataParallel, UnequalSampler

TIMEOUT = datetime.timedelta(seconds=30)
STEPS = 50
# Relative; in double precision, so that it is the weights that count, and not the order of a sum.
SAME = 1e-9
SEED = int(os.environ["SEED"])


def make_model():
    torch.manual_seed(SEED)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()


def random_batches(size):
    """For each step the samples of all ranks, and how many each rank takes; some ranks take none."""
    dice, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    for step in range(STEPS):
        counts = [dice.choice([0, 1, 2, 7, 20]) for _ in range(size)]
        counts[step % size] += 1  # some rank has a sample
        inputs = torch.randn(sum(counts), 8, generator=generator, dtype=torch.float64)
        yield counts, inputs, inputs.sum(1, keepdim=True) ** 2


def train(model, steps, loss_of):
    """The losses over all samples, step by step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for step in steps:
        optimizer.zero_grad()
        losses.append(loss_of(step))
        optimizer.step()
    return losses


def alone(size):
    model = make_model()

    def loss_of(step):
        _, inputs, targets = step
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        return loss.item()

    return train(model, random_batches(size), loss_of)


def difference(losses, expected):
    return max(abs(loss - right) / right for loss, right in zip(losses, expected))


def mine(step, rank):
    counts, inputs, targets = step
    begin = sum(counts[:rank])
    return inputs[begin:begin + counts[rank]], targets[begin:begin + counts[rank]]


def exact(rank, size):
    """As one process with the whole batch, whatever each rank takes; a rank with none says so in either
    way."""
    expected = alone(size)
    for has_rows in (False, True):
        model = UnequalDataParallel(make_model())

        def loss_of(step):
            inputs, targets = mine(step, rank)
            loss = None
            if len(inputs) == 0 and not has_rows:
                model.step_without_data()
            else:
                loss = (model(inputs) - targets).square().mean()
                loss.backward()
            assert model.samples == step[0], (model.samples, step[0])
            if has_rows:  # passes that train nothing are not counted
                model(torch.ones(3, 8).double())
                model.eval()(torch.ones(rank + 1, 8).double())
                model.train()
            return model.mean(loss)

        losses = train(model, random_batches(size), loss_of)
        assert difference(losses, expected) < SAME, difference(losses, expected)


def sums_and_tokens(rank, size):
    """A loss that is a sum, counted by the caller; and batches in two parts, of which one is not reduced."""
    expected = alone(size)
    model = UnequalDataParallel(make_model(), loss="sum", tokens_or_samples=lambda inputs: inputs.size(0))

    def loss_of(step):
        inputs, targets = mine(step, rank)
        half = len(inputs) // 3
        with model.no_sync():
            first = (model(inputs[:half]) - targets[:half]).square().sum()
            first.backward()
        rest = (model(inputs[half:]) - targets[half:]).square().sum()
        rest.backward()
        return model.mean(first + rest)

    losses = train(model, random_batches(size), loss_of)
    assert difference(losses, expected) < SAME, difference(losses, expected)


def without_weights(rank, size):
    """The control: DistributedDataParallel takes the mean of the ranks' means, which is another number."""
    model = DistributedDataParallel(make_model())

    def loss_of(step):
        counts = step[0]
        inputs, targets = mine(step, rank)
        # It has no way for a rank to have none: such a rank's part is zero.
        if len(inputs):
            loss = (model(inputs) - targets).square().mean()
        else:
            loss = model(torch.zeros(1, 8).double()).sum() * 0
        loss.backward()
        part = loss.detach() * counts[rank] / sum(counts)
        dist.all_reduce(part)
        return part.item()

    losses = train(model, random_batches(size), loss_of)
    assert difference(losses, alone(size)) > 1e-3, "the weights make no difference: the tests show nothing"


def wrong_counts(rank, size):
    """Every rank gets an exception with the reason."""
    model = UnequalDataParallel(make_model(),
                                tokens_or_samples=lambda inputs: -1 if rank == 1 else len(inputs))
    try:
        model(torch.ones(2, 8).double()).sum().backward()
    except ValueError as error:
        assert rank == 1 and "-1 samples" in str(error), error
    except RuntimeError as error:
        assert rank != 1 and "rank 1 has given" in str(error), error
    else:
        raise AssertionError("no error")
    model = UnequalDataParallel(make_model())
    try:
        model.step_without_data()
    except RuntimeError as error:
        assert "no rank has a sample" in str(error), error
    else:
        raise AssertionError("no error")


def balanced(rank, size):
    """The example's way: shares move to the fast ranks, every sample is used once, and the loss stays that of
    one process."""
    generator = torch.Generator().manual_seed(SEED)
    inputs = torch.randn(960, 8, generator=generator, dtype=torch.float64)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True) ** 2)
    sampler = UnequalSampler(data, batch=48, seed=SEED)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=sampler.collate)
    module, single = make_model(), make_model()
    model = UnequalDataParallel(Slow(module, 0.001 * (1 + 3 * rank)), sampler, balance="auto")
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (module, single)]
    seen = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        # The same order, in batches of all ranks.
        whole = UnequalSampler(data, batch=48, seed=SEED, rank=0, ranks=1)
        whole.set_epoch(epoch)
        for indices, (batch, targets) in zip(whole, loader):
            losses = []
            for one, samples, wanted in ((model, batch, targets), (single, *data[indices])):
                losses.append((one(samples) - wanted).square().mean())
                losses[-1].backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            loss = model.mean(losses[0])
            assert abs(loss - losses[1].item()) < SAME * losses[1].item(), (loss, losses[1])
            seen += len(batch)
    total = torch.tensor(seen)
    dist.all_reduce(total)
    assert total == 2 * len(data), total
    assert sum(sampler.shares) == 48 and min(sampler.shares) >= 1, sampler.shares
    assert sampler.shares[0] > sampler.shares[-1], f"{sampler.shares}: the fastest rank has no more"
    # Shares that are set, as when a state is loaded, are where the balance goes on.
    sampler.set_shares([1, 46, 1])
    sampler.set_epoch(2)
    for batch, targets in loader:
        (model(batch) - targets).square().mean().backward()
        model.zero_grad()
    assert sampler.shares[1] < 46, sampler.shares
    everyone = [None] * size
    dist.all_gather_object(everyone, sampler.shares)
    assert everyone == [sampler.shares] * size, everyone


class Slow(torch.nn.Module):
    """So many seconds for each sample, whatever else the machine does."""

    def __init__(self, module, seconds):
        super().__init__()
        self.module, self.seconds = module, seconds

    def forward(self, inputs):
        time.sleep(self.seconds * len(inputs))
        return self.module(inputs)


class Clock:
    """In the place of `time` in hetero._throttle: the processor time is what a test says."""

    def __init__(self):
        self.worked = self.slept = 0.0

    def thread_time(self):
        return self.worked

    def sleep(self, seconds):
        self.slept += seconds


class Worker(torch.nn.Module):
    """One parameter; works for 3 s forward, and waits for a moment, which is no work."""

    def __init__(self, clock):
        super().__init__()
        self.weight, self._clock = torch.nn.Parameter(torch.ones(1)), clock

    def forward(self, inputs):
        self._clock.worked += 3
        time.sleep(0.01)
        output = inputs * self.weight
        output.register_hook(self._back)
        return output

    def _back(self, gradient):
        self._clock.worked += 5
        return gradient


def rests_for_its_work():
    clock = Clock()
    with unittest.mock.patch.object(_throttle, "time", clock):
        output = Throttled(Worker(clock), 0.25)(torch.ones(2))
        assert abs(clock.slept - 9) < 1e-9, clock.slept
        clock.worked += 100  # between forward and backward: not the module's
        # Throttled begins to count at its own hook, which comes behind that of the worker.
        output.register_hook(lambda gradient: setattr(clock, "worked", clock.worked + 2))
        output.sum().backward()
        assert abs(clock.slept - 15) < 1e-9, clock.slept


def throttled(rank, size):
    """It computes the same."""
    rests_for_its_work()
    model, slow = make_model(), Throttled(make_model(), 0.5)
    inputs = torch.ones(3, 8, dtype=torch.float64, requires_grad=True)
    for one in (model, slow):
        one(inputs).sum().backward()
    for parameter, other in zip(model.parameters(), slow.module.parameters()):
        assert torch.equal(parameter.grad, other.grad)
    model = UnequalDataParallel(Throttled(make_model(), 0.5 if rank == 0 else 1))
    model(torch.ones(rank + 1, 8).double()).sum().backward()
    model.step_without_data() if rank == 0 else model(torch.ones(1, 8).double()).sum().backward()
    assert model.samples == [0] + [1] * (size - 1)


CASES = {function.__name__: function for function in (
    exact, sums_and_tokens, without_weights, wrong_counts, balanced, throttled)}


def run(cases, names):
    torch.set_num_threads(1)
    dist.init_process_group("hdt", init_method=f"file://{os.environ['MEETING']}", timeout=TIMEOUT,
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    for name in names:
        cases[name](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    run(CASES, sys.argv[1:])
