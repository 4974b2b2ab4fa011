"""survive.py: data parallelism in which the ranks that are left go on when others fail. Started once for
each rank, as ddp.py. LOSE=RANK makes that rank end itself in the middle, to show it."""

import os
import signal

import torch
import torch.distributed as dist

import hdt_torch

STEPS = 20


def same_on_all(model, optimizer, step):
    """The step from which all go on: that of rank 0, with its weights and its state of the optimizer."""
    state = [model.state_dict(), optimizer.state_dict(), step]
    dist.broadcast_object_list(state, src=0)
    model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return state[2]


def main():
    dist.init_process_group("hdt")
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    parallel, step = torch.nn.parallel.DistributedDataParallel(model), 0
    while step < STEPS:
        if step == STEPS // 2 and os.environ.get("LOSE") == os.environ["RANK"]:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs = torch.randn(32, 16)
        try:
            loss = (parallel(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
        except RuntimeError as error:
            if hdt_torch.failed_rank() is None:
                raise  # the group works, or no one rank is at fault
            left = hdt_torch.shrink()
            print(f"ranks {left} go on: {error}", flush=True)
            step = same_on_all(model, optimizer, step)
            parallel = torch.nn.parallel.DistributedDataParallel(model)
            continue
        optimizer.step()
        step += 1
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
