"""pipeline_rank.py CASE...: one rank of a job that trains modules in HDT's engine (hdt_torch.pipeline).
torch_pipeline_test.py starts it, with three ranks. It ends with 0 if everything that it checks holds.
SEED: of what is random, the same on all ranks."""

import os
import signal
import sys

import torch
import torch.distributed as dist

import hdt_torch  # noqa: F401  pylint: disable=unused-import
from hdt_torch import pipeline
# pylint: disable-next=protected-access
from hdt_torch.pipeline._samples import Samples
# pylint: disable-next=protected-access
from hdt_torch.pipeline._trainer import _seeded

SEED = int(os.environ.get("SEED", "1"))
LAYERS, CLASSES, LENGTH, STEPS = 4, 5, 6, 50
# Replica 0 has two stages, which take 3 and 1 of the layers; replica 1 has one.
LAYOUT = {"num_layers": LAYERS, "hetero_pipeline_stages": [[2, 3, 1], [1, LAYERS]],
          "use_tp_pp_dp_mapping": True, "micro_batch_size_per_dp": [1, 3, 1, 4],
          "num_micro_batches_per_dp": [1, 3, 1, 2]}
BATCH = 3 * 3 + 4 * 2


class Block(torch.nn.Module):
    """Units hand on tensors of different sizes."""

    def __init__(self, width, to):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.inner = torch.nn.Linear(width, to)

    def forward(self, flow):
        return torch.tanh(self.inner(self.norm(flow)))


def build(unit):
    if unit == 0:
        return torch.nn.Embedding(11, 8)
    if unit == LAYERS + 1:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(LENGTH * (8 + LAYERS), CLASSES))
    return Block(8 + unit - 1, 8 + unit)


def loss_of(output, target):
    return torch.nn.functional.cross_entropy(output, target, reduction="sum")


def data_set(samples=101):
    dice = torch.Generator().manual_seed(SEED)
    inputs = torch.randint(11, (samples, LENGTH), generator=dice)
    return [(row, row[0] % CLASSES) for row in inputs]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.003)


def trainer(**changes):
    arguments = {"build": build, "loss": loss_of, "data": data_set(), "optimizer": sgd, "seed": SEED,
                 "clip_gradient_norm": 0.3} | LAYOUT | changes
    return pipeline.Trainer(**arguments)


def alone(steps, make_optimizer=sgd, clip=0.3):
    """The losses of one process that trains on the same global batches, and its model."""
    model = torch.nn.Sequential(*(_seeded(build, SEED, unit) for unit in range(LAYERS + 2)))
    optimizer = make_optimizer(model.parameters())
    samples, losses = Samples(data_set(), True, SEED), []
    for step in range(steps):
        inputs, targets = samples.batch(range(step * BATCH, (step + 1) * BATCH))
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets) / BATCH
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"'{text}' is not in: {error}"
        return
    raise AssertionError(f"no {kind.__name__} with '{text}'")


def as_one_process(rank):
    """However the work is divided, training is that of one process."""
    for make_optimizer, clip in ((sgd, 0.3), (adam, 0.0)):
        expected, model = alone(STEPS, make_optimizer, clip)
        training = trainer(optimizer=make_optimizer, clip_gradient_norm=clip)
        assert training.global_batch_size == BATCH
        for step, loss in enumerate(expected):
            done = training.step()
            assert abs(done.loss - loss) < 1e-5 * loss, f"step {step}: loss {done.loss}, alone {loss}"
            assert done.tokens == BATCH
        assert sum(expected[-10:]) < 0.9 * sum(expected[:10]), "it has learnt nothing"
        training.close()
        first = [0, 4, 0][rank]
        for unit, module in enumerate(training.units, first):
            for mine, one in zip(module.parameters(), model[unit].parameters()):
                assert torch.allclose(mine, one, rtol=1e-3, atol=1e-4), f"unit {unit} differs"


def without_weights(_rank):
    """The negative control: with a loss whose counts are wrong, it is not the training of one process."""
    expected, _ = alone(10)
    training = trainer(loss=lambda output, target: (loss_of(output, target), len(target) ** 2))
    found = [training.step().loss for _ in range(10)]
    assert max(abs(one - other) for one, other in zip(found, expected)) > 1e-3, (found, expected)


def resumed(_rank):
    """Training that is stopped and begun again has the same bits."""
    whole = trainer(optimizer=adam)
    expected = [whole.step().loss for _ in range(10)]
    first = trainer(optimizer=adam)
    losses = [first.step().loss for _ in range(5)]
    state = first.state_dict()
    second = trainer(optimizer=adam, seed=SEED)
    second.load_state_dict(state)
    losses += [second.step().loss for _ in range(5)]
    assert losses == expected, (losses, expected)


def frozen_and_empty(_rank):
    """Units without parameters, and some that are not trained."""
    def with_frozen(unit):
        if unit == 2:
            return torch.nn.Tanh()
        module = build(unit if unit != 3 else 2)
        if unit in (0, 4):
            module.requires_grad_(False)
        return module

    def head_of(unit):
        if unit == LAYERS + 1:
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(LENGTH * 12, CLASSES))
        return Block(10, 12) if unit == 4 else with_frozen(unit)

    training = trainer(build=head_of, clip_gradient_norm=0)
    losses = [training.step().loss for _ in range(60)]
    assert sum(losses[-10:]) < sum(losses[:10]), losses


