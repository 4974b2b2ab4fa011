"""torch_package_rank.py TARGET: a rank of torch_package_test.py, whose hdt_torch is the one in TARGET. Where
torch looks for backends itself, by entry points, hdt_torch is not imported."""

import os
import sys

import torch
import torch.distributed as dist

BY_ENTRY_POINT = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


def main():
    if not BY_ENTRY_POINT:
        import hdt_torch  # noqa: F401, pylint: disable=unused-import
    dist.init_process_group("hdt")
    here = os.path.dirname(sys.modules["hdt_torch"].__file__)
    assert here == os.path.join(sys.argv[1], "hdt_torch"), here
    tensor = torch.full((1000,), dist.get_rank() + 1.)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((1000,), 3.)), tensor
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
