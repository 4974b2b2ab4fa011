"""newer_rank.py CASE: one rank of a job that calls what newer versions of torch have, as torch_test.py starts
it. It ends with 0 if everything that it checks holds, with 77 where this torch has no such call."""

import datetime
import os
import queue
import signal
import subprocess
import sys

import torch
import torch.distributed as dist

import hdt_torch
from torch_rank import TIMEOUT, end_if_missing_or_asked, equal, filled, join_world, refused, works

# Values of torch's WorkResult, which Python does not see.
SUCCESS, TIMED_OUT, FAILED = 0, 1, 2


def fails(call, text):
    """Calls until the group is known to have failed: the first call may still be complete without it."""
    refused(text, lambda: [call() for _ in range(1000)])


def lose(lost, rank, size):
    """A rank is lost, once no other one is in an operation with it, but for the message that says so."""
    if rank == lost:
        for other in range(size):
            if other != lost:
                dist.recv(filled(0.), other)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.isend(filled(0.), lost)


def future_results(rank, size):
    work = dist.all_reduce(filled(float(rank), 1000), async_op=True)
    doubled = work.get_future_result().then(lambda result: result.value() * 2 + 1)
    assert doubled.wait() == 2 * SUCCESS + 1 and work.get_future_result().wait() == SUCCESS
    equal(work.get_future().wait()[0], size * (size - 1) / 2)
    # A batch has one Work.
    manager = dist.distributed_c10d._coalescing_manager  # pylint: disable=protected-access
    with manager(device=torch.device("cpu"), async_ops=True) as together:
        dist.isend(filled(float(rank), 1000), (rank + 1) % size)
        dist.irecv(torch.zeros(1000), (rank - 1) % size)
    assert [work.get_future_result().wait() for work in together.works] == [SUCCESS]
    # The others do not come; then one is lost in the middle of an operation, and of a batch.
    late = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        assert dist.all_reduce(filled(1.), group=late, async_op=True).get_future_result().wait() == TIMED_OUT
    dist.barrier()
    if rank == size - 1:
        lose(rank, rank, size)
    with manager(device=torch.device("cpu"), async_ops=True) as together:
        dist.irecv(torch.zeros(1000), size - 1)
    work = dist.all_reduce(filled(1.), async_op=True)
    lose(size - 1, rank, size)
    assert work.get_future_result().wait() == FAILED
    assert [work.get_future_result().wait() for work in together.works] == [FAILED]


def hooks_of_works_nobody_waits_for(rank):
    """Rank 0 keeps two Works that fail by their deadline, one begun before its hook and one behind it."""
    groups = [dist.new_group(timeout=datetime.timedelta(seconds=1)) for _ in range(2)]
    called, kept = queue.Queue(), []
    if rank == 0:
        kept.append(dist.all_reduce(filled(1.), group=groups[0], async_op=True))
        for number, group in enumerate(groups):
            group.register_abort_hook(1, lambda number=number: called.put(number))
        kept.append(dist.all_reduce(filled(1.), group=groups[1], async_op=True))
        assert {called.get(timeout=TIMEOUT.total_seconds()) for _ in groups} == {0, 1}
        for work in kept:
            refused("timeout", work.wait)
    dist.barrier()


def flight_recorder(rank, size):
    """torchfrtrace finds nothing in operations that are all right, and names a rank that does not come."""
    folder, ready = os.path.join(os.path.dirname(os.environ["MEETING"]), "traces"), dist.new_group()
    late = dist.new_group(timeout=datetime.timedelta(seconds=1), group_desc="late")
    recordings = [hdt_torch.flight_recorder.record(), hdt_torch.flight_recorder.record(late)]
    if rank == 0:
        os.mkdir(folder)
    one, all_ones = torch.ones(2 * size), [torch.ones(2 * size) for _ in range(size)]
    dist.all_reduce(one)
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather(all_ones, one)
    dist.all_gather_single(torch.ones(2 * size * size), one)
    dist.reduce_scatter(one, all_ones)
    dist.reduce_scatter_single(torch.ones(2), one)
    dist.all_to_all(all_ones, [tensor.clone() for tensor in all_ones])
    dist.all_to_all_single(torch.ones(2 * size), one)
    dist.gather(one, all_ones if rank == 0 else None)
    dist.scatter(one, all_ones if rank == 0 else None)
    dist.isend(one, (rank + 1) % size)
    dist.recv(one, (rank - 1) % size)
    dist.barrier()

    def analysed():
        """What torchfrtrace prints, on rank 0."""
        hdt_torch.flight_recorder.dump(folder)
        dist.barrier(group=ready)
        output = ""
        if rank == 0:
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "trace_", folder],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=60)
            output = done.stdout
            assert done.returncode == 0, output
        dist.barrier(group=ready)
        return output

    output = analysed()
    assert not any(fault in output for fault in ("has errors", "Culprit", "missing ranks")), output
    if rank != size - 1:
        refused("timeout", lambda: dist.all_reduce(one, group=late))
    output = analysed()
    assert rank != 0 or f"missing ranks: {{{size - 1}}}" in output, output
    del recordings


