"""comparison_test.py: the logic of bench/compare: sizes, figures, verdicts and the table, on results made
by hand."""

import os
import sys
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench"))

from comparison import best_peer, peers, ratios, report, table  # noqa: E402  the path comes first

ROW = table.RatioRow("example", "some work", "somebody", "mpi", 2, (8, 1024))
OPTIONS = types.SimpleNamespace(quick=False, daemon="embedded", load=0.1)


def entry(engine, size, p50, ratio, lacks=None, collective="allreduce", in_place_ratio=None):
    placed = {"p50_us": p50, "ratio": ratio}
    other = {"p50_us": p50, "ratio": ratio if in_place_ratio is None else in_place_ratio}
    return {"engine": engine, "collective": collective, "type": "float32", "bytes": size, "lacks": lacks,
            "out_of_place": None if lacks else placed, "in_place": None if lacks else other}


class Bands(unittest.TestCase):
    def test_every_size_is_measured_once(self):
        for row in table.ROWS:
            if not isinstance(row, table.RatioRow):
                continue
            sizes = []
            for first, last, factor, _ in ratios.bands(row, quick=False):
                while first <= last:
                    sizes.append(first)
                    first *= factor
            expected = []
            size = row.sizes[0]
            while size <= row.sizes[1]:
                expected.append(size)
                size *= 2
            self.assertEqual(sizes, expected, row.name)

    def test_larger_sizes_have_fewer_iterations(self):
        self.assertEqual(ratios.bands(table.RatioRow("r", "", "", "mpi", 1, (32 << 10, 256 << 10)), False),
                         [(32 << 10, 64 << 10, 2, 500), (128 << 10, 256 << 10, 2, 100)])

    def test_quick_takes_the_ends_only(self):
        self.assertEqual([band[:2] for band in ratios.bands(ROW, True)], [(8, 1024)])

    def test_no_factor_is_greater_than_commbench_takes(self):
        for row in table.ROWS:
            if isinstance(row, table.RatioRow):
                for quick in (False, True):
                    for _, _, factor, _ in ratios.bands(row, quick):
                        self.assertTrue(2 <= factor <= 1 << 20, row.name)


class Figures(unittest.TestCase):
    def measure(self, entries, row=ROW):
        measured = {"engines": [{"name": "hdt", "version": "H"}], "rows": entries}
        original = ratios.commbench
        ratios.commbench = lambda *_: measured
        try:
            return ratios.measure(row, OPTIONS, "")
        finally:
            ratios.commbench = original

    def test_the_figure_is_that_of_the_worst_size(self):
        result = self.measure([entry("hdt", 8, 1, 1), entry("mpi", 8, 3, 3), entry("hdt", 1024, 1, 1),
                               entry("mpi", 1024, 1.9, 1.9)])
        self.assertEqual(result.figure, 1.9)
        self.assertEqual(result.verdict, "missed")
        self.assertEqual(report.figure_text(result), "1.90 x faster (allreduce, 1 KiB; best 3.00 x faster)")

    def test_a_figure_at_the_bar_meets_it(self):
        result = self.measure([entry("hdt", 8, 1, 1), entry("mpi", 8, 2, 2)])
        self.assertEqual(result.verdict, "met")

    def test_what_the_peer_lacks_is_no_figure(self):
        with self.assertRaisesRegex(RuntimeError, "mpi: no such call"):
            self.measure([entry("hdt", 8, 1, 1), entry("mpi", 8, 0, 0, lacks="no such call")])

    def test_gloos_reduce_scatter_is_compared_in_place(self):
        row = table.RatioRow("g", "", "", "gloo", 2, (8, 8), collectives=("reduce_scatter",))
        result = self.measure([entry("hdt", 8, 1, 1, collective="reduce_scatter"),
                               entry("gloo", 8, 9, 9, collective="reduce_scatter", in_place_ratio=1.5)], row)
        self.assertEqual(result.figure, 1.5)

    def test_different_types_are_compared_by_count(self):
        row = table.RatioRow("b", "", "", "mpi", 3, (16, 16), types=("bfloat16", "float32"))
        rows = [dict(entry("hdt", 16, 2, 1), type="bfloat16"), dict(entry("mpi", 32, 7, 1)),
                dict(entry("mpi", 16, 1, 1))]
        self.assertEqual(self.measure(rows, row).figure, 3.5)


