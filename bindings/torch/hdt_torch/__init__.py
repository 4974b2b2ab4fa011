"""hdt_torch: HDT as a backend of torch.distributed, by the name "hdt".

    import hdt_torch
    torch.distributed.init_process_group("hdt")

Versions of torch that look for backends themselves (entry points, 2.14) need no import. docs/pytorch.md is
the manual.
"""

import atexit
import functools
import inspect
import os
import sys

import torch
import torch.distributed as dist

from hdt_torch import _C, flight_recorder
from hdt_torch._options import Options
from hdt_torch._shrink import failed_rank, shrink

__all__ = ["Options", "failed_rank", "flight_recorder", "shared_memory", "shrink", "use_shared_memory"]


def use_shared_memory(min_bytes=64 << 10):
    """Puts the tensors made from now on into memory that the ranks of a node and its daemon share, if they
    have at least `min_bytes`: collectives then work on them without copies. Call it before the model is made.
    Another call changes `min_bytes` alone. Tensors made before, from NumPy or from files are ordinary."""
    if min_bytes < 1:
        raise ValueError(f"min_bytes is {min_bytes}; expected at least 1")
    _C.use_shared_memory(min_bytes)


def shared_memory():
    """Figures of the shared memory of this process, a dict:

    min_bytes       of use_shared_memory(); 0 if it was not called
    bytes_in_use    of tensors there now, in whole pages of 4,096 bytes
    bytes_held      of all slabs; the system gives them memory as they are first written
    blocks, slabs   their numbers
    fallbacks       tensors of min_bytes and more that got ordinary memory, as there was no more of the shared
    fallback_bytes  their bytes
    """
    return _C.shared_memory()


def _description():
    """The group_desc of the group that torch is making. torch sets it only when the group is made, so it
    is looked up in the function of torch that makes it. None: this torch has no descriptions (before 2.3)."""
    frame = sys._getframe()  # pylint: disable=protected-access
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d":
            if "group_desc" in frame.f_locals:
                return frame.f_locals["group_desc"] or ""
        frame = frame.f_back
    return None


def _class_of_group():
    """What $HDT_CLASS_MAP has for the group that torch is making; "" if nothing."""
    if not os.environ.get("HDT_CLASS_MAP"):
        return ""
    description = _description()
    if description is None:
        raise RuntimeError("hdt: HDT_CLASS_MAP is set, but this torch has no descriptions of groups; "
                           "unset it, and pass pg_options=hdt_torch.Options(group_class=...) instead")
    return _C.class_of(description)


def _create(group, options):
    """torch's call for a new group, with its DistributedBackendOptions and the user's pg_options."""
    if not isinstance(options, Options):
        options = Options()
    group_class = options.group_class or _class_of_group() or os.environ.get("HDT_CLASS", "")
    return _C.create(group.store, group.group_rank, group.group_size, group.timeout.total_seconds(),
                     group_class, options.deterministic, group.group_id or "",
                     list(group.global_ranks_in_group or []), getattr(group, "enable_reconfigure", False))


def _accept_monitored_barrier():
    """dist.monitored_barrier() of torch 1.13 and 2.6 refuses every backend but Gloo. There it is replaced by
    one that calls the group's if that is of HDT, and torch's otherwise."""
    of_torch = dist.monitored_barrier
    backend_of = getattr(dist.distributed_c10d, "get_backend_config", dist.get_backend)
    constants = inspect.unwrap(of_torch).__code__.co_consts
    if not any(isinstance(text, str) and "only implemented for GLOO" in text for text in constants):
        return

    @functools.wraps(of_torch)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        # -1: this rank is not in the group. A group of several backends has the barrier of its "cpu:".
        if dist.get_rank(group) < 0 or not {"hdt", "cpu:hdt"} & set(str(backend_of(group)).split(",")):
            return of_torch(group, timeout, wait_all_ranks)
        given = {} if timeout is None else {"timeout": timeout}
        return (group or dist.group.WORLD).monitored_barrier(wait_all_ranks=wait_all_ranks, **given)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


def _name_shrunk_groups():
    """dist.shrink_group() registers what a backend of host memory has made as Gloo's. torch then looks for
    Gloo's interfaces in it: DistributedDataParallel crashes in 2.14. A group of HDT is registered as every
    other backend that is not torch's own."""
    module = dist.distributed_c10d
    of_torch = getattr(module, "_create_shrunk_process_group", None)
    if of_torch is None:
        return

    @functools.wraps(of_torch)
    def create(backend, *arguments, **named):
        group = of_torch(backend, *arguments, **named)
        if backend.name() == "hdt":
            custom = dist.ProcessGroup.BackendType.CUSTOM
            group._register_backend(torch.device("cpu"), custom, backend)  # pylint: disable=protected-access
            group._set_default_backend(custom)  # pylint: disable=protected-access
        return group

    module._create_shrunk_process_group = create  # pylint: disable=protected-access


def _register():
    """Makes the name known to torch. Entry points are called by it once; an import may have come before."""
    if hasattr(dist.Backend, "HDT"):
        return
    register = dist.Backend.register_backend
    devices = {"devices": ["cpu"]} if "devices" in inspect.signature(register).parameters else {}
    register("hdt", _create, extended_api=True, **devices)
    _accept_monitored_barrier()
    _name_shrunk_groups()


_register()
# Before the interpreter takes itself apart: afterwards no thread may ask for its lock.
atexit.register(_C.close_all)
