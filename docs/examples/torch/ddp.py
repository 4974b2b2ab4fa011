"""ddp.py: data parallelism over HDT. Started once for each rank, with RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT set, as torchrun does."""

import torch
import torch.distributed as dist

import hdt_torch  # noqa: F401  (registers the backend; torch 2.14 finds it by itself)

dist.init_process_group("hdt")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for step in range(20):
    inputs = torch.randn(32, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}")
dist.destroy_process_group()
