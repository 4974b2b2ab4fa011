"""A world of the ranks that are left."""

import datetime
import os
import secrets
import socket

import torch
import torch.distributed as dist

from hdt_torch import _C
from hdt_torch._options import Options


def backend_of(group):
    """HDT's part of a group of torch, None if it has none."""
    try:
        backend = group._get_backend(torch.device("cpu"))  # pylint: disable=protected-access
    except AttributeError:  # up to torch 2.0 the group itself is it
        backend = group
    except RuntimeError:  # no backend for tensors of the CPU
        return None
    name = getattr(backend, "name", lambda: "")  # 2.x
    return backend if name() == "hdt" else None


def failed_rank(group=None):
    """The rank that the failure of a group is about, such as one that has failed; None: the group works, or
    it was no one rank. Ranks of several nodes may see different ones if several fail at the same time."""
    rank = _C.failed_rank(_hdt(group))
    return None if rank < 0 else rank


def shrink(excluded=None, timeout=None, store=None):
    """Makes the world anew, of the ranks that are left, after others have failed. All that are left call it.
    Then they are ranks 0, 1, ... of the new world, in their old order; returns their old ranks, by new rank.

    excluded: the ranks that are not to be in it, the same on all that call; None: the one that the failure of
        the world names (failed_rank()).
    timeout: how long the ranks wait for each other here, a timedelta; None: that of the world, which the new
        one has as well. RuntimeError names who has not come; shrink() can then be called again without them.
    store: a c10d Store that all that are left reach; None: a TCPStore at the new rank 0, as the old store may
        have been where a rank has failed.

    The old world and all groups in it are destroyed: make them anew, and what has been made with them, such
    as DistributedDataParallel(model). The model and the optimizer stay as they are. They may be one step
    apart between ranks, so broadcast them, or load the last checkpoint.
    """
    world = _hdt(None)
    if excluded is None:
        failed = _C.failed_rank(world)
        if failed < 0:
            raise RuntimeError("hdt: shrink: the failure of the world names no rank, or it has not failed; "
                               "give the ranks that are not to be in the new one")
        excluded = [failed]
    excluded = sorted(set(excluded))
    if hasattr(dist, "get_backend_config"):
        devices = [part for part in str(dist.get_backend_config()).split(",") if part]
        if len(devices) != 1:
            raise RuntimeError(f"hdt: shrink: the world has the backends {','.join(devices)}; expected "
                               "\"hdt\" alone. Call destroy_process_group() and init_process_group() instead")
    group_class, deterministic, seconds = _C.options_of(world)
    wait_s = seconds if timeout is None else timeout.total_seconds()
    left = [rank for rank in range(dist.get_world_size()) if rank not in excluded]
    between = _C.without(world, excluded, wait_s)
    rank, size = left.index(dist.get_rank()), len(left)
    if store is None:
        store = _new_store(between, rank, size, datetime.timedelta(seconds=wait_s))
    else:  # it may hold keys of earlier worlds, and of a try that failed on some of the ranks
        name = _text_of_rank_0(between, secrets.token_hex(8) if rank == 0 else "")
        store = dist.PrefixStore(f"hdt/shrink/{name}", store)
    dist.destroy_process_group()
    dist.init_process_group("hdt", store=store, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=seconds),
                            pg_options=Options(group_class=group_class or None, deterministic=deterministic))
    return left


def _hdt(group):
    if group is None:
        if not dist.is_initialized():
            raise RuntimeError("hdt: there is no process group; call init_process_group() first")
        group = dist.group.WORLD
    backend = backend_of(group)
    if backend is None:
        raise RuntimeError(f"hdt: the group's backend is {dist.get_backend(group)!r}; expected \"hdt\"")
    return backend


def _new_store(between, rank, size, timeout):
    """A TCPStore at rank 0. The others hear of it by `between`, the group of those that are left. A rank 0
    that cannot make one says so to the others."""
    text, store, failure = "", None, None
    if rank == 0:
        try:
            host = _own_address()
            store = _tcp_store(host, 0, size, True, timeout)
            text = f"{store.port} {host}"
        except (OSError, RuntimeError) as error:
            failure, text = error, f"! {error}"
    port, host = _text_of_rank_0(between, text).split(" ", 1)
    if failure is not None:
        raise failure
    if port == "!":
        raise RuntimeError(f"hdt: shrink: rank 0 of those that are left could make no store: {host}")
    if store is None:
        store = _tcp_store(host, int(port), size, False, timeout)
    return store


def _tcp_store(host, port, size, is_server, timeout):
    """A TCPStore as torch makes it for init_process_group(): torch 2.2 and later have a server with libuv,
    unless $USE_LIBUV says otherwise, which it must where torch was built without (Debian)."""
    choice = {}
    if "use_libuv" in (dist.TCPStore.__init__.__doc__ or ""):
        choice["use_libuv"] = os.environ.get("USE_LIBUV", "1") == "1"
    return dist.TCPStore(host, port, size, is_server, timeout, wait_for_workers=False, **choice)


def _text_of_rank_0(between, text):
    """The text that rank 0 of the group `between` gives, on all its ranks; at most 256 bytes of it."""
    place, text = torch.zeros(256, dtype=torch.uint8), text.encode()[:256]
    if text:
        place[:len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    options = dist.BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    between.broadcast([place], options).wait()
    return bytes(place.tolist()).rstrip(b"\0").decode(errors="replace")


def _own_address():
    """The address of this node on the way to where the job met. No packet is sent."""
    for family, _, _, _, address in socket.getaddrinfo(os.environ.get("MASTER_ADDR", "127.0.0.1"), 9,
                                                       type=socket.SOCK_DGRAM):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(address)
                return probe.getsockname()[0]
            except OSError:
                continue
    raise RuntimeError("this node has no route to $MASTER_ADDR; give shrink() a store")
