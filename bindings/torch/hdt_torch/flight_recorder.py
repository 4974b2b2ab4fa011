"""hdt_torch.flight_recorder: torch's flight recorder for groups of HDT, in files that torchfrtrace reads.

    recording = hdt_torch.flight_recorder.record()         # keep it
    ...
    hdt_torch.flight_recorder.dump("traces")               # on every rank, e.g. when a call has failed

    torchfrtrace -p trace_ traces

The program then names the ranks that have not come to a collective, or that called another one. Torch has had
the recorder for every backend since 2.14.
"""

import math
import os
import pickle

import torch
import torch.distributed as dist

# By torch's recorder: what torchfrtrace calls it. The program refuses other names, also those of torch's
# recorder, and all that are of no backend that it lists.
_NAMES = {"allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce", "allgather": "all_gather",
          "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "gather": "gather",
          "scatter": "scatter", "barrier": "barrier"}
_IN_PLACE = {"allreduce", "broadcast", "reduce"}
# By operation: where torchfrtrace expects one tensor, and torch's recorder has one for each rank.
_LISTS = {"allgather": "output", "reduce_scatter": "input"}
_LISTED_BACKEND = "gloo"


def _of_torch(name):
    found = getattr(torch._C._distributed_c10d, name, None)  # pylint: disable=protected-access
    if found is None:
        raise RuntimeError(f"flight recorder: torch {torch.__version__} has none for all backends; 2.14 has")
    return found


def record(group=None):
    """Records the operations of a group (default: the world) as long as the returned object lives. Torch
    keeps the last 2,000, or as many as $TORCH_FR_BUFFER_SIZE says when the first group records."""
    return _of_torch("FlightRecorderHook").attach(group or dist.group.WORLD)


def dump(folder, prefix="trace_"):
    """Writes what this rank of the world has recorded to `folder`/`prefix`RANK, and returns that path. Each
    rank has to, for torchfrtrace compares them all. Sends and receives are left out: torch's recorder does
    not know their other end. OSError if the file cannot be written."""
    trace = pickle.loads(_of_torch("_dump_fr_trace")())
    trace["entries"] = [entry for entry in map(_translated, trace.get("entries", [])) if entry is not None]
    path = os.path.join(folder, f"{prefix}{dist.get_rank()}")
    with open(path, "wb") as file:
        pickle.dump(trace, file)
    return path


def _translated(entry):
    """The entry as torchfrtrace expects it, or None if the program cannot have it."""
    name = entry["profiling_name"].split(":")[-1]
    if name not in _NAMES:
        return None
    entry = dict(entry, profiling_name=f"{_LISTED_BACKEND}:{_NAMES[name]}")
    if name in _IN_PLACE and not entry["output_sizes"]:
        entry.update(output_sizes=entry["input_sizes"], output_dtypes=entry["input_dtypes"])
    if name in _LISTS and len(entry[f"{_LISTS[name]}_sizes"]) > 1:
        side = _LISTS[name]
        elements = sum(math.prod(sizes) for sizes in entry[f"{side}_sizes"])
        entry.update({f"{side}_sizes": [[elements]], f"{side}_dtypes": entry[f"{side}_dtypes"][:1]})
    return entry
