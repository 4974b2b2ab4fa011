"""reconfigured_rank.py CASE: one rank of a job whose world is made anew of other ranks by reconfigure() of
torch, as torch_test.py starts it. It ends with 0 if everything that it checks holds, with 77 where this torch
has no such call."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from torch_rank import TIMEOUT, end_if_missing_or_asked, equal, filled, refused, works

# The processes go by their first ranks, which they keep.
ME, ALL = int(os.environ["RANK"]), range(int(os.environ["WORLD_SIZE"]))
# Each exchange of handles has a number of its own.
EXCHANGES = iter(range(1000))


def exchange(store, members=ALL):
    """The handles of the members, by process. All members call it equally often."""
    number = next(EXCHANGES)
    store.set(f"{number}/{ME}", dist._get_reconfigure_handle())
    return {member: store.get(f"{number}/{member}").decode() for member in members}


def become(uuid, handles, **options):
    dist._reconfigure(uuid, handles, **options).wait()


def is_group_of(members, others=False):
    """The world is a group of these processes, in their order. Others: there are further worlds beside it."""
    assert (dist.get_rank(), dist.get_world_size()) == (members.index(ME), len(members))
    gathered = [torch.zeros(5) for _ in members]
    dist.all_gather(gathered, filled(float(ME)))
    for member, tensor in zip(members, gathered):
        equal(tensor, member)
    # In each world torch gives new groups the same names, by which their ranks meet in the one store.
    if not others:
        works(dist.get_rank(), dist.get_world_size())


def are_called(called, *hooks):
    """These hooks have been called, once each, in this order. Another thread of HDT's may be at it still."""
    end = time.monotonic() + 30
    while len(called) < len(hooks) and time.monotonic() < end:
        time.sleep(0.01)
    assert called == list(hooks), called


def changes(store):
    assert dist._supports_reconfigure()
    refused("before its first reconfigure()", lambda: dist.all_reduce(filled(1.)))
    everyone = list(ALL)
    handles = exchange(store)
    become(1, [handles[member] for member in everyone])
    is_group_of(everyone)
    # By the same handles, and in another order.
    become(2, [handles[member] for member in reversed(everyone)])
    is_group_of(everyone[::-1])
    # Alone, each with the same uuid; then in two parts; one part grows before the other comes to it.
    become(3, [handles[ME]])
    is_group_of([ME], others=True)
    first, rest = everyone[:1], everyone[1:]
    part = first if ME in first else rest
    become(4, [handles[member] for member in part])
    is_group_of(part, others=True)
    # In a set the order is not ours to say; all agree on it.
    become(5, set(exchange(store).values()))
    order = [torch.zeros(1) for _ in ALL]
    dist.all_gather(order, filled(float(ME), 1))
    is_group_of([int(member) for member in order])
    # A call that is refused leaves the group as it is.
    wrong = [(5, list(handles.values()), {}, "5 was already used"),
             (6, ["no handle"], {}, "'no handle' given as a handle"),
             (7, [handles[ME] + "0"], {}, "given as a handle"),
             (8, [handles[ME][:-1] + "g"], {}, "given as a handle"),
             (9, [], {}, "0 handles given"),
             (10, [handles[member] for member in ALL if member != ME], {}, "none is of this rank"),
             (11, [handles[ME], exchange(store)[ME]], {}, "two handles of one rank"),
             (12, list(handles.values()), {"hints": {"colour": "blue"}}, "no hint is called 'colour'")]
    for uuid, given, options, text in wrong:
        refused(text, lambda u=uuid, g=given, o=options: become(u, g, **o))
    refused("no store", dist.monitored_barrier)
    is_group_of([int(member) for member in order])


def one_is_lost(store):
    everyone, lost = list(ALL), 1
    handles = exchange(store)
    become(1, [handles[member] for member in everyone])
    is_group_of(everyone)
    dist.barrier()
    if ME == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    refused(f"rank {lost}", lambda: [dist.all_reduce(filled(1.)) for _ in range(1000)])
    left = [member for member in everyone if member != lost]
    handles |= exchange(store, left)
    # It does not come, and is named; without it the others go on.
    short = datetime.timedelta(seconds=2)
    refused(f"rank {lost}", lambda: become(2, [handles[member] for member in everyone], timeout=short))
    become(3, [handles[member] for member in left])
    is_group_of(left)


def one_comes_late(store):
    """The ranks that have waited in vain are in their old group still."""
    everyone = list(ALL)
    handles = exchange(store)
    become(1, [handles[member] for member in everyone])
    again = [handles[member] for member in everyone[1:] + everyone[:1]]
    if ME != 0:
        refused("timeout", lambda: become(2, again, timeout=datetime.timedelta(seconds=1)))
    is_group_of(everyone)
    become(3, again)
    is_group_of(everyone[1:] + everyone[:1])


def under_way(store):
    """Reconfiguration ends what is under way; after abort() it mends the group; hooks stay."""
    called, backend = [], dist.get_backend_impl(dist.group.WORLD, torch.device("cpu"))
    errors = torch._C._distributed_c10d.ErrorType
    backend.register_abort_hook(1, lambda: called.append("early"))
    backend.abort()  # there is nothing yet
    assert backend.get_error() == errors.SUCCESS and not called
    everyone, handles = list(ALL), exchange(store)
    ordered = [handles[member] for member in everyone]
    become(1, ordered)
    backend.register_abort_hook(2, lambda: called.append("late"))
    backend.register_abort_hook(3, lambda: called.append("removed"))
    dist.barrier()
    exchange(store)  # no abort meets a barrier that another rank is in still
    backend.abort()
    # Between nodes the daemons pass it on: until they have, there is no failure, and operations complete.
    refused("aborted the group", lambda: [dist.all_reduce(filled(1.)) for _ in range(1000)])
    assert backend.get_error() == errors.COMM_ERROR
    are_called(called, "early", "late", "removed")
    del called[:]
    backend.unregister_abort_hook(3)
    become(2, ordered)
    assert backend.get_error() == errors.SUCCESS and not called
    is_group_of(everyone)
    # No rank sends this message.
    work = dist.irecv(torch.zeros(1), (ME + 1) % len(everyone))
    become(3, ordered)
    refused("aborted the group", work.wait)
    are_called(called, "early", "late")
    # A deadline that was set stays, the one of the reconfiguration does not.
    backend.set_timeout(datetime.timedelta(seconds=1))
    become(4, ordered, timeout=TIMEOUT)
    if ME == 0:
        refused("timeout", lambda: dist.all_reduce(filled(1.)))
    backend.set_timeout(TIMEOUT)
    become(5, ordered)
    is_group_of(everyone)


def main():
    end_if_missing_or_asked(None if hasattr(dist, "_reconfigure")
                            else f"torch {torch.__version__} has no reconfigure()")
    torch.set_num_threads(1)
    store = dist.FileStore(os.environ["MEETING"], len(ALL))
    dist.init_process_group("hdt", store=dist.PrefixStore("torch", store), timeout=TIMEOUT, rank=ME,
                            world_size=len(ALL), enable_reconfigure=True)
    {"changes": changes, "one_is_lost": one_is_lost, "one_comes_late": one_comes_late,
     "under_way": under_way}[sys.argv[1]](dist.PrefixStore("handles", store))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