def abort_hooks(rank, size):
    hooks_of_works_nobody_waits_for(rank)
    called, world, ready = [], dist.group.WORLD, dist.new_group()
    late = dist.new_group(timeout=datetime.timedelta(seconds=1))

    def broken():
        called.append("broken")
        raise ValueError("of the test")

    late.register_abort_hook(9, lambda: called.append("nine"))
    late.register_abort_hook(4, broken)
    late.register_abort_hook(7, lambda: called.append("seven"))
    late.unregister_abort_hook(7)
    world.register_abort_hook(1, lambda: called.append("replaced"))
    world.register_abort_hook(1, lambda: called.append("world"))
    # A call that cannot be made is no failure of the group.
    refused("multiple", lambda: dist.all_to_all_single(torch.zeros(size + 1), torch.zeros(size + 1)))
    dist.barrier()
    assert not called, called
    # A deadline that is over: on rank 0 in its operation, on the others in the call that is refused.
    if rank == 0:
        refused("timeout", lambda: dist.all_reduce(filled(1.), group=late))
    dist.barrier(group=ready)
    fails(lambda: dist.all_reduce(filled(1.), group=late), "rank 0")
    assert called == ["broken", "nine"], called
    del called[:]
    # This rank gives the group up itself; the others hear of it in an operation that is under way.
    if rank == 0:
        world.abort()
        assert called == ["world"], called
    fails(lambda: dist.all_reduce(filled(1.)), "rank 0 aborted the group")
    assert called == ["world"], called


def shrinks(lost, rank, size, **options):
    """Leaves a rank out of the world by torch's own call; returns this one's new rank."""
    world = dist.shrink_group([lost], **options)
    assert world is dist.group.WORLD and dist.get_backend() == "hdt"
    rank -= rank > lost
    works(rank, size - 1)
    refused("no store", dist.monitored_barrier)
    return rank


def shrunk_when_lost(rank, size):
    """Rank 1 is lost; then the world of the three that are left loses its last rank."""
    dist.new_group([0, size - 1])  # torch destroys it
    lose(1, rank, size)
    fails(lambda: dist.all_reduce(filled(1.)), "rank 1")
    rank = shrinks(1, rank, size)
    lose(size - 2, rank, size - 1)
    fails(lambda: dist.all_reduce(filled(1.)), f"rank {size - 2}")
    assert hdt_torch.failed_rank() == size - 2
    shrinks(size - 2, rank, size - 1, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)


def shrunk_while_all_live(rank, size):
    """A rank is left out of a group, then of the world, though it lives. It goes its own way."""
    # Made first: torch counts calls that make groups, and not all ranks call the first shrink_group().
    some, ready = dist.new_group(list(range(1, size))), dist.new_group()
    if rank == 1:
        equal(torch.tensor(dist.get_world_size(some)), size - 1)
    elif rank > 1:
        fewer = dist.shrink_group([0], group=some)
        tensor = filled(float(rank))
        dist.all_reduce(tensor, group=fewer)
        equal(tensor, size * (size - 1) / 2 - 1)
        assert (fewer.rank(), fewer.size()) == (rank - 2, size - 2)
    # SHRINK_ABORT ends what is under way, here an operation of which the last rank knows nothing.
    if rank == size - 1:
        refused("aborted the group", lambda: (dist.barrier(group=ready), dist.recv(torch.zeros(1), 0)))
        return
    work = dist.all_reduce(filled(1.), async_op=True)
    dist.barrier(group=ready)
    rank = shrinks(size - 1, rank, size, shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    refused("aborted the group", work.wait)
    if rank < size - 2:
        shrinks(size - 2, rank, size - 1)


# By case: the feature of torch that it needs, and the place where to look for it.
WORK = torch._C._distributed_c10d.Work  # pylint: disable=protected-access
CASES = {"future_results": (future_results, WORK, "get_future_result"),
         "flight_recorder": (flight_recorder, torch._C._distributed_c10d, "FlightRecorderHook"),
         "abort_hooks": (abort_hooks, dist.ProcessGroup, "register_abort_hook"),
         "shrunk_when_lost": (shrunk_when_lost, dist, "shrink_group"),
         "shrunk_while_all_live": (shrunk_while_all_live, dist, "shrink_group")}


def main():
    case, place, name = CASES[sys.argv[1]]
    end_if_missing_or_asked(None if hasattr(place, name) else f"torch {torch.__version__} has no {name}()")
    join_world()
    case(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
