"""The trainer of a rank: it makes the rank's modules and hands them to the engine."""

import collections
import math
import weakref

import torch
import torch.distributed as dist

from hdt_torch import _C
from hdt_torch._shrink import backend_of
from hdt_torch.pipeline._samples import Samples
from hdt_torch.pipeline._stage import Stage

# The result of a step, the same on all ranks. loss: mean over what loss() counts, before the update; tokens:
# how many that are; gradient_norm: over all parameters, before clipping.
Step = collections.namedtuple("Step", ("loss", "tokens", "gradient_norm"))
# splitmix64's: neighbouring seeds and units get unrelated streams.
_STREAM = 0x9E3779B97F4A7C15


class Trainer:
    """A rank's part of the training of one model, as one stage of one replica. All ranks of `group` (default:
    the world) make it together, with the same arguments; it takes their time until all have come.

    The model is a row of units, numbered from 0: an embedding, `num_layers` layers, and a head. Each is a
    module that takes the output of the one before. The first gets the inputs of the samples, and the output
    of the last goes to the loss. One tensor of float32, with a row for each sample, goes from unit to
    unit.

    build(unit)           makes the module of a unit. It is called for the rank's own units only, with torch's
                          random numbers seeded by (seed, unit), so that all replicas start alike, which is
                          checked.
    loss(output, target)  the loss summed over the samples of a micro-batch: a number, if it counts the
                          numbers of `target`; otherwise (sum, count). Training minimises sum / count over
                          the global batch.
    data                  a data set: len(data), and data[i] is (input, target). The first and the last stages
                          of replicas read it.
    optimizer(parameters) makes the optimizer of a stage, of torch or of the same form.

    Layout, with the names and meanings of hdt-train's flags: num_layers, pipeline_model_parallel_size,
    hetero_pipeline_stages (a list for each replica, or one for all), use_tp_pp_dp_mapping, micro_batch_size,
    micro_batch_size_per_dp, num_micro_batches_per_dp, global_batch_size.

    What fails on one rank raises an exception on every rank: there the rank's own, elsewhere RuntimeError."""

    def __init__(self, build, loss, data, optimizer, *, seed=0, shuffle=True, clip_gradient_norm=0.0,
                 group=None, **layout):
        backend = backend_of(group or dist.group.WORLD)
        if backend is None:
            raise RuntimeError("hdt: a trainer needs a group of the backend \"hdt\"")
        self._group = group
        self.steps = 0  # done; the next step takes the samples after theirs
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        # The order of the samples must be the same on the first stage and on the last one, too.
        settings = {"seed": seed, "shuffle": bool(shuffle), "clip_gradient_norm": clip_gradient_norm} | layout
        place = self._agreed("the layout or another setting", lambda: (
            _C.place_of(layout, size, rank), sorted((settings | {"len(data)": len(data)}).items())))
        self.replica, self.stage = place["replica"], place["stage"]
        self.replicas, self.stages = place["replicas"], place["stages"]
        self.global_batch_size = place["global_batch_size"]
        first, end = place["units"]
        self._is_last = self.stage + 1 == self.stages

        def made():
            if clip_gradient_norm < 0:
                raise ValueError(f"clip_gradient_norm is {clip_gradient_norm}; expected 0 or more")
            samples = Samples(data, shuffle, seed)
            units = torch.nn.ModuleList(_seeded(build, seed, unit) for unit in range(first, end))
            return Stage(units, first, self._is_last, loss, samples, optimizer), samples

        (self._stage, samples), sums = self._together(
            "making the modules", made, lambda done: done[0].checksums(buffers=True))
        self._compare(sums, "build() must make the same on every rank")
        input_shape, output_shape = self._shapes(samples, place["previous_rank"])
        self._stage.input_shape = input_shape
        sizes = [sum(each.numel() for each in self._stage.trained(unit)) for unit in range(first, end)]
        self._engine = _C.Trainer(
            backend, layout, sizes, 0 if input_shape is None else math.prod(input_shape),
            0 if output_shape is None else math.prod(output_shape), self._stage.forward, self._stage.backward,
            self._stage.update, float(clip_gradient_norm))
        for unit in range(first, end):
            self._stage.bind(unit, *self._engine.unit_memory(unit))
        # At the latest when the interpreter ends, so that other ranks do not wait for this one.
        self._leave = weakref.finalize(self, self._engine.leave)

    @property
    def units(self):
        """The modules of this rank's units, a ModuleList. Their parameters are those in training."""
        return self._stage.units

    @property
    def optimizer(self):
        """The optimizer of this rank, e.g. for a schedule of learning rates; None: it trains no parameter."""
        return self._stage.optimizer

    def step(self):
        """Trains on the next global batch. FloatingPointError on all ranks: the loss or a gradient is not
        finite; nothing has been updated, and there is no further step."""
        loss, tokens, norm, diverged, diverged_rank = self._engine.step(self.steps)
        if diverged:
            where = f"first on rank {diverged_rank}" if diverged_rank >= 0 else "in the sum over all ranks"
            raise FloatingPointError(
                f"step {self.steps} has diverged: the loss is {loss}, the norm of the gradients {norm}, "
                f"{where}; the parameters are those of the step before")
        self.steps += 1
        return Step(loss, tokens, norm)

    def state_dict(self):
        """The rank's state: its units, its optimizer, and how many steps are done. For the same layout."""
        return {"steps": self.steps, "units": self.units.state_dict(),
                "optimizer": None if self.optimizer is None else self.optimizer.state_dict()}

    def load_state_dict(self, state):
        """Goes on where state_dict() was taken. All ranks call it, each with its own."""
        def load():
            self.units.load_state_dict(state["units"])
            if self.optimizer is not None:
                self.optimizer.load_state_dict(state["optimizer"])
            self.steps = state["steps"]

        _, sums = self._together("loading the state", load, lambda _: self._stage.checksums())
        self._compare(sums, "the states are not of the same step")

    def close(self):
        """Leaves the groups. The modules stay, with their parameters in memory of their own."""
        self._leave()
        self._stage.unbind()

    def _together(self, what, run, share=lambda done: None):
        """What run() returns, and what share() makes of that on each rank. If run() raises an exception, all
        ranks raise one."""
        done, failure = None, None
        try:
            done = run()
            mine = (None, share(done))
        except Exception as error:  # pylint: disable=broad-except
            failure, mine = error, (f"{type(error).__name__}: {error}", None)
        everyone = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(everyone, mine, group=self._group)
        if failure is not None:
            raise failure
        for rank, (text, _) in enumerate(everyone):
            if text is not None:
                raise RuntimeError(f"hdt: {what} has failed on rank {rank}: {text}")
        return done, [shared for _, shared in everyone]

    def _agreed(self, what, run):
        """The first part of what run() returns. The second one must be the same on all ranks."""
        (mine, _), everyone = self._together(what, run, lambda done: done[1])
        for rank, other in enumerate(everyone):
            if other != everyone[0]:
                raise RuntimeError(f"hdt: {what} differs: {everyone[0]} on rank 0, {other} on rank {rank}")
        return mine

    @staticmethod
    def _compare(sums, mend):
        """Ranks that hold the same unit must begin with the same parameters. sums: by rank, then by unit."""
        known = {}
        for rank, of_units in enumerate(sums):
            for unit, checksum in of_units.items():
                other, first = known.setdefault(unit, (checksum, rank))
                if other != checksum:
                    raise RuntimeError(
                        f"hdt: unit {unit} begins with other parameters on rank {rank} than on rank {first}; "
                        f"{mend}")

    def _shapes(self, samples, previous_rank):
        """The shapes of one sample's activations, from the stage before and to the one behind. An example
        goes through the stages of all replicas at once."""
        received, handed_on = None, None
        of_ranks = []  # what each rank has handed on, in the round before
        for stage in range(max(self._together("the layout", lambda: None, lambda _: self.stages)[1])):
            if stage == self.stage and stage > 0:
                received = of_ranks[previous_rank]

            def output_shape(here=stage == self.stage):
                if not here:
                    return None
                return self._stage.output_shape(samples.batch([0])[0] if received is None
                                                else torch.zeros(1, *received))

            made, of_ranks = self._together("an example", output_shape, lambda shape: shape)
            handed_on = made if stage == self.stage else handed_on
        return received, handed_on


def _seeded(build, seed, unit):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed * _STREAM + unit) % (1 << 63))
        module = build(unit)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"build({unit}) returns a {type(module).__name__}; expected a module")
    return module

