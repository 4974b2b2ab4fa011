"""layers_rank.py CASE: one rank of a job that trains with a layer of torch above torch.distributed, as
torch_test.py starts it. It ends with 0 if the training is that of one process, with 77 where this torch has
no such layer."""

import inspect
import os
import sys

import torch
import torch.distributed as dist

import hdt_torch  # noqa: F401  pylint: disable=unused-import
from torch_rank import end_if_missing_or_asked, join_world

STEPS, WIDTH, BATCH, MICRO_BATCHES = 4, 24, 8, 4
RATE = 0.05


def model():
    torch.manual_seed(3)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(3 * WIDTH, WIDTH)]
    return torch.nn.Sequential(*layers)


def batch(step):
    """Samples and their targets, those of all ranks."""
    made = torch.Generator().manual_seed(100 + step)
    return torch.randn(2, BATCH, WIDTH, generator=made)


def share(values, rank, size):
    return values.chunk(size)[rank]


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target)


def alone():
    """The weights that one process trains."""
    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    for step in range(STEPS):
        samples, targets = batch(step)
        optimizer.zero_grad()
        loss_of(module(samples), targets).backward()
        optimizer.step()
    return {name: value.detach() for name, value in module.named_parameters()}


def like_alone(found):
    """These weights (some of them or all, by name) are those of one process, and not the initial ones."""
    expected, initial = alone(), dict(model().named_parameters())
    assert found
    for name, value in found.items():
        torch.testing.assert_close(value.detach(), expected[name], rtol=2e-4, atol=2e-5)
        assert not torch.allclose(value, initial[name], atol=1e-3), name


def train(module, optimizer, rank, size):
    for step in range(STEPS):
        samples, targets = batch(step)
        optimizer.zero_grad()
        loss_of(module(share(samples, rank, size)), share(targets, rank, size)).backward()
        optimizer.step()


def zero(rank, size):
    """Each rank has the optimizer's state of its own parameters only."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    module = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, lr=RATE)
    train(module, optimizer, rank, size)
    mine = sum(value.numel() for state in optimizer.optim.state.values() for value in state.values()
               if value.dim() > 0)
    assert 0 < mine < 2 * sum(value.numel() for value in module.parameters()), mine
    like_alone({name[len("module."):]: value for name, value in module.named_parameters()})


def full_weights(module):
    return {name: value.full_tensor() for name, value in module.named_parameters()}


def sharded(mesh):
    from torch.distributed.fsdp import fully_shard
    module = model()
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def mesh_of(*shape):
    names = ("replicas", "shards")[-len(shape):]
    return torch.distributed.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp2(rank, size):
    """Parameters, gradients and optimizer's state are each rank's share."""
    module = sharded(mesh_of(size))
    train(module, torch.optim.AdamW(module.parameters(), lr=RATE), rank, size)
    like_alone(full_weights(module))


def hybrid(rank, size):
    """Two copies of the model, each over half of the ranks."""
    module = sharded(mesh_of(2, size // 2))
    train(module, torch.optim.AdamW(module.parameters(), lr=RATE), rank, size)
    like_alone(full_weights(module))


def pipelining(rank, size):
    """A stage on each rank, with torch's own 1F1B schedule. Micro-batches add up their gradients. Newer
    versions of torch then divide by the number of micro-batches, unless they are not to."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    whole = model()
    layers = list(whole.named_children())
    first, last = (len(layers) * part // size for part in (rank, rank + 1))
    module = torch.nn.Sequential()
    for name, layer in layers[first:last]:
        module.add_module(name, layer)
    stage = PipelineStage(module, rank, size, torch.device("cpu"))
    plain = {"scale_grads": False} if "scale_grads" in inspect.signature(Schedule1F1B).parameters else {}
    schedule = Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, **plain,
                            loss_fn=lambda output, target: loss_of(output, target) / MICRO_BATCHES)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    for step in range(STEPS):
        samples, targets = batch(step)
        optimizer.zero_grad()
        given = (samples,) if rank == 0 else ()
        schedule.step(*given, **({"target": targets} if rank == size - 1 else {}))
        optimizer.step()
    like_alone(dict(module.named_parameters()))


def checkpoints(rank, size):
    """What FSDP2 has trained comes back from torch's distributed checkpoint, on all ranks and on half."""
    import torch.distributed.checkpoint as dcp
    mesh = mesh_of(size)
    module = sharded(mesh)
    train(module, torch.optim.AdamW(module.parameters(), lr=RATE), rank, size)
    folder = os.path.join(os.path.dirname(os.environ["MEETING"]), "checkpoint")
    dcp.save({"model": module.state_dict()}, checkpoint_id=folder)
    again = sharded(mesh)
    state = {"model": again.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    again.load_state_dict(state["model"])
    like_alone(full_weights(again))
    half = dist.new_group(list(range(size // 2)))
    if rank < size // 2:
        small = sharded(torch.distributed.device_mesh.DeviceMesh.from_group(half, "cpu"))
        state = {"model": small.state_dict()}
        dcp.load(state, checkpoint_id=folder, process_group=half)
        small.load_state_dict(state["model"])
        like_alone(full_weights(small))
    dist.barrier()


def has_fsdp2():
    # The FSDP2 of torch 2.6 is for devices with streams only.
    return hasattr(torch, "cpu") and hasattr(getattr(torch.cpu, "Stream", None), "record_event")


# By case: the module of torch that it needs, and what else torch must have.
CASES = {"zero": (zero, "torch.distributed.optim", lambda: True),
         "fsdp2": (fsdp2, "torch.distributed.fsdp", has_fsdp2),
         "hybrid": (hybrid, "torch.distributed.fsdp", has_fsdp2),
         "pipelining": (pipelining, "torch.distributed.pipelining", lambda: True),
         "checkpoints": (checkpoints, "torch.distributed.fsdp", has_fsdp2)}


def main():
    case, module, is_there = CASES[sys.argv[1]]
    missing = None
    try:
        __import__(module)
    except (ModuleNotFoundError, ValueError) as error:  # a ValueError: Python 3.11 and torch 1.13
        missing = f"torch {torch.__version__} has no {module} that can be imported: {error}"
    if not missing and not is_there():
        missing = f"torch {torch.__version__} has no {sys.argv[1]} for the CPU"
    end_if_missing_or_asked(missing)
    join_world()
    case(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
