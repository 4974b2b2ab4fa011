"""best_peer.py: rows that compare HDT with the fastest of several peers at each size. In a round HDT and
every peer have a turn, each in processes of its own."""

import statistics

from comparison import peers, ratios, report


def work_of(row, bands):
    """What a peer is told to measure: (collective, bytes, warm-up, iterations)."""
    return [(collective, size, ratios.warm_up(row, iterations), iterations) for collective in row.collectives
            for first, last, factor, iterations in bands for size in ratios.sizes_of(first, last, factor)]


def own_times(row, options, folder, bands):
    """({(collective, bytes): both placements}, engines) of a turn of HDT."""
    entries, engines = {}, []
    for band in bands:
        measured = ratios.commbench(row, options, folder, band, row.types[:1], 1)
        engines = measured["engines"]
        entries |= {(entry["collective"], entry["bytes"]): entry for entry in measured["rows"]}
    return entries, engines


def points_of(rounds):
    """The points of a row. A round is (HDT's entries, {peer: what it has measured}); a peer is compared where
    it works, in place or not, and is left out of a point where it lacks the collective."""
    found = {}  # (collective, bytes) -> peer -> [(the peer's time, HDT's)]
    for own, others in rounds:
        for name, lines in others.items():
            for line in lines:
                if "lacks" in line:
                    continue
                key = line["collective"], line["bytes"]
                pair = line["p50_us"], own[key][line["placement"]]["p50_us"]
                found.setdefault(key, {}).setdefault(name, []).append(pair)
    points = []
    for (collective, size), by_peer in found.items():
        median = {name: statistics.median(peer / hdt for peer, hdt in pairs)
                  for name, pairs in by_peer.items()}
        best = min(median, key=median.get)
        peer_us, hdt_us = (statistics.median(column) for column in zip(*by_peer[best]))
        points.append(report.Point(collective, size, median[best], hdt_us, peer_us, best, median))
    return points


def measure(row, options, folder):
    missing = {peers.PEERS[key].name: peers.PEERS[key].missing(options) for key in row.peers}
    notes = [f"{name}: {reason}" for name, reason in missing.items() if reason]
    present = [peers.PEERS[key] for key in row.peers if not missing[peers.PEERS[key].name]]
    if not present:
        return report.Result(row, None, notes=notes, absent=True)
    for peer in present:
        peer.prepare(options, folder)
    bands = ratios.bands(row, options.quick)
    work = work_of(row, bands)
    rounds, versions = [], {}
    for _ in range(ratios.QUICK_ROUNDS if options.quick else ratios.ROUNDS):
        own, engines = own_times(row, options, folder, bands)
        others = {}
        for peer in present:
            version, others[peer.name] = peers.times(peer, options, folder, row.nodes * row.local, work,
                                                      apart=row.nodes > 1)
            versions[peer.name] = version
        rounds.append((own, others))
    points = points_of(rounds)
    if not points:
        raise RuntimeError("no peer has one of the collectives")
    engines = [*engines, *({"name": name, "version": version} for name, version in versions.items())]
    return report.Result(row, min(point.ratio for point in points), None, points, engines, notes=notes)
