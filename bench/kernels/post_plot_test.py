#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of post_plot.py."""
import contextlib
import io
import json
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import post_plot

SVG = "{http://www.w3.org/2000/svg}"


def row(poster="thread", **changes):
    made = {"poster": poster, "queues": 1, "memory": "host", "order": "two fences", "batch": 1, "payload_bytes": 64,
            "carried": False, "ns_per_request": 1000.0, "requests_per_s": 1e6, "gbit_per_s": 0.512, "device": "none",
            "emulated": False, "compared": True}
    return {**made, **changes}


def bars(svg):
    """{title: width} of the bars."""
    found = {}
    for each in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        title = each.find(f"{SVG}title")
        if title is not None:
            found[title.text] = float(each.get("width"))
    return found


def texts(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def lines(svg):
    return [[tuple(map(float, point.split(","))) for point in each.get("points").split()]
            for each in ElementTree.fromstring(svg).iter(f"{SVG}polyline")]


class Times(unittest.TestCase):
    def test_bars_are_logarithmic_on_one_scale(self):
        drawn = bars(post_plot.plot_times([row(ns_per_request=1000), row("warp", ns_per_request=100),
                                           row("block of 256", ns_per_request=31.6227766)]))
        widths = sorted(drawn.values())
        self.assertAlmostEqual(widths[2] - widths[1], 2 * (widths[1] - widths[0]), delta=0.1)
        self.assertTrue(all(width > 0 for width in widths))

    def test_only_rows_of_the_common_payload_are_compared(self):
        rows = [row(), row("warp"), row("warp", payload_bytes=4096)]
        self.assertEqual(len(bars(post_plot.plot_times(rows))), 2)
        self.assertTrue(any("64 B" in each for each in texts(post_plot.plot_times(rows))))

    def test_says_what_is_unsound_and_what_is_emulated(self):
        said = texts(post_plot.plot_times([row(order="one, UNSOUND"), row(device="mlx5_0", emulated=True),
                                           row("ibv_post_send", order="libmlx5's", device="mlx5_0")]))
        self.assertIn("thread, 1 a doorbell, one, UNSOUND", said)
        self.assertIn("thread, 1 a doorbell, emulated device", said)
        self.assertIn("ibv_post_send, 1 a doorbell, device", said)

    def test_one_row_can_be_drawn(self):
        self.assertEqual(len(bars(post_plot.plot_times([row(ns_per_request=1)]))), 1)


class Rates(unittest.TestCase):
    def test_twice_the_decades_take_twice_the_length(self):
        rows = [row(payload_bytes=size, gbit_per_s=rate) for size, rate in ((10, 1), (100, 10), (1000, 1000))]
        ((one, two, three),) = lines(post_plot.plot_rates(rows))
        self.assertAlmostEqual(three[0] - two[0], two[0] - one[0], delta=0.2)
        self.assertAlmostEqual(two[1] - three[1], 2 * (one[1] - two[1]), delta=0.2)

    def test_curves_show_only_the_library_s_order_and_host_memory(self):
        kinds = ({}, {"order": "one, UNSOUND"}, {"memory": "GPU"})
        rows = [row(payload_bytes=size, **kind) for size in (8, 64) for kind in kinds]
        self.assertEqual(list(post_plot.curves_of(rows)), ["thread, 1 a doorbell"])

    def test_one_payload_gives_no_curve(self):
        self.assertIsNone(post_plot.plot_rates([row(), row("warp")]))


class Program(unittest.TestCase):
    def run_on(self, content):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "rows.json"
            source.write_text(content, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as complaints:
                code = post_plot.main([str(source), str(Path(folder) / "plots")])
            return code, complaints.getvalue(), sorted(path.name for path in (Path(folder) / "plots").glob("*.svg"))

    def test_writes_the_plots(self):
        self.assertEqual(self.run_on(json.dumps([row(), row(payload_bytes=128)])),
                         (0, "", ["post-rates.svg", "post-times.svg"]))
        self.assertEqual(self.run_on(json.dumps([row()])), (0, "", ["post-times.svg"]))

    def test_complains_in_one_line_and_writes_nothing(self):
        for broken in ({**row(), "batch": 0}, {**row(), "carried": 1}, {**row(), "device": None},
                       {**row(), "ns_per_request": float("inf")}, 3):
            code, complaint, names = self.run_on(json.dumps([row(), broken]))
            self.assertEqual((code, names, complaint.count("\n")), (1, [], 1))
            self.assertIn("row 2", complaint)
        for content in ("", "{}", "[]", "[{"):
            self.assertEqual(self.run_on(content)[0], 1)


if __name__ == "__main__":
    unittest.main()
