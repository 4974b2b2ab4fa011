"""hdt_torch.hetero: data parallelism for ranks that are not equally fast. Two lines of a script for
DistributedDataParallel change:

    sampler = hetero.UnequalSampler(dataset, batch=96)          # of all ranks together
    loader = DataLoader(dataset, batch_sampler=sampler)
    model = hetero.UnequalDataParallel(model, sampler, balance="auto")

Each rank takes its share of every global batch, and gradients are weighted by what each rank took. So the
training computes what one process with the whole batch would, however the batch is divided, and the shares
may move while it runs. docs/pytorch.md has the formula and what is not done. """

from hdt_torch.hetero._balancer import Balancer, divide
from hdt_torch.hetero._parallel import UnequalDataParallel
from hdt_torch.hetero._sampler import UnequalSampler
from hdt_torch.hetero._throttle import Throttled

__all__ = ["Balancer", "Throttled", "UnequalDataParallel", "UnequalSampler", "divide"]