class FakePeer:
    """A peer that takes what it is told for each size, or is not there."""

    def __init__(self, name, times, reason=None):
        self.name = name
        self.times = times  # one for each round: {bytes: microseconds, or None: it lacks the collective}
        self.reason = reason
        self.prepared = 0

    def missing(self, _):
        return self.reason

    def prepare(self, *_):
        self.prepared += 1


class BestPeers(unittest.TestCase):
    ROW = table.BestRow("b", "some work", "the best peer", "", 1, (8, 16), peers=("a", "b", "c"))

    def measure(self, *fakes, row=ROW):
        turns = []

        def own(*_):
            turns.append("hdt")
            entries = [entry("hdt", size, 2, None) for size in (8, 16)]
            entries[0]["in_place"]["p50_us"] = 4
            return {"engines": [{"name": "hdt", "version": "H"}], "rows": entries}

        def times(peer, _, __, ranks, ___, apart):
            self.assertEqual((ranks, apart), (2, row.nodes == 2))
            turns.append(peer.name)
            placement = "in_place" if peer.name == "in place" else "out_of_place"
            return f"{peer.name} 1.0", [
                {"collective": "allreduce", "bytes": size} |
                ({"lacks": "no"} if p50 is None else {"placement": placement, "p50_us": p50})
                for size, p50 in peer.times.pop(0).items()]

        with unittest.mock.patch.dict(peers.PEERS, dict(zip("abc", fakes)), clear=True), \
                unittest.mock.patch.object(ratios, "commbench", own), \
                unittest.mock.patch.object(peers, "times", times):
            result = best_peer.measure(row, types.SimpleNamespace(quick=True), "")
        return result, turns

    def test_a_point_is_that_of_the_fastest_peer(self):
        result, turns = self.measure(FakePeer("A", [{8: 6, 16: 3}, {8: 6, 16: 5}, {8: 6, 16: 4}]),
                                     FakePeer("B", [{8: 5, 16: 9}, {8: 90, 16: 9}, {8: 5, 16: 9}]),
                                     FakePeer("C", [], "not installed (Debian: c)"))
        self.assertEqual(turns, ["hdt", "A", "B"] * ratios.QUICK_ROUNDS)
        # B is the fastest at 8 B, by the median over its rounds; A at 16 B.
        self.assertEqual([(point.bytes, point.peer, point.ratio, point.hdt_us, point.peer_us)
                          for point in result.points], [(8, "B", 2.5, 2, 5), (16, "A", 2, 2, 4)])
        self.assertEqual(result.points[0].ratios, {"A": 3, "B": 2.5})
        self.assertEqual((result.figure, result.verdict, result.fails), (2, "met", False))
        self.assertEqual([engine["version"] for engine in result.engines], ["H", "A 1.0", "B 1.0"])
        text = report.text([result], OPTIONS)
        self.assertIn("2.00 x faster (allreduce, 16 B, A; best 2.50 x faster)", text)
        self.assertIn("# b: C: not installed (Debian: c)\n", text)
        self.assertIn("# b: best peer of allreduce: 8 B B (2.50 x faster), 16 B A (2.00 x faster)\n", text)

    def test_sizes_with_one_best_peer_are_named_together(self):
        points = [report.Point("allgather", size, ratio, 1, ratio, peer) for size, ratio, peer in
                  ((4096, 1.5, "A"), (1024, 3, "A"), (2048, 2, "A"), (8192, 5, "B"))]
        self.assertEqual(list(report.best_peers(report.Result(ROW, 1.5, None, points))),
                         ["allgather: 1 KiB to 4 KiB A (1.50 x faster), 8 KiB B (5.00 x faster)"])
        self.assertEqual(list(report.best_peers(report.Result(ROW, 1, None, [
            report.Point("allreduce", 8, 1, 1, 1)]))), [])

    def test_in_place_is_compared_with_in_place_and_what_is_lacking_left_out(self):
        result, _ = self.measure(*(FakePeer(name, [{8: 6, 16: last}] * 3)
                                   for name, last in (("in place", None), ("A", 20), ("C", 30))))
        self.assertEqual([(point.peer, point.ratio) for point in result.points],
                         [("in place", 1.5), ("A", 10)])

    def test_ranks_of_emulated_nodes_are_apart(self):
        row = table.BestRow("n", "", "", "", 1, (8, 16), nodes=2, local=1, peers=("a",))
        self.assertEqual(self.measure(FakePeer("A", [{8: 6, 16: 3}] * 3), row=row)[0].figure, 1.5)

    def test_no_peer_is_no_failure(self):
        absent = [FakePeer(name, [], "not installed") for name in "ABC"]
        result, turns = self.measure(*absent)
        self.assertEqual((result.verdict, turns), ("not installed", []))
        self.assertEqual((result.met, result.fails), (False, False))
        self.assertEqual([fake.prepared for fake in absent], [0, 0, 0])
        text = report.text([result, report.Result(ROW, 2.5)], OPTIONS)
        self.assertIn("| not installed |", text)
        self.assertIn("# 1 of 1 met", text)
        self.assertTrue(report.Result(ROW, None, "broken").fails)

    def test_every_row_names_known_peers_and_sizes_for_its_ranks(self):
        rows = [row for row in table.ROWS if isinstance(row, table.BestRow)]
        self.assertEqual({(row.nodes, row.local) for row in rows}, {(1, 2), (1, 4), (2, 1)})
        for row in rows:
            self.assertLessEqual(set(row.peers), set(peers.PEERS), row.name)
            self.assertEqual(row.sizes[0] % (4 * row.local * row.nodes), 0, row.name)
            for collective, size, warm_up, iterations in best_peer.work_of(row, ratios.bands(row, False)):
                self.assertIn(collective, row.collectives)
                self.assertTrue(row.sizes[0] <= size <= row.sizes[1] and warm_up >= 12 and iterations >= 8)

    def test_open_mpi_5_needs_its_folder(self):
        peer = peers.PEERS["openmpi5"]
        self.assertIn("--openmpi5", peer.missing(types.SimpleNamespace(openmpi5=None)))
        if os.geteuid() == 0:
            self.assertIn("not installed (tools/openmpi-chroot /nowhere",
                          peer.missing(types.SimpleNamespace(openmpi5="/nowhere")))

    def test_a_peer_without_its_commands_is_not_installed(self):
        with unittest.mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertEqual(peers.PEERS["mpich"].missing(None),
                             "not installed (Debian: libmpich-dev and mpich)")
        with unittest.mock.patch.object(peers, "TORCH_PYTHON", "/nowhere/python3"):
            self.assertEqual(peers.PEERS["torch"].missing(None), "not installed (Debian: python3-torch)")