def wrong(rank):
    """What is wrong on one rank, or on all, is an exception on all."""
    raises(RuntimeError, "2 too many", lambda: trainer(hetero_pipeline_stages=[[2, 4, 2], [1, LAYERS]]))
    raises(RuntimeError, "no flag \"layers\"", lambda: trainer(layers=3))
    for setting, two in (("num_micro_batches_per_dp", ([1, 3, 1, 2], [1, 2, 1, 2])), ("seed", (1, 2)),
                         ("shuffle", (True, False)), ("data", (data_set(), data_set(100)))):
        arguments = {setting: two[rank == 1]}
        raises(RuntimeError, "the layout or another setting differs",
               lambda arguments=arguments: trainer(**arguments))
    raises(RuntimeError, "begins with other parameters on rank 2 than on rank 0", lambda: trainer(
        build=lambda unit: _other(build(unit), rank, unit)))
    raises(ZeroDivisionError if rank == 1 else RuntimeError,
           "division" if rank == 1 else "making the modules has failed on rank 1: ZeroDivisionError",
           lambda: trainer(build=lambda unit: build(unit // (rank != 1))))
    raises(TypeError if rank != 1 else RuntimeError, "expected one tensor of float32",
           lambda: trainer(build=lambda unit: torch.nn.Identity() if unit == 0 else build(unit)))
    raises(ValueError, "no samples", lambda: trainer(data=[]))


def states(rank):
    """A state that does not belong to those of the other ranks, and gradients that are somewhere else."""
    training = trainer()
    first = training.state_dict()
    first["units"] = {name: value.clone() for name, value in first["units"].items()}
    training.step()
    later = training.state_dict()
    raises(RuntimeError, "the states are not of the same step",
           lambda: training.load_state_dict(first if rank == 2 else later))
    training.load_state_dict(first)
    training.steps = 5 + rank  # their sum is that of equal ones
    raises(RuntimeError, "others are in another one", training.step)
    training = trainer()
    training.step()
    if rank == 0:
        training.optimizer.zero_grad(set_to_none=True)
    raises(RuntimeError, "weight of unit 0 or its gradient is no longer where" if rank == 0
           else "rank 0 aborted the group", training.step)
    # Where the optimizer fails, the others have made the step.
    training = trainer()
    training.step()
    if rank == 2:
        training.optimizer.step = lambda: 1 // 0
        raises(ZeroDivisionError, "division", training.step)
    raises(RuntimeError, "there is no further step" if rank == 2 else "rank 2 aborted the group",
           lambda: [training.step() for _ in range(2)])


def _other(module, rank, unit):
    """Makes the unit begin otherwise on rank 2."""
    if rank == 2 and unit == 0:
        with torch.no_grad():
            module.weight += 1
    return module


class Failing(torch.nn.Module):
    """Fails in the n-th pass."""

    def __init__(self, module, at, make):
        super().__init__()
        self.module, self.left, self.make = module, at, make

    def forward(self, flow):
        self.left -= 1
        return self.make(self.module(flow)) if self.left == 0 else self.module(flow)


def impossible(_flow):
    raise ArithmeticError("this rank cannot")


def failures(rank):
    """A stage that fails fails the step on every rank, long before the deadline, wherever the others are."""
    for at in (3, 4):  # the example is the first pass
        for victim, unit in ((0, 1), (1, LAYERS), (2, 2)):
            made = []

            def train(victim=victim, unit=unit, at=at, made=made):
                # A rank may fail before the others have got their trainers.
                made.append(trainer(build=lambda of: Failing(
                    build(of), at if rank == victim and of == unit else -1, impossible)))
                for _ in range(9):
                    made[0].step()

            raises(ArithmeticError if rank == victim else RuntimeError,
                   "cannot" if rank == victim else f"rank {victim} aborted the group", train)
            for training in made:
                raises(RuntimeError, "there is no further step", training.step)
                # The parameters are still there.
                assert all(torch.isfinite(each).all() for each in training.units.parameters())
                training.close()
    # The world works as before.
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == dist.get_world_size()


def killed(rank):
    """A rank that is gone fails the step on all others, by its number in the job."""
    training = trainer(build=lambda of: Failing(build(of), 5 if rank == 2 and of == 2 else -1,
                                                lambda flow: os.kill(os.getpid(), signal.SIGKILL)))
    raises(RuntimeError, "rank 2 ", lambda: [training.step() for _ in range(9)])
    training.close()
    os._exit(0)  # the world has failed, too


def diverged(rank):
    """A loss that is not finite updates nothing, on no rank."""
    training = trainer(build=lambda of: Failing(build(of), 4 if rank == 2 and of == 2 else -1,
                                                lambda flow: flow * float("nan")))
    training.step()
    before = [each.clone() for each in training.units.parameters()]
    raises(FloatingPointError, "step 1 has diverged", training.step)
    assert all(torch.equal(one, other) for one, other in zip(before, training.units.parameters()))
    raises(RuntimeError, "step 1 has diverged", training.step)


def main():
    dist.init_process_group("hdt")
    torch.manual_seed(SEED + dist.get_rank())
    for name in sys.argv[1:]:
        print(f"case {name}", flush=True)
        globals()[name](dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
