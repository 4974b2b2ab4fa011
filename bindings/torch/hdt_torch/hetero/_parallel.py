"""DistributedDataParallel for ranks that take unequal numbers of samples."""

import logging
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hdt_torch import _C
from hdt_torch._shrink import backend_of
from hdt_torch.hetero._balancer import Balancer

LOG = logging.getLogger("hdt_torch.hetero")


class _NoGradients(torch.autograd.Function):
    """A loss that does not depend on the parameters: backward, each of them gets zeros."""

    @staticmethod
    def forward(ctx, *parameters):
        ctx.save_for_backward(*parameters)
        return torch.zeros(())

    @staticmethod
    def backward(ctx, _):
        return tuple(torch.zeros_like(parameter) for parameter in ctx.saved_tensors)


class _WithoutData(torch.nn.Module):
    """In the module's place for a step in which a rank has no data. It owns no parameter. Its buffers are the
    module's, as those of rank 0 are broadcast in each forward pass."""

    def __init__(self, module):
        super().__init__()
        self._module = [module]  # in a list, so that it is no part of this one
        self._trained = [[parameter for parameter in module.parameters() if parameter.requires_grad]]

    def named_buffers(self, *arguments, **named):
        return self._module[0].named_buffers(*arguments, **named)

    def forward(self):
        return _NoGradients.apply(*self._trained[0])


class _Step:
    """One step of all ranks: what each of them takes, in one small allreduce that is under way while the
    forward pass computes. Slots of a rank: its count, the seconds that it computed in the step before, the
    batches that its sampler has dealt, 1 if its count is wrong."""

    SLOTS = 4

    def __init__(self, rank, ranks, group):
        self.rank, self.group = rank, group
        self.mine = 0  # samples of this rank
        self.batches = 0  # of this rank; more than one with no_sync()
        self.begun = 0.0  # its first forward pass
        self.waited = 0.0  # for the announcements of others: no work of this rank
        self.counts = None  # samples by rank, once they are known; with them what is below
        self.seconds = self.dealt = None
        self._ranks = ranks
        self._table = self._work = None

    def announced(self):
        return self._work is not None

    def announce(self, seconds, dealt, wrong):
        self._table = torch.zeros(self.SLOTS, self._ranks, dtype=torch.float64)
        self._table[:, self.rank] = torch.tensor([self.mine, seconds, dealt, wrong], dtype=torch.float64)
        self._work = dist.all_reduce(self._table, group=self.group, async_op=True)

    def hear(self):
        """Waits for the announcements of all ranks. Raises on all ranks if one of them has given a wrong
        count, or if none has a sample."""
        if self._work is None:
            raise RuntimeError("UnequalDataParallel: a backward pass without a forward pass of this step "
                               "that was counted; model.train() counts, model.eval() does not")
        begun = time.perf_counter()
        self._work.wait()
        self.waited = time.perf_counter() - begun
        counts, self.seconds, self.dealt, wrong = self._table.tolist()
        for rank, is_wrong in enumerate(wrong):
            if is_wrong:
                raise RuntimeError(f"UnequalDataParallel: rank {rank} has given no right number of samples; "
                                   "its own error says why")
        if sum(counts) == 0:
            raise RuntimeError("UnequalDataParallel: no rank has a sample in this step")
        self.counts = [int(count) for count in counts]


