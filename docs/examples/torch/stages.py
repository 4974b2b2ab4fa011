"""stages.py: two unequal pipelines of a user's own modules, side by side. Three ranks: a replica of two
stages, and one of a single stage. Started once for each rank, with RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT set, as torchrun does."""

import torch
import torch.distributed as dist

import hdt_torch  # noqa: F401  (registers the backend; torch 2.14 finds it by itself)
from hdt_torch import pipeline

LAYERS, WIDTH, CLASSES = 4, 64, 10


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, flow):
        return flow + torch.relu(self.linear(self.norm(flow)))


def build(unit):  # 0: the first unit; 1 .. LAYERS: layers; LAYERS + 1: the head
    if unit == 0:
        return torch.nn.Linear(32, WIDTH)
    return torch.nn.Linear(WIDTH, CLASSES) if unit == LAYERS + 1 else Block()


def loss(output, target):
    return torch.nn.functional.cross_entropy(output, target, reduction="sum")


dist.init_process_group("hdt")
dice = torch.Generator().manual_seed(0)
inputs = torch.randn(2000, 32, generator=dice)
data = torch.utils.data.TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))
trainer = pipeline.Trainer(
    build, loss, data, lambda parameters: torch.optim.AdamW(parameters, lr=3e-3), num_layers=LAYERS,
    # Replica 0: two stages, of 3 layers and 1. Replica 1: one stage, of all 4.
    hetero_pipeline_stages=[[2, 3, 1], [1, 4]], use_tp_pp_dp_mapping=True,
    # Micro-batches of 8 samples; 6 of them for replica 0 in each step, 2 for replica 1.
    micro_batch_size=8, num_micro_batches_per_dp=[1, 6, 1, 2])
for _ in range(100):
    done = trainer.step()
    if dist.get_rank() == 0 and trainer.steps % 20 == 0:
        print(f"step {trainer.steps}: loss {done.loss:.3f}")
trainer.close()
dist.destroy_process_group()
