"""comparison_test.py: the logic of bench/compare: sizes, figures, verdicts and the table, on results made
by hand."""

import os
import sys
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench"))

from comparison import ratios, report, table  # noqa: E402  the path comes first

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
