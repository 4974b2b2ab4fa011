"""torch_rank.py CASE...: one rank of a job of torch.distributed over HDT, as torch_test.py starts it. It ends
with 0 if everything that it checks holds."""

import datetime
import os
import resource
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

import hdt_torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
         torch.int32, torch.int64]
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
TIMEOUT = datetime.timedelta(seconds=30)
SKIPPED = 77


def equal(found, expected):
    expected = torch.as_tensor(expected, dtype=found.dtype).expand_as(found)
    assert torch.equal(found, expected), f"rank {dist.get_rank()}: {found} where {expected} was expected"


def filled(value, *shape, dtype=torch.float32):
    return torch.full(shape or (5,), value, dtype=dtype)


def reductions(rank, size):
    total = size * (size + 1) // 2
    for dtype in TYPES:
        tensor = filled(rank + 1, 7, dtype=dtype)
        dist.all_reduce(tensor)
        equal(tensor, total)
        for op, expected in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1)):
            tensor = filled(rank + 1, 3, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            equal(tensor, expected)
    tensor = filled(float(rank))
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    equal(tensor, (size - 1) / 2)
    for op, expected in ((dist.ReduceOp.BAND, [False, True, False]), (dist.ReduceOp.BOR, [True, True, False]),
                         (dist.ReduceOp.BXOR, [True, size % 2 == 1, False])):
        truth = torch.tensor([rank == 0, True, False])
        dist.all_reduce(truth, op=op)
        equal(truth, expected)
    for dtype in TYPES[4:]:  # the integers: one bit of each rank, one of all, one of all but rank 0
        shared, rest = 1 << size, 2 << size
        odd = (1 << size) - 1 + (shared if size % 2 == 1 else rest)
        for op, expected in ((dist.ReduceOp.BAND, shared), (dist.ReduceOp.BOR, (4 << size) - 1),
                             (dist.ReduceOp.BXOR, odd)):
            tensor = filled((1 << rank) + shared + (rest if rank else 0), 9, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            equal(tensor, expected)
    waves = filled(complex(rank, 1), dtype=torch.complex64)
    dist.all_reduce(waves)
    equal(waves, complex(size * (size - 1) // 2, size))
    columns = torch.arange(12.).reshape(3, 4).t()  # not contiguous
    dist.all_reduce(columns)
    equal(columns, size * torch.arange(12.).reshape(3, 4).t())
    root = size - 1
    tensor = filled(rank + 1.)
    dist.reduce(tensor, root)
    if rank == root:
        equal(tensor, total)
    output = torch.zeros(2)
    dist.reduce_scatter(output, [filled(float(rank + block), 2) for block in range(size)])
    equal(output, sum(other + rank for other in range(size)))
    output = torch.zeros(3)
    dist._reduce_scatter_base(output, torch.arange(3. * size))  # pylint: disable=protected-access
    equal(output, size * torch.arange(3. * rank, 3. * (rank + 1)))


def exchanges(rank, size):
    tensor = filled(float(rank))
    dist.broadcast(tensor, 1)
    equal(tensor, 1)
    outputs = [torch.zeros(other + 1) for other in range(size)]  # of different lengths
    dist.all_gather(outputs, filled(float(rank), rank + 1))
    for other, output in enumerate(outputs):
        equal(output, other)
    whole = torch.zeros(size, 2)
    dist._all_gather_base(whole, filled(float(rank), 2))  # pylint: disable=protected-access
    equal(whole, torch.arange(float(size)).reshape(size, 1).expand(size, 2))
    outputs = [torch.zeros(3) for _ in range(size)] if rank == 1 else None
    dist.gather(filled(float(rank), 3), outputs, dst=1)
    for other, output in enumerate(outputs or []):
        equal(output, other)
    output = torch.zeros(3)
    dist.scatter(output, [filled(10. + other, 3) for other in range(size)] if rank == 0 else None, src=0)
    equal(output, 10 + rank)
    # One row to rank 0, two to rank 1, and so on.
    rows = torch.arange(float(size * (size + 1) // 2)).reshape(-1, 1)
    output = torch.zeros(size * (rank + 1), 1)
    dist.all_to_all_single(output, rows, [rank + 1] * size, [other + 1 for other in range(size)])
    first = rank * (rank + 1) // 2
    equal(output, torch.arange(float(first), float(first + rank + 1)).repeat(size).reshape(-1, 1))
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(outputs, [filled(100. * rank + other, 2) for other in range(size)])
    for other, output in enumerate(outputs):
        equal(output, 100 * other + rank)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(size)], objects
    dist.barrier()
    dist.monitored_barrier(timeout=TIMEOUT)
    dist.monitored_barrier()
    monitored_barrier_without(size - 1, rank)


def monitored_barrier_without(absent, rank):
    """All ranks but one are in it: rank 0 names the one, and the others say that rank 0 did not pass. They go
    on afterwards."""
    if rank != absent:
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.5), wait_all_ranks=True)
        except RuntimeError as error:
            assert f"Rank {absent} failed to pass monitoredBarrier" in str(error), error
            reached = f"Rank {rank} successfully reached monitoredBarrier"
            assert rank == 0 or reached in str(error), error
        else:
            raise AssertionError("the barrier let a rank through")
    dist.barrier()


def messages(rank, size):
    if rank == 0:
        dist.send(filled(7.), 1)
    elif rank == 1:
        tensor = torch.zeros(5)
        dist.recv(tensor, 0)
        equal(tensor, 7)
    # From whoever comes first; each of the others sends two.
    root = size - 1
    if rank == root:
        seen = []
        for _ in range(2 * root):
            tensor = torch.zeros(2, 3).t()  # not contiguous
            source = dist.recv(tensor)
            equal(tensor, 10 * source + seen.count(source))
            seen.append(source)
        assert sorted(seen) == sorted(2 * list(range(root))), seen
    else:
        for number in range(2):
            dist.send(filled(10. * rank + number, 3, 2), root)
    dist.barrier()
    # Several at once; and in a group of other ranks than all.
    if rank == 0:
        tensors = [torch.zeros(1000) for _ in range(size - 1)]
        for work in [dist.irecv(tensor) for tensor in tensors]:
            work.wait()
        found = sorted(tensor[0].item() for tensor in tensors)
        assert found == list(range(1, size)), found
        for tensor in tensors:
            equal(tensor, tensor[0].item())
    else:
        dist.send(filled(float(rank), 1000), 0)
    dist.barrier()  # else a rank that is quick sends another one, which is taken for that of a slow rank
    last = dist.new_group([0, size - 1])
    if rank == 0:
        assert dist.recv(filled(0.), group=last) == size - 1
    elif rank == size - 1:
        dist.send(filled(1.), 0, group=last)
    # Every rank begins with the messages for which its peer is last: one batch cannot deadlock.
    incoming = [torch.zeros(100_000) for _ in range(size)]
    outgoing = [filled(float(rank), 100_000) for _ in range(size)]
    batch = []
    for other in range(size):
        if other != rank:
            batch.append(dist.P2POp(dist.isend, outgoing[other], other))
            batch.append(dist.P2POp(dist.irecv, incoming[other], other))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    for other in range(size):
        equal(incoming[other], other if other != rank else 0)


def groups(rank, size):
    pair = dist.new_group([0, 1])
    rest = dist.new_group(list(range(1, size)), timeout=TIMEOUT)
    for group, members in ((pair, [0, 1]), (rest, list(range(1, size)))):
        if rank in members:
            tensor = filled(1. + rank)
            dist.all_reduce(tensor, group=group)
            equal(tensor, sum(1 + member for member in members))
    several = [dist.all_reduce(filled(float(rank), 1000), async_op=True) for _ in range(20)]
    for work in reversed(several):
        assert work.wait()
        assert work.is_completed()
        equal(work.result()[0], size * (size - 1) // 2)
    # The callbacks of its future run on completion, whoever waits.
    future = dist.all_reduce(filled(1.), async_op=True).get_future()
    equal(future.then(lambda done: done.value()[0] * 2).wait(), 2 * size)


def class_map(rank, size):
    """The class of a group is that which HDT_CLASS_MAP has for its description, where torch has them."""
    described = {"group_desc": "mesh_tp"} if TORCH >= (2, 3) else {}
    too_long = "x" * 1000
    os.environ["HDT_CLASS_MAP"] = f"*dp*=bulk,*tp*={too_long}"
    refused(f"class '{too_long}'" if described else "no descriptions", lambda: dist.new_group(**described))
    os.environ["HDT_CLASS_MAP"] = "no class"
    refused("'no class'" if described else "no descriptions", lambda: dist.new_group(**described))
    del os.environ["HDT_CLASS_MAP"]
    reductions(rank, size)


def newer(rank, size):
    """What the Backend of torch 2 has beyond the ProcessGroup of 1.13."""
    if TORCH < (2, 1):
        return
    mixed = dist.new_group(backend="cpu:hdt")
    tensor = filled(1. + rank)
    dist.all_reduce(tensor, group=mixed)
    equal(tensor, size * (size + 1) / 2)
    # Collectives of several tensors, and a batch, each with one Work and its future.
    manager = dist.distributed_c10d._coalescing_manager  # pylint: disable=protected-access
    wholes = [torch.zeros(size * (3 + k)) for k in range(4)]
    with manager(async_ops=True) as together:
        for k, whole in enumerate(wholes):
            dist.all_gather_into_tensor(whole, filled(float(rank + k), 3 + k))
    together.wait()
    for k, whole in enumerate(wholes):
        equal(whole.reshape(size, 3 + k), (torch.arange(float(size)) + k).reshape(size, 1))
    parts = [torch.zeros(3 + k) for k in range(4)]
    with manager():
        for k, part in enumerate(parts):
            dist.reduce_scatter_tensor(part, torch.arange(float(size)).repeat_interleave(3 + k) + k)
    for k, part in enumerate(parts):
        equal(part, size * (rank + k))
    received = torch.zeros(1000)
    with manager(device=torch.device("cpu"), async_ops=True) as together:
        dist.isend(filled(float(rank), 1000), (rank + 1) % size)
        dist.irecv(received, (rank - 1) % size)
    together.wait()
    equal(received, (rank - 1) % size)
    own = dist.group.WORLD._get_backend(torch.device("cpu"))  # pylint: disable=protected-access
    if TORCH < (2, 14):
        return
    assert own.supports_coalescing and own.supports_splitting
    # dist.split_group() wants an accelerator; the group itself does not.
    lower = list(range(size // 2))
    half = dist.group.WORLD.split_group(lower if rank in lower else list(range(size // 2, size)), TIMEOUT)
    tensor = filled(1.)
    half.allreduce([tensor]).wait()
    equal(tensor, size // 2)
    # A Work has its collective's number, and leaves torch's registry when it was waited for.
    # pylint: disable=protected-access
    counted, of_torch = dist.new_group(), torch._C._distributed_c10d
    of_torch._set_allow_inflight_collective_as_graph_input(True)
    for number in (1, 2):
        work = dist.all_reduce(filled(1.), group=counted, async_op=True)
        assert work._get_sequence_number() == number and of_torch._get_work_registry_size() == 1
        work.wait()
        assert of_torch._get_work_registry_size() == 0
    of_torch._set_allow_inflight_collective_as_graph_input(False)


def training(rank, size):
    """DDP has the gradients of the whole batch on one rank."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    alone = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    alone.load_state_dict(model.state_dict())
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    batch = torch.randn(4 * size, 8)
    for _ in range(3):
        for trained, samples in ((parallel, batch[4 * rank:4 * (rank + 1)]), (alone, batch)):
            trained.zero_grad()
            trained(samples).square().mean().backward()
            with torch.no_grad():
                for parameter in trained.parameters():
                    parameter -= 0.1 * parameter.grad
    for found, expected in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6), (found - expected).abs().max()


def refused(text, call, kind=RuntimeError):
    try:
        call()
    except RuntimeError as error:
        assert text in str(error), f"'{error}' says nothing of '{text}'"
        assert isinstance(error, kind), f"{type(error)} where {kind} was expected: {error}"
        return
    raise AssertionError(f"no error with '{text}'")


def wrong_calls(rank, size):
    refused("multiple", lambda: dist.all_to_all_single(torch.zeros(size + 1), torch.zeros(size + 1)))
    refused("bitwise XOR of Float", lambda: dist.all_reduce(filled(1.), op=dist.ReduceOp.BXOR))
    refused("bitwise AND of Half",
            lambda: dist.all_reduce(filled(1., dtype=torch.half), op=dist.ReduceOp.BAND))
    work = dist.irecv(torch.zeros(1))  # from any rank
    refused("once it is complete", work._source_rank)  # pylint: disable=protected-access
    dist.isend(filled(1., 1), rank).wait()
    work.wait()
    assert work._source_rank() == rank  # pylint: disable=protected-access
    equal(torch.tensor(float(size)), size)  # the group works on
    tensor = filled(1.)
    dist.all_reduce(tensor)
    equal(tensor, size)
    # A deadline that is over: torch's word for that is in the error.
    late = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        refused("timeout", lambda: dist.all_reduce(filled(1.), group=late))
    dist.barrier()
    # Lengths differ: the error of every rank names both calls.
    refused("6 float32", lambda: dist.all_reduce(filled(1., 5 if rank == 0 else 6)))


def lost_rank(rank, size):
    """The first call may fail, too: the lost rank's part of it was perhaps not on its way yet."""
    if rank == size - 1:
        dist.all_reduce(filled(1.))
        os.kill(os.getpid(), signal.SIGKILL)
    kind = dist.DistBackendError if TORCH >= (2, 1) else RuntimeError
    refused(f"rank {size - 1}", lambda: [dist.all_reduce(filled(1.)) for _ in range(1000)], kind)


def lost_sender(rank, size):
    if rank == size - 1:
        dist.all_reduce(filled(1.))
        os.kill(os.getpid(), signal.SIGKILL)
    refused(f"rank {size - 1}", lambda: (dist.all_reduce(filled(1.)), dist.recv(torch.zeros(1))))


def works(rank, size):
    """The world has these ranks, and all that a script does with a world goes well."""
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    tensor = filled(float(rank))
    dist.all_reduce(tensor)
    equal(tensor, size * (size - 1) / 2)
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == list(range(size)), objects
    first = dist.new_group(sorted({0, size - 1}))
    if rank in (0, size - 1):
        tensor = filled(1.)
        dist.all_reduce(tensor, group=first)
        equal(tensor, len({0, size - 1}))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    equal(model.module.weight.grad, 1)


def survivors(rank, size):
    """Two ranks are lost one after the other, the second one where the store is. The others go on."""
    assert size == 4 and hdt_torch.failed_rank() is None
    refused("names no rank", hdt_torch.shrink)
    refused("excluded rank 4 is not in the group", lambda: hdt_torch.shrink([4]))
    works(rank, size)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    refused("rank 1", lambda: [dist.all_reduce(filled(1.)) for _ in range(1000)])
    assert hdt_torch.failed_rank() == 1
    assert hdt_torch.shrink() == [0, 2, 3]
    rank = [0, 2, 3].index(rank)
    works(rank, 3)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    refused("rank 0", lambda: [dist.all_reduce(filled(1.)) for _ in range(1000)])
    short = datetime.timedelta(seconds=1)
    refused("rank", lambda: hdt_torch.shrink([rank - 1 or 2], timeout=short))  # each leaves out the other
    assert hdt_torch.shrink([0], timeout=TIMEOUT) == [1, 2]
    works(rank - 1, 2)


def refused_thread(rank, size):
    """The memory that rank 0 may have leaves no room for the stack of another thread."""
    if rank > 0:
        refused("rank 0 aborted the group", lambda: dist.all_reduce(filled(1.)))
        return
    with open("/proc/self/statm", encoding="ascii") as sizes:
        pages = int(sizes.read().split()[0])
    before, end, tensor, threads = resource.getrlimit(resource.RLIMIT_AS), threading.Event(), filled(1.), []
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 20), before[1]))
    try:
        while True:  # stacks of threads that have ended are used again
            threads.append(threading.Thread(target=end.wait))
            threads[-1].start()
    except RuntimeError:
        refused("completion thread is refused", lambda: dist.all_reduce(tensor))
    resource.setrlimit(resource.RLIMIT_AS, before)
    end.set()
    for thread in threads[:-1]:
        thread.join()


def left_open(rank, size):
    """The interpreter ends with an operation that nobody waits for, and without destroy_process_group()."""
    dist.all_reduce(filled(float(rank), 1000 * size), async_op=True)


def destroyed_in_a_callback(rank, size):
    """Rank 0 destroys the group while its own thread for completed operations runs a callback of Python."""
    tensor = filled(float(rank))
    if rank != 0:
        dist.recv(filled(0.), 0)  # until then the operation is under way on rank 0
        dist.all_reduce(tensor)
    else:
        begun = threading.Event()

        def callback(done):
            begun.set()
            time.sleep(0.2)  # and needs the interpreter's lock again
            return done.value()

        dist.all_reduce(tensor, async_op=True).get_future().then(callback)
        for other in range(1, size):
            dist.send(filled(0.), other)
        assert begun.wait(TIMEOUT.total_seconds())
    dist.destroy_process_group()


CASES = {function.__name__: function for function in (
    reductions, exchanges, messages, groups, class_map, newer, training, wrong_calls, lost_rank, lost_sender,
    survivors, refused_thread, left_open, destroyed_in_a_callback)}


def end_if_missing_or_asked(missing):
    """missing: what this version of torch lacks, or None. It ends the process, as does the question alone
    (PROGRAM CASE asked)."""
    if missing:
        print(missing)
        sys.exit(SKIPPED)
    if sys.argv[2:] == ["asked"]:
        sys.exit(0)


def join_world():
    """Makes the world of the ranks that torch_job started."""
    torch.set_num_threads(1)
    dist.init_process_group("hdt", init_method=f"file://{os.environ['MEETING']}", timeout=TIMEOUT,
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def main():
    join_world()
    assert dist.get_backend() == "hdt" and hdt_torch.Options().group_class is None
    for case in sys.argv[1:]:
        CASES[case](dist.get_rank(), dist.get_world_size())
    if case not in ("left_open", "lost_rank", "wrong_calls", "destroyed_in_a_callback"):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
