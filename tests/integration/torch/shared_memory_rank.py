"""shared_memory_rank.py CASE...: one rank of a job whose tensors are in shared memory, as
torch_shared_memory_test.py starts it. It ends with 0 if everything that it checks holds."""

import datetime
import gc
import os
import resource
import sys
import threading
import warnings

import torch
import torch.distributed as dist

import hdt_torch

TIMEOUT = datetime.timedelta(seconds=30)
MIB = 1 << 20


def equal(found, expected):
    expected = torch.as_tensor(expected, dtype=found.dtype).expand_as(found)
    assert torch.equal(found, expected), f"rank {dist.get_rank()}: {found} where {expected} was expected"


def mapped():
    """How many pieces of memory of hdtMemAlloc this process has mapped, its own and those of other ranks."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return len({line.split()[4] for line in maps if "memfd:hdt-memory" in line})


def no_copies(rank, size):
    """Ranks map each other's memory only to work in it, so the mappings show that nothing was copied. (The
    rank that hosts the daemon has what the daemon maps, too.)"""
    hdt_torch.use_shared_memory(8 * MIB)
    ordinary = torch.full((MIB,), float(rank))
    dist.all_reduce(ordinary)
    equal(ordinary, size * (size - 1) / 2)
    dist.barrier()
    assert mapped() == hdt_torch.shared_memory()["slabs"] == 0, f"{mapped()} mapped"
    dist.barrier()
    hdt_torch.use_shared_memory(4 * MIB)
    tensor = torch.full((MIB,), float(rank))
    dist.all_reduce(tensor)
    equal(tensor, size * (size - 1) / 2)
    dist.barrier()
    slabs = hdt_torch.shared_memory()["slabs"]
    assert mapped() == slabs * size, f"{mapped()} mapped, {slabs} slabs, {size} ranks"


def views(rank, size):
    """Buffers in the middle of a tensor, and at odd places; what is beside them stays."""
    whole = torch.full((3 * MIB,), -1.)
    assert hdt_torch.shared_memory()["bytes_in_use"] >= 12 * MIB
    middle = whole[MIB + 1:2 * MIB + 4]
    middle.fill_(rank + 1.)
    dist.all_reduce(middle)
    equal(middle, size * (size + 1) / 2)
    equal(whole[:MIB + 1], -1)
    equal(whole[2 * MIB + 4:], -1)
    part = 100_003
    gathered = whole[5:5 + size * part]
    dist._all_gather_base(gathered, torch.full((part,), float(rank)))  # pylint: disable=protected-access
    for other in range(size):
        equal(gathered[other * part:(other + 1) * part], other)
    scattered = whole[-part - 3:-3]
    dist._reduce_scatter_base(scattered, gathered)  # pylint: disable=protected-access
    equal(scattered, rank * size)
    equal(whole[-3:], -1)
    # The same slab in a second group, and in sends and receives.
    pair = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank < 2:
        middle.fill_(rank)
        dist.all_reduce(middle, group=pair)
        equal(middle, 1)
        if rank == 0:
            dist.send(middle, 1)
        else:
            dist.recv(whole[:middle.numel()], 0)
            equal(whole[:middle.numel()], 1)


def losses(rank):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.Tanh(), torch.nn.Linear(500, 100))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    batch = torch.randn(16, 300, generator=torch.Generator().manual_seed(rank))
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = parallel(batch).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def training(rank, _):
    """DDP's losses are those with ordinary memory, to the bit."""
    hdt_torch.use_shared_memory(1 << 60)
    ordinary = losses(rank)
    hdt_torch.use_shared_memory(4096)
    before = hdt_torch.shared_memory()["blocks"]
    shared = losses(rank)
    assert hdt_torch.shared_memory()["blocks"] >= before
    assert shared == ordinary and shared[-1] < shared[0], (shared, ordinary)


def threads(rank, _):
    """Tensors are made and dropped by several threads; nobody's bytes change."""
    before = hdt_torch.shared_memory()
    wrong = []

    def work(number):
        kept = []
        for turn in range(300):
            kept.append(torch.full((20_000 + 1_000 * (turn % 17),), float(number)))
            if len(kept) > 10:
                dropped = kept.pop(turn % 10)
                if not torch.equal(dropped, torch.full_like(dropped, number)):
                    wrong.append(number)
    several = [threading.Thread(target=work, args=(10 * rank + number,)) for number in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    after = hdt_torch.shared_memory()
    assert not wrong and after["blocks"] <= before["blocks"], (wrong, before, after)


def workers(rank, size):
    """Workers of a DataLoader are forked copies: they read their parent's tensors, and make their own."""
    samples = torch.arange(40_000.).reshape(40, 1_000) + rank
    before = hdt_torch.shared_memory()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(samples), batch_size=4, num_workers=2)
    for epoch in range(2):
        for number, (batch,) in enumerate(loader):
            equal(batch, samples[4 * number:4 * number + 4])
            total = torch.full((50_000,), float(epoch))
            dist.all_reduce(total)
            equal(total, epoch * size)
    del total
    child = os.fork()
    if child == 0:  # frees what it has of its parent's, and allocates
        del samples
        os._exit(0 if torch.ones(100_000).sum().item() == 100_000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    after = hdt_torch.shared_memory()
    assert after["blocks"] <= before["blocks"], (before, after)
    equal(samples[3], torch.arange(3_000., 4_000.) + rank)


def refused(rank, size):
    """Where the system refuses shared memory, tensors are ordinary, which is counted and said once."""
    before = hdt_torch.shared_memory()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        tensors = [torch.full((100 * MIB,), float(rank)) for _ in range(2)]
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    after = hdt_torch.shared_memory()
    assert after["fallbacks"] == before["fallbacks"] + 2, (before, after)
    assert after["fallback_bytes"] == before["fallback_bytes"] + 800 * MIB, (before, after)
    assert len(given) == 1 and "no shared memory for a tensor" in str(given[0].message), given
    head = tensors[1][:MIB]
    dist.all_reduce(head)  # with ordinary memory on this rank
    equal(head, size * (size - 1) / 2)


def left_open(rank, _):
    """The interpreter ends with tensors that nothing frees, and with an operation that nobody waits for."""
    sys.kept = torch.ones(MIB)
    dist.all_reduce(torch.full((MIB,), float(rank)), async_op=True)


CASES = {function.__name__: function for function in (
    no_copies, views, training, threads, workers, refused, left_open)}


def main():
    torch.set_num_threads(1)
    assert hdt_torch.shared_memory()["min_bytes"] == 0
    hdt_torch.use_shared_memory()
    dist.init_process_group("hdt", init_method=f"file://{os.environ['MEETING']}", timeout=TIMEOUT,
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    for case in sys.argv[1:]:
        hdt_torch.use_shared_memory(64 << 10)
        gc.collect()  # models of the case before, so that the figures are this one's
        CASES[case](dist.get_rank(), dist.get_world_size())
    if case != "left_open":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