class Table(unittest.TestCase):
    def test_rows_have_names_of_their_own(self):
        names = [row.name for row in table.ROWS]
        self.assertEqual(len(names), len(set(names)))

    def test_limits_on_costs_and_on_times(self):
        cost = table.CostRow("c", "work", 10, "ms")
        self.assertEqual(report.Result(cost, 9.99).verdict, "met")
        self.assertEqual(report.Result(cost, 10).verdict, "missed")
        tiny = next(row for row in table.ROWS if row.name == "net-mpi-tiny")
        self.assertEqual(tiny.bar(), "<= 2.50 x its time")
        self.assertTrue(tiny.met(1 / 2.4))
        self.assertFalse(tiny.met(1 / 2.6))
        self.assertEqual(tiny.shown(1 / 2.6), "2.60 x its time")

    def test_text_says_what_could_not_be_measured(self):
        text = report.text([report.Result(ROW, 2.5), report.Result(ROW, None, "no peer")], OPTIONS)
        self.assertIn("| example | some work | somebody | 2.50 x faster | >= 2.00 x faster | met |", text)
        self.assertIn("| - | >= 2.00 x faster | not measured |", text)
        self.assertIn("# example: no peer", text)
        self.assertIn("# 1 of 2 met", text)
        self.assertNotIn("# load", text)
        busy = types.SimpleNamespace(quick=True, daemon="embedded", load=3)
        self.assertIn("# load 3.00 at the start: the machine was doing other work", report.text([], busy))
        self.assertIn("# quick:", report.text([], busy))
        document = report.document([report.Result(ROW, None, "no peer")], OPTIONS)
        self.assertEqual(document["rows"][0]["verdict"], "not measured")


if __name__ == "__main__":
    unittest.main()