class _Weights:
    """The state of the communication hook. Not the model: torch's reducer holds it, and the model holds the
    reducer."""

    def __init__(self, group, loss, sampler, balancer, writer):
        self.group, self.loss = group, loss
        self.sampler, self.balancer, self.writer = sampler, balancer, writer
        self.backend = backend_of(group)  # None: not of HDT
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.step = _Step(self.rank, self.ranks, group)
        self.steps = 0
        self.seconds = 0.0  # that this rank computed in the latest step
        self.counts = None  # samples of the latest step, by rank
        self.latest = 0  # samples of the latest forward pass

    def begin_pass(self, count, wrong, reduces):
        """Before a forward pass with `count` samples; `reduces`: the step's last. `wrong`: an error to raise
        when all ranks have heard of it; None: none."""
        step = self.step
        if step.announced():  # the latest pass had no backward pass, so it was none of the training
            step.mine -= self.latest
            step.batches -= 1
        self.latest = count
        if wrong is None and self.loss == "mean" and step.batches and count * step.batches != step.mine:
            wrong = ValueError(f"UnequalDataParallel: a batch of {count} samples after {step.batches} with "
                               f"{step.mine} in one step; with no_sync() and a mean, the batches of a step "
                               "must be equally large (or use loss=\"sum\")")
        if wrong is None:
            step.mine += count
            step.batches += 1
            if step.batches == 1:
                step.begun = time.perf_counter()
        if reduces or wrong is not None:
            dealt = 0 if self.sampler is None else self.sampler.dealt
            step.announce(self.seconds, dealt, wrong is not None)
        if wrong is not None:
            raise wrong

    def reduce(self, bucket):
        """Called by torch for each bucket of gradients, on the thread of the backward pass."""
        step = self.step
        if step.counts is None:
            step.hear()
            if self.backend is not None and self.counts != step.counts:
                _C.set_samples(self.backend, step.counts[self.rank])  # for hdtctl status
            self._move_shares(step)
        gradients = bucket.buffer()
        if step.mine:  # the sum of the means of batches of one size, or the sum over all samples
            weight = (step.mine / step.batches if self.loss == "mean" else 1) / sum(step.counts)
            if gradients.element_size() < 4:
                # torch 1.13 would round the weight to the type of the gradients; here only the product is.
                gradients.copy_(gradients.float().mul_(weight))
            else:
                gradients.mul_(weight)
        else:
            gradients.zero_()  # a mean over nothing may be no number
        work = dist.all_reduce(gradients, group=self.group, async_op=True)
        if bucket.is_last():
            self._end(step)
        return work.get_future().then(lambda done: done.value()[0])

    def _move_shares(self, step):
        # The announced seconds are those of the step before. All ranks have the same numbers here, so they
        # decide the same.
        if self.balancer is None or self.counts is None:
            return
        if self.balancer.shares != self.sampler.shares:  # from a state that was loaded, or set by the user
            self.balancer = Balancer(self.sampler.shares)
        shares = self.balancer.observe(self.counts, step.seconds)
        if shares is None:
            return
        # A batch that some rank's loader has fetched in advance keeps its shares.
        self.sampler.set_shares(shares, int(max(step.dealt)))
        LOG.info("step %d: the ranks take %s samples from now on; %s took %s s", self.steps, shares,
                 self.counts, [round(seconds, 4) for seconds in step.seconds])

    def _end(self, step):
        # This rank has computed; from here on it only waits for others.
        self.seconds = time.perf_counter() - step.begun - step.waited
        self.counts = step.counts
        if self.sampler is not None:
            self.sampler.done += step.batches
        if self.writer is not None:
            for rank, count in enumerate(step.counts):
                self.writer.add_scalar(f"hdt/samples of rank {rank}", count, self.steps)
            self.writer.add_scalar(f"hdt/seconds of rank {self.rank}", self.seconds, self.steps)
        self.steps += 1
        self.step = _Step(self.rank, self.ranks, self.group)


def _reduce(state, bucket):
    """The communication hook."""
    return state.reduce(bucket)


def _rows(*inputs, **named):
    """The samples of a batch, if the caller does not say: the rows of the first tensor."""
    for value in [*inputs, *named.values()]:
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return value.size(0)
    raise ValueError("UnequalDataParallel: no input is a tensor with rows; give tokens_or_samples=, a "
                     "function of the model's inputs that returns the number of samples (or tokens) in them")


