"""hetero_models_rank.py CASE...: one rank of a job of unequal data parallelism whose model has more than
parameters that are always used. torch_hetero_test.py starts it. It ends with 0 if everything that it checks
holds. SEED: of what is random, the same on all ranks."""

import copy
import random
import sys

import torch
import torch.distributed as dist

import hetero_rank
from hdt_torch.hetero import UnequalDataParallel
from hetero_rank import SAME, SEED

STEPS = 20


def weighted(gradients, counts, rank):
    """What the gradients of a step should be, from those of each rank alone, in double precision."""
    expected = [gradient.double() * counts[rank] / sum(counts) for gradient in gradients]
    for gradient in expected:
        dist.all_reduce(gradient)
    return expected


def gradients_alone(module, inputs):
    """Of a copy, which has the buffers of the module before this step; and the copy."""
    one = copy.deepcopy(module)
    one.zero_grad()
    if len(inputs):
        one(inputs).square().mean().backward()
    return [torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in one.parameters()], one


def assert_close(found, expected, what):
    for one, other in zip(found, expected):
        error = (one.double() - other).abs().max() / other.abs().max().clamp(min=1e-12)
        assert error < SAME, f"{what}: they differ by {error}"


class Branches(torch.nn.Module):
    """Each call uses one of two branches; nobody uses the third."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.last = torch.nn.Linear(8, 1)
        self.double()

    def forward(self, inputs, branch):
        return self.last(torch.tanh(self.branches[branch](inputs)))


def unused_parameters(rank, size):
    """Of which ranks use a parameter in a step, each set happens, the empty one too. No rank is without
    data."""
    dice = random.Random(SEED)
    single, module = Branches(), Branches()
    model = UnequalDataParallel(module, find_unused_parameters=True)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (single, module)]
    for _ in range(STEPS):
        counts = [dice.choice([1, 2, 5]) for _ in range(size)]
        chosen = [dice.randrange(2) for _ in range(size)]
        parts = [torch.randn(count, 8, generator=torch.Generator().manual_seed(dice.randrange(1000)),
                             dtype=torch.float64) for count in counts]
        loss = sum((single(part, branch) - 1).square().sum() for part, branch in zip(parts, chosen))
        (loss / sum(counts)).backward()
        (model(parts[rank], chosen[rank]) - 1).square().mean().backward()
        assert_close([parameter.grad for parameter in module.last.parameters()],
                     [parameter.grad for parameter in single.last.parameters()], "gradients")
        never = module.branches[2].weight.grad
        assert never is None or not never.any(), "a parameter that nobody uses has a gradient"
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert_close(module.parameters(), [parameter.detach() for parameter in single.parameters()], "weights")


def buffers(rank, size):
    """BatchNorm: each rank normalizes its own batch, and all go on with the buffers of rank 0, as
    DistributedDataParallel has it. A rank without data takes part in that, also rank 0."""
    dice = random.Random(SEED)
    torch.manual_seed(SEED)
    layers = torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1)
    module = torch.nn.Sequential(*layers).double()
    model = UnequalDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    for step in range(STEPS):
        counts = [dice.choice([0, 2, 5]) for _ in range(size)]
        counts[step % size] += 2
        generator = torch.Generator().manual_seed(SEED + size * step + rank)
        inputs = torch.randn(counts[rank], 8, generator=generator, dtype=torch.float64)
        for buffer in module.buffers():  # what DistributedDataParallel does first
            dist.broadcast(buffer, 0)
        gradients, one = gradients_alone(module, inputs)
        expected = weighted(gradients, counts, rank)
        optimizer.zero_grad()
        if counts[rank]:
            model(inputs).square().mean().backward()
        else:
            model.step_without_data()
        assert_close([parameter.grad for parameter in module.parameters()], expected, "gradients")
        assert_close(module.buffers(), one.buffers(), "buffers")
        optimizer.step()
    assert module[1].num_batches_tracked > 0


def several_buckets(rank, size):
    """A rank without data reduces as many."""
    torch.manual_seed(SEED)
    dice = random.Random(SEED)
    middle = [torch.nn.Linear(400, 400) for _ in range(3)]
    module = torch.nn.Sequential(torch.nn.Linear(8, 400), *middle, torch.nn.Linear(400, 1)).double()
    model = UnequalDataParallel(module, bucket_cap_mb=0.5)
    state, calls = model._unequal, []  # pylint: disable=protected-access
    reduce = state.reduce
    state.reduce = lambda bucket: (calls.append(bucket.index()), reduce(bucket))[1]
    for step in range(4):  # the first has one bucket
        counts = [dice.choice([0, 3]) for _ in range(size)]
        counts[step % size] += 1
        inputs = torch.randn(counts[rank], 8, dtype=torch.float64,
                             generator=torch.Generator().manual_seed(SEED + size * step + rank))
        expected = weighted(gradients_alone(module, inputs)[0], counts, rank)
        module.zero_grad()
        calls.clear()
        if counts[rank] or step % 2:
            model(inputs).square().mean().backward()
        else:
            model.step_without_data()
        assert len(calls) >= (3 if step else 1), f"{len(calls)} buckets; expected several"
        assert_close([parameter.grad for parameter in module.parameters()], expected, "gradients")
        assert model.samples == counts, (model.samples, counts)


def bfloat16(rank, size):
    """The weight is not rounded to eight bits, only its product with each gradient is. A third that is
    rounded would make every element 0.2 % too large, which the mean over many shows."""
    torch.manual_seed(SEED)
    module = torch.nn.Linear(512, 64).bfloat16()
    model = UnequalDataParallel(module)
    counts = [2] * size
    generator = torch.Generator().manual_seed(SEED + rank)
    inputs = (torch.rand(2, 512, generator=generator) + 1).bfloat16()  # gradients are positive: none cancel
    alone = copy.deepcopy(module)
    alone(inputs).mean().backward()
    expected, = weighted([alone.weight.grad], counts, rank)
    model(inputs).mean().backward()
    off = module.weight.grad.double() / expected - 1
    # A rounding is at most 2^-9 of a number: one of each product, and one of each partial sum.
    assert off.abs().max() < 2 * size * 2 ** -9, off.abs().max()
    of_rounded_weight = abs(torch.tensor(1 / size).bfloat16().item() * size - 1)
    assert of_rounded_weight > 1e-3, "this number of ranks shows nothing"
    assert abs(off.mean()) < of_rounded_weight / 4, (off.mean(), of_rounded_weight)


CASES = {function.__name__: function for function in (unused_parameters, buffers, several_buckets, bfloat16)}

if __name__ == "__main__":
    hetero_rank.run(CASES, sys.argv[1:])
