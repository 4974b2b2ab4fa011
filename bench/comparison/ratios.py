"""ratios.py: rows that compare times: runs of hdt-commbench with HDT and one peer in turn, and the figure
in them."""

import json
import os
import statistics

from comparison import report
from processes import clean_environment, run_to_success

RUN_LIMIT_S = 900
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}

# Sizes up to the first number are measured with so many iterations a round.
ITERATIONS = ((64 << 10, 500), (1 << 20, 100), (8 << 20, 30), (1 << 40, 8))
ROUNDS = 7
QUICK_ROUNDS = 3
QUICK_PART = 10  # of the iterations
MOST_FACTOR = 1 << 20  # hdt-commbench takes no greater one


def sizes_of(first, last, factor):
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def warm_up(row, iterations):
    return row.first_calls + max(2, iterations // 10)


def bands(row, quick):
    """(first, last, factor, iterations): the row's sizes, cut where the number of iterations changes."""
    first, last = row.sizes
    factor = min(max(2, last // first), MOST_FACTOR) if quick else 2
    found = []
    for size in sizes_of(first, last, factor):
        iterations = min(row.most_iterations, next(count for limit, count in ITERATIONS if size <= limit))
        iterations = max(3, iterations // QUICK_PART) if quick else iterations
        if found and found[-1][3] == iterations:
            found[-1] = (found[-1][0], size, factor, iterations)
        else:
            found.append((size, size, factor, iterations))
    return found


def commbench(row, options, folder, sizes, types, rounds):
    first, last, factor, iterations = sizes
    path = os.path.join(folder, "commbench.json")
    command = [os.path.join(options.bin, "hdt-commbench"), *row.collectives, "--engine",
               ",".join(row.engines), "-b", str(first), "-e", str(last), "-f", str(factor),
               "-n", str(iterations), "-w", str(warm_up(row, iterations)), "--rounds", str(rounds),
               "-d", ",".join(types), "--memory", row.memory, "--local", str(row.local),
               "--nodes", str(row.nodes), "--daemon", options.daemon, "--json", path]
    run_to_success(command, clean_environment(), RUN_LIMIT_S)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def placement(row, collective):
    """Gloo's reduce-scatter destroys its input: out of place it would pay for a copy, so both work in
    place."""
    return "in_place" if (row.peer, collective) == ("gloo", "reduce_scatter") else "out_of_place"


def find(measured, engine, collective, kind, size):
    """The measurement of one engine; RuntimeError says why there is none."""
    for entry in measured["rows"]:
        if (entry["engine"], entry["collective"], entry["type"], entry["bytes"]) == (
                engine, collective, kind, size):
            if entry["lacks"]:
                raise RuntimeError(f"{engine}: {entry['lacks']}")
            return entry
    raise RuntimeError(f"{engine} has no figure for {collective} of {size} bytes, {kind}")


def same_types(row, options, folder):
    points, engines = [], []
    for band in bands(row, options.quick):
        measured = commbench(row, options, folder, band, row.types[:1],
                             QUICK_ROUNDS if options.quick else ROUNDS)
        engines = measured["engines"]
        for entry in measured["rows"]:
            if entry["engine"] != row.peer:
                continue
            if entry["lacks"]:
                raise RuntimeError(f"{row.peer}: {entry['lacks']}")
            where = placement(row, entry["collective"])
            own = find(measured, "hdt", entry["collective"], entry["type"], entry["bytes"])[where]
            peer = entry[where]
            points.append(report.Point(entry["collective"], entry["bytes"], peer["ratio"], own["p50_us"],
                                       peer["p50_us"]))
    return points, engines


def different_types(row, options, folder):
    """Types are measured one after the other in a run, so the runs are repeated and each gives a ratio."""
    own_type, peer_type = row.types
    size = row.sizes[0]
    peer_size = size // ELEMENT_BYTES[own_type] * ELEMENT_BYTES[peer_type]
    own_us, peer_us = [], []
    for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
        iterations = 3 if options.quick else 8
        measured = commbench(row, options, folder, (size, peer_size, peer_size // size, iterations),
                             row.types, 1)
        own_us.append(find(measured, "hdt", row.collectives[0], own_type, size)["out_of_place"]["p50_us"])
        peer_us.append(
            find(measured, row.peer, row.collectives[0], peer_type, peer_size)["out_of_place"]["p50_us"])
    ratio = statistics.median(peer / own for peer, own in zip(peer_us, own_us))
    return [report.Point(row.collectives[0], size, ratio, statistics.median(own_us),
                         statistics.median(peer_us))], \
        measured["engines"]


def measure(row, options, folder):
    points, engines = (same_types if row.types[0] == row.types[1] else different_types)(row, options, folder)
    return report.Result(row, min(point.ratio for point in points), None, points, engines)
