"""report.py: results as a table for people and as a JSON document."""

import dataclasses
import os
import platform

BUSY_LOAD = 0.5


@dataclasses.dataclass(frozen=True)
class Point:
    """One size of one collective."""

    collective: str
    bytes: int
    ratio: float  # median over rounds of the peer's time / HDT's
    hdt_us: float
    peer_us: float
    peer: str = ""  # the fastest of several
    ratios: dict = dataclasses.field(default_factory=dict)  # those of all of several peers, by name


@dataclasses.dataclass(frozen=True)
class Result:
    row: object
    figure: object  # None: not measured
    reason: object = None  # why not
    points: tuple = ()
    engines: tuple = ()
    details: dict = dataclasses.field(default_factory=dict)
    notes: tuple = ()  # what else there is to say: peers that are not installed
    absent: bool = False  # no peer is installed: nothing to measure, and no failure

    @property
    def met(self):
        return self.figure is not None and self.row.met(self.figure)

    @property
    def fails(self):
        return not self.met and not self.absent

    @property
    def verdict(self):
        if self.absent:
            return "not installed"
        if self.figure is None:
            return "not measured"
        return "met" if self.met else "missed"


def size_text(count):
    for suffix, unit in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {suffix}"
    return f"{count} B"


def figure_text(result):
    if result.figure is None:
        return "-"
    if len(result.points) < 2:
        return result.row.shown(result.figure)
    worst = min(result.points, key=lambda point: point.ratio)
    best = max(point.ratio for point in result.points)
    against = f", {worst.peer}" if worst.peer else ""
    return (f"{result.row.shown(worst.ratio)} ({worst.collective}, {size_text(worst.bytes)}{against}; "
            f"best {result.row.shown(best)})")


def best_peers(result):
    """Which peer is the fastest at which sizes: a line for each collective."""
    runs = {}  # collective -> [peer, first size, last size, least ratio]
    for point in sorted(result.points, key=lambda point: point.bytes):
        if not point.peer:
            continue
        found = runs.setdefault(point.collective, [])
        if found and found[-1][0] == point.peer:
            found[-1][2:] = [point.bytes, min(found[-1][3], point.ratio)]
        else:
            found.append([point.peer, point.bytes, point.bytes, point.ratio])
    for collective, found in runs.items():
        parts = []
        for peer, first, last, ratio in found:
            sizes = size_text(first) if first == last else f"{size_text(first)} to {size_text(last)}"
            parts.append(f"{sizes} {peer} ({result.row.shown(ratio)})")
        yield f"{collective}: {', '.join(parts)}"


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def versions(results):
    found = {}
    for result in results:
        for engine in result.engines:
            found.setdefault(engine["version"], engine["name"])
    return [f"{name}: {version}" for version, name in found.items()]


def text(results, options):
    lines = [f"# {processor()}, {len(os.sched_getaffinity(0))} cores; daemons {options.daemon}"]
    if options.quick:
        lines.append("# quick: few iterations, rounds and sizes: the figures are indicative only")
    if options.load > BUSY_LOAD:
        lines.append(f"# load {options.load:.2f} at the start: the machine was doing other work, the figures "
                     f"say little")
    lines += ["# " + version for version in versions(results)]
    lines += ["", "| row | work | against | figure | bar | verdict |",
              "| --- | --- | --- | --- | --- | --- |"]
    for result in results:
        lines.append(f"| {result.row.name} | {result.row.work} | {result.row.against} | "
                     f"{figure_text(result)} | "
                     f"{result.row.bar()} | {result.verdict} |")
    lines.append("")
    lines += [f"# {result.row.name}: {result.reason}" for result in results if result.reason]
    for result in results:
        lines += [f"# {result.row.name}: {note}" for note in result.notes]
        lines += [f"# {result.row.name}: best peer of {line}" for line in best_peers(result)]
    absent = sum(result.absent for result in results)
    lines.append(f"# {sum(result.met for result in results)} of {len(results) - absent} met")
    return "\n".join(lines)


def document(results, options):
    return {
        "program": "bench/compare", "format": 1, "processor": processor(),
        "cores": len(os.sched_getaffinity(0)), "load": options.load, "daemon": options.daemon,
        "quick": options.quick, "versions": versions(results), "rows": [{
            "name": result.row.name, "work": result.row.work, "against": result.row.against,
            "figure": result.figure, "shown": figure_text(result), "bar": result.row.bar(),
            "verdict": result.verdict, "reason": result.reason, "notes": list(result.notes),
            "points": [dataclasses.asdict(point) for point in result.points], "details": result.details,
        } for result in results],
    }
