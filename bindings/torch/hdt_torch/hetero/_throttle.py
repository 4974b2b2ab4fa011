"""A slow device for tests and demonstrations, as `hdt-train --slow-down` makes one."""

import time

import torch


class Throttled(torch.nn.Module):
    """The module, computing at `fraction` of its speed, forward and backward: after each part of the work it
    sleeps as long as makes the fraction. It sleeps rather than computes, so that other ranks of the machine
    are not disturbed. Results are those of the module.

    The work is counted in processor time of the calling thread. So a rank that waits for others, or for a
    processor that others have, is not slowed for that as well. With more threads (torch.set_num_threads) the
    calling one has its part in all that torch computes.

    Backward, it sleeps when a parameter has its gradient, so a module without parameters is slowed forward
    only. """

    def __init__(self, module, fraction):
        super().__init__()
        if not 0 < fraction <= 1:
            raise ValueError(f"Throttled: fraction {fraction}; expected more than 0 and at most 1")
        self.module = module
        self._idle = 1 / fraction - 1  # for each second of work
        self._since = None  # the work since then has not been rested for; None: no work is under way
        self._trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._missing = 0  # gradients of this backward pass that are still to come
        for parameter in self._trained:
            parameter.register_hook(self._after_a_gradient)

    def _rest(self):
        if self._since is not None:
            time.sleep(self._idle * (time.thread_time() - self._since))
            self._since = time.thread_time()

    def _after_a_gradient(self, gradient):
        self._rest()
        self._missing -= 1
        if self._missing <= 0:
            self._since = None
        return gradient

    def forward(self, *inputs, **named):
        self._since = time.thread_time()
        output = self.module(*inputs, **named)
        self._rest()
        self._since = None
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(self._begin)
        return output

    def _begin(self, gradient):
        self._since, self._missing = time.thread_time(), len(self._trained)
        return gradient


def _tensors(output):
    """The tensors in what a module returns."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if not isinstance(output, (list, tuple)):
        return []
    return [tensor for part in output for tensor in _tensors(part)]
