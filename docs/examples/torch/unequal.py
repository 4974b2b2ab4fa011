"""unequal.py: data parallelism of ranks that are not equally fast, over HDT. Started once for each rank, with
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, as torchrun does."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import hdt_torch  # noqa: F401  (registers the backend; torch 2.14 finds it by itself)
from hdt_torch import hetero

dist.init_process_group("hdt")
rank = dist.get_rank()
torch.manual_seed(0)
inputs = torch.randn(1920, 64)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
# For the demonstration: devices of 1, 0.6 and 0.35 of the speed.
model = hetero.Throttled(model, [1, 0.6, 0.35][rank % 3])

sampler = hetero.UnequalSampler(data, batch=96)  # was: DistributedSampler, and a batch of each rank
loader = DataLoader(data, batch_sampler=sampler, collate_fn=sampler.collate)
model = hetero.UnequalDataParallel(model, sampler, balance="auto")  # was: DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, targets in loader:
        loss = (model(batch) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
loss = model.mean(loss)
if rank == 0:
    print(f"loss {loss:.3f}, samples of each rank in a batch: {sampler.shares}")
dist.destroy_process_group()
