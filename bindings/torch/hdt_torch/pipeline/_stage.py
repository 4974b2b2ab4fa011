"""What a rank computes: the modules of its units, on memory of the engine."""

import zlib

import torch


def _check_output(unit, output, samples):
    """Checks the output of a unit that hands it on to the next one."""
    if not isinstance(output, torch.Tensor) or output.dtype != torch.float32 or output.dim() < 1:
        raise TypeError(f"unit {unit} returns {_described(output)}; expected one tensor of float32, which is "
                        "what goes to the next unit")
    if output.shape[0] != samples:
        raise ValueError(f"unit {unit} returns {_described(output)} for {samples} samples; expected a row "
                         "for each")


def _described(value):
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} and shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def _checksum(named):
    """The checksum of tensors and their names."""
    made = 0
    for name, value in named:
        plain = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        made = zlib.crc32(plain, zlib.crc32(name.encode(), made))
    return made


class Stage:
    """The modules of consecutive units. Each unit has a graph of its own, as its input is a leaf: so backward
    goes unit by unit, and a unit's gradients are complete as soon as its part has run.

    `samples` deals what the first unit and the loss need. The functions forward, backward and update are
    those of hdt/train.h, and are called by the thread that is in step()."""

    def __init__(self, units, first_unit, is_last, loss, samples, make_optimizer):
        self.units = units  # a ModuleList
        self.input_shape = None  # of one sample, from the stage before; None: this is the first
        self._first_unit, self._is_last = first_unit, is_last
        self._loss, self._samples = loss, samples
        self._saved = {}  # by slot: (input, output) of each unit
        self._bound = []  # (name, parameter, address of its data, address of its gradient)
        for unit, module in self._numbered():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad and (parameter.dtype != torch.float32 or parameter.is_cuda):
                    raise TypeError(f"unit {unit}: parameter {name} is {_described(parameter.data)} on "
                                    f"{parameter.device}; expected float32 on the CPU")
        parameters = [each for each in units.parameters() if each.requires_grad]
        # Optimizers refuse an empty list; a stage may have nothing to train.
        self.optimizer = make_optimizer(parameters) if parameters else None

    def _numbered(self):
        return list(enumerate(self.units, self._first_unit))

    def trained(self, unit):
        """The parameters of a unit that are trained, in the order of their places in the engine's memory."""
        return [each for each in self.units[unit - self._first_unit].parameters() if each.requires_grad]

    def bind(self, unit, parameters, gradients):
        """Moves the unit's parameters, with their values, to the engine's memory."""
        at = 0
        module = self.units[unit - self._first_unit]
        names = {parameter: name for name, parameter in module.named_parameters()}
        for parameter in self.trained(unit):
            end = at + parameter.numel()
            place = parameters[at:end].view(parameter.shape)
            place.copy_(parameter.data)
            parameter.data = place
            # Autograd adds into a gradient that is there.
            parameter.grad = gradients[at:end].view(parameter.shape)
            self._bound.append((f"{names[parameter]} of unit {unit}", parameter, parameter.data_ptr(),
                                parameter.grad.data_ptr()))
            at = end

    def checksums(self, buffers=False):
        """{unit: checksum of its parameters}, and of its buffers, which differ once replicas have trained."""
        return {unit: _checksum([*module.named_parameters(), *(module.named_buffers() if buffers else ())])
                for unit, module in self._numbered()}

    def unbind(self):
        """Moves all parameters to memory of their own."""
        self._bound = []
        for parameter in self.units.parameters():
            parameter.data, parameter.grad = parameter.data.clone(), None

    def output_shape(self, example):
        """The shape for one sample, as the last unit hands it on: found by one pass with an example, in
        evaluation mode, as some modules refuse to train with one sample."""
        modes = {module: module.training for module in self.units.modules()}
        self.units.eval()
        try:
            with torch.no_grad():
                for unit, module in self._numbered():
                    example = module(example)
                    if not self._is_last or unit + 1 < self._first_unit + len(self.units):
                        _check_output(unit, example, 1)
        finally:
            for module, mode in modes.items():
                module.training = mode
        return None if self._is_last else tuple(example.shape[1:])

    def _check_bound(self):
        """Gradients that autograd puts elsewhere would be missing in the engine's sums."""
        for name, parameter, data, gradient in self._bound:
            there = parameter.grad is not None and parameter.grad.data_ptr() == gradient
            if not there or parameter.data_ptr() != data:
                raise RuntimeError(
                    f"parameter {name} or its gradient is no longer where the engine works on it: an "
                    "assignment, zero_grad(), or to() has replaced it; the engine zeroes gradients itself")

    def forward(self, slot, numbers, received, output):
        """One micro-batch. Returns (loss, tokens) on the last stage."""
        self._check_bound()
        targets = None
        if numbers is not None:
            flow, targets = self._samples.batch(numbers)
        if received is not None:
            flow = received.view(-1, *self.input_shape)
        saved = []
        for unit, module in self._numbered():
            leaf = flow
            if unit != 0:
                leaf = flow.detach().requires_grad_()
            flow = module(leaf)
            if unit + 1 < self._first_unit + len(self.units) or not self._is_last:
                _check_output(unit, flow, len(leaf) if unit != 0 else len(numbers))
            else:
                flow, tokens = self._summed_loss(flow, targets)
            saved.append((leaf, flow))
        self._saved[slot] = saved
        if self._is_last:
            return float(flow.detach()), tokens
        output.copy_(flow.detach().reshape(output.shape))
        return None

    def _summed_loss(self, output, targets):
        loss = self._loss(output, targets)
        if isinstance(loss, tuple):
            loss, tokens = loss
        elif isinstance(targets, torch.Tensor):
            tokens = targets.numel()
        else:
            raise TypeError(f"loss() returns {_described(loss)} and the targets are {_described(targets)}; "
                            "expected (sum, count), as only the numbers of a tensor can be counted")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise TypeError(f"loss() returns {_described(loss)}; expected the sum of the losses, one number")
        return loss, int(tokens)

    def backward(self, slot, output_gradient, input_gradient, unit_done):
        """Adds the gradients of one micro-batch, last unit first."""
        saved = self._saved.pop(slot)
        gradient = None  # of the loss: 1
        if output_gradient is not None:
            gradient = output_gradient.view(saved[-1][1].shape)
        for unit, _ in reversed(self._numbered()):
            # Popped before it runs: its graph is freed as soon as its gradients are complete.
            leaf, output = saved.pop()
            if output.requires_grad:
                output.backward(gradient)
            if unit != 0:
                gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            unit_done(unit)
        if input_gradient is not None:
            input_gradient.copy_(gradient.reshape(input_gradient.shape))

    def update(self, gradient_scale):
        """The optimizer's step with the gradients of the mean loss."""
        for _, parameter, _, _ in self._bound:
            parameter.grad.mul_(gradient_scale)
        if self.optimizer is not None:
            self.optimizer.step()
