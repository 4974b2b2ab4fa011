"""report.py: counts faults by kind, and finds the longest pause that followed one of each kind."""

import json
import threading

# An operation that was under way so long after a fault was over is still counted as paused by it.
AFTER_S = 1.0
NOISE = "(none)"


class Report:
    def __init__(self):
        self.lock = threading.Lock()
        self.faults = []    # [kind, begin, from when on a pause counts, end or None]
        self.pauses = {}    # kind -> list of the longest pause of each fault, in seconds
        self.longest = {}   # fault's place -> pause
        self.counts = {}
        self.noise = 0.0
        self.recoveries = {}

    def begin(self, kind, now):
        with self.lock:
            self.faults.append([kind, now, now, None])
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return len(self.faults) - 1

    def over(self, fault, now, counts_from=None):
        """`counts_from`: what waits for a rank or a daemon that is stopped or gone waits rightly until
        this moment."""
        with self.lock:
            self.faults[fault][3] = now
            if counts_from is not None:
                self.faults[fault][2] = counts_from

    def recovery(self, kind, seconds):
        with self.lock:
            self.recoveries.setdefault(kind, []).append(seconds)

    def on_pause(self, _rank, _operation, begin, end, excess):
        """Belongs to the latest fault that was made before its end."""
        with self.lock:
            for place in range(len(self.faults) - 1, max(-1, len(self.faults) - 20), -1):
                _, fault_begin, counts_from, fault_end = self.faults[place]
                if fault_begin < end and (fault_end is None or begin < fault_end + AFTER_S):
                    # Where waiting until a moment is right, only what is waited longer counts; it is not
                    # known before the end.
                    pause = (end - excess, end)
                    self.longest.setdefault(place, []).append(pause)
                    return
            self.noise = max(self.noise, excess)

    def _pauses(self):
        """kind -> longest pause of each of its faults."""
        found = {}
        for place, (kind, _, counts_from, _) in enumerate(self.faults):
            longest = max((end - max(begin, counts_from) if counts_from > begin else end - begin
                           for begin, end in self.longest.get(place, [])), default=0.0)
            found.setdefault(kind, []).append(max(0.0, longest))
        return found

    def summary(self):
        with self.lock:
            kinds = {}
            for kind, pauses in sorted(self._pauses().items()):
                ordered = sorted(pauses)
                kinds[kind] = {"faults": self.counts[kind], "longest_pause_ms": round(ordered[-1] * 1e3, 1),
                               "median_pause_ms": round(ordered[len(ordered) // 2] * 1e3, 1)}
                if kind in self.recoveries:
                    kinds[kind]["longest_recovery_ms"] = round(max(self.recoveries[kind]) * 1e3, 1)
            return {"faults": kinds, "longest_pause_without_a_fault_ms": round(self.noise * 1e3, 1)}


def table(result):
    lines = [f"{'fault':<17} {'times':>6} {'pause ms, median':>17} {'longest':>8} "
             f"{'working again ms, longest':>26}"]
    for kind, row in result["faults"].items():
        again = row.get("longest_recovery_ms", "")
        lines.append(f"{kind:<17} {row['faults']:>6} {row['median_pause_ms']:>17} "
                     f"{row['longest_pause_ms']:>8} {again:>26}")
    lines.append(f"{NOISE:<17} {'':>6} {'':>17} {result['longest_pause_without_a_fault_ms']:>8}")
    lines.append(f"{result['operations']} operations, {result['bytes'] / 1e9:.2f} GB, "
                 f"{sum(row['faults'] for row in result['faults'].values())} faults, "
                 f"{result['mismatches']} mismatches, {result['lost_operations']} lost operations")
    return "\n".join(lines)


def write(path, result):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