class UnequalDataParallel(DistributedDataParallel):
    """As DistributedDataParallel, for ranks whose batches are not equal: the gradients of rank r, which took
    n_r of the N samples of this step, count with the weight n_r / N. So they are the gradients of the mean
    over all N samples, for any n_r, also when they change from step to step. A rank may take none: its batch
    has no rows, or it calls step_without_data() in the place of forward and backward.

    tokens_or_samples: a function of the model's inputs that returns how many samples (or tokens) they have;
        by default the rows of the first tensor. It must count what the loss is a mean over.
    loss: "mean" if the loss is a mean over the samples of the rank, as most are; "sum" if it is their sum.
    sampler: an UnequalSampler, of which each forward pass takes one batch. Its state (`done`) is kept, and
        balance="auto" moves its shares.
    balance: "auto" moves the shares until all ranks need equally long for forward and backward. Needs a
        sampler with at least one sample for each rank.
    writer: of TensorBoard, on the ranks that have one: gets each rank's samples and seconds at every step.
    options: of DistributedDataParallel. A communication hook is not among them, as this is one.

    With no_sync() gradients are accumulated as usual, but the loss is not divided by the number of passes:
    the weights do that. If the loss is a mean, the batches of one step of a rank must be equally large; with
    "sum" they need not be. Passes with model.eval() or without gradients are not counted.

    Errors: wrong numbers of samples raise ValueError on the rank that gave them, and RuntimeError with its
    number in the backward pass of all others. Not thread-safe, as DistributedDataParallel is not.
    """

    def __init__(self, module, sampler=None, *, tokens_or_samples=None, loss="mean", balance=None,
                 writer=None, **options):
        if loss not in ("mean", "sum"):
            raise ValueError(f"UnequalDataParallel: loss {loss!r}; expected \"mean\" or \"sum\"")
        if balance not in (None, "auto") or (balance == "auto" and sampler is None):
            raise ValueError(f"UnequalDataParallel: balance {balance!r}; expected None, or \"auto\" with a "
                             "sampler")
        super().__init__(module, **options)
        balancer = Balancer(sampler.shares) if balance == "auto" else None
        self._unequal = _Weights(self.process_group, loss, sampler, balancer, writer)
        self._count = tokens_or_samples or _rows
        self.register_comm_hook(self._unequal, _reduce)

    @property
    def samples(self):
        """What each rank took in the latest step, by rank; None before the first."""
        return self._unequal.counts

    def forward(self, *inputs, **named):
        if not torch.is_grad_enabled() or not self.training:
            return super().forward(*inputs, **named)
        wrong, count = None, 0
        try:
            count = int(self._count(*inputs, **named))
            if count < 0:
                wrong = ValueError(f"UnequalDataParallel: {count} samples in a batch")
        except Exception as error:  # pylint: disable=broad-except  (other ranks must not wait for this one)
            wrong = error
        self._unequal.begin_pass(count, wrong, self.require_backward_grad_sync)
        return super().forward(*inputs, **named)

    def step_without_data(self):
        """Forward and backward of a step for which this rank has no samples."""
        self._unequal.begin_pass(0, None, True)
        module = self.module
        self._modules["module"] = _WithoutData(module)
        try:
            loss = super().forward()
        finally:
            self._modules["module"] = module
        loss.backward()

    def mean(self, loss):
        """The loss of the latest step over the samples of all ranks, from what each rank has for its own; for
        the log. Every rank must call it after the backward pass, a rank without samples with anything."""
        counts = self.samples
        if counts is None:
            raise RuntimeError("UnequalDataParallel.mean: before the first step")
        part = torch.zeros((), dtype=torch.float64)
        mine = counts[self._unequal.rank]
        if mine:
            part = torch.as_tensor(loss).detach().double()
            part = part * (mine if self._unequal.loss == "mean" else 1) / sum(counts)
        dist.all_reduce(part, group=self.process_group)
        return part.item()
