#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of stage_plot.py."""
import contextlib
import io
import json
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import stage_plot

SVG = "{http://www.w3.org/2000/svg}"


def row(backend="tcp", **changes):
    made = {"backend": backend, "payload_bytes": 4_000_000, "clients": 4, "request_us": 100, "copy_us": 50,
            "preprocessing_us": 10, "inference_us": 20, "response_us": 5, "total_us": 200, "cpu_us_per_request": 30}
    return {**made, **changes}


def bars(svg):
    """The titled rectangles of each bar, one after another: (title, x, width)."""
    found = []
    for each in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        title = each.find(f"{SVG}title")
        if title is not None:
            found.append((title.text, float(each.get("x")), float(each.get("width"))))
    return found


def texts(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


class Plot(unittest.TestCase):
    def test_stages_lie_end_to_end_and_in_proportion(self):
        drawn = bars(stage_plot.plot(4_000_000, 4, [row()]))
        self.assertEqual([title.rsplit(" ", 2)[0] for title, _, _ in drawn],
                         ["request", "copy", "preprocessing", "inference", "response", "queue and rest"])
        for (_, x, width), (_, next_x, _) in zip(drawn, drawn[1:]):
            self.assertAlmostEqual(x + width, next_x, delta=0.02)
        self.assertAlmostEqual(drawn[0][2] / drawn[1][2], 2, places=2)
        self.assertAlmostEqual(sum(width for _, _, width in drawn), stage_plot.SPAN, delta=0.1)

    def test_a_stage_of_no_time_is_not_drawn(self):
        titles = [title for title, _, _ in bars(stage_plot.plot(1, 1, [row("gdr", copy_us=0)]))]
        self.assertFalse([title for title in titles if title.startswith("copy")])

    def test_bars_share_one_scale(self):
        drawn = bars(stage_plot.plot(1, 1, [row("tcp"), row("gdr", request_us=10, total_us=110)]))
        slow, fast = (width for title, _, width in drawn if title.startswith("request"))
        self.assertAlmostEqual(slow / fast, 10, places=2)

    def test_stages_longer_than_the_total_leave_no_rest(self):
        drawn = bars(stage_plot.plot(1, 1, [row(total_us=1)]))
        self.assertFalse([title for title, _, _ in drawn if title.startswith("queue")])
        self.assertLessEqual(max(x + width for _, x, width in drawn), stage_plot.LEFT + stage_plot.SPAN + 0.1)

    def test_an_empty_measurement_is_drawn_empty(self):
        nothing = {key: 0 for key in stage_plot.NUMBERS}
        self.assertEqual(bars(stage_plot.plot(1, 1, [row(**nothing)])), [])

    def test_names_are_text_not_markup(self):
        self.assertIn("<b>&", texts(stage_plot.plot(1, 1, [row("<b>&")])))

    def test_says_payload_clients_and_totals(self):
        said = texts(stage_plot.plot(921_600, 1, [row(total_us=1234)]))
        self.assertIn("922 kB requests, 1 client", said)
        self.assertIn("1.23 ms", said)

    def test_says_network_and_ways(self):
        said = texts(stage_plot.plot(1000, 1, [row(way="launched"), row(way="gpu_resident")], "resnet50"))
        self.assertIn("resnet50: 1 kB requests, 1 client", said)
        self.assertIn("launched", said)
        self.assertIn("gpu_resident", said)

    def test_ticks_are_few_and_round(self):
        for longest in (0.3, 1, 7, 99, 100, 101, 12_345, 3e7):
            step = stage_plot.tick_step(longest)
            self.assertTrue(3 <= longest / step <= 10, (longest, step))
            self.assertIn(f"{step:e}"[0], "125")


class Rows(unittest.TestCase):
    def test_each_payload_and_number_of_clients_has_a_plot(self):
        rows = [row(clients=16), row(clients=1), row("gdr", clients=1), row(payload_bytes=9)]
        self.assertEqual([(key, len(members)) for key, members in stage_plot.groups(rows).items()],
                         [((9, 4, ""), 1), ((4_000_000, 1, ""), 2), ((4_000_000, 16, ""), 1)])

    def test_each_network_has_a_plot(self):
        rows = [row(network="b"), row(network="a"), row("gdr", network="b")]
        self.assertEqual([(key[2], len(members)) for key, members in stage_plot.groups(rows).items()],
                         [("a", 1), ("b", 2)])

    def test_an_invalid_row_is_refused_with_its_place(self):
        for broken in ({**row(), "copy_us": None}, {**row(), "way": 3}, {**row(), "network": ["x"]},
                       {**row(), "copy_us": -1}, {**row(), "clients": True}, {**row(), "total_us": float("nan")},
                       {**row(), "backend": 3}, [], "row"):
            with self.assertRaisesRegex(stage_plot.Malformed, "row 2"):
                stage_plot.read_rows(json.dumps([row(), broken]))
        without = row()
        del without["inference_us"]
        with self.assertRaisesRegex(stage_plot.Malformed, "inference_us"):
            stage_plot.read_rows(json.dumps([without]))

    def test_a_document_that_is_not_an_array_is_refused(self):
        for content in ("", "{}", "[]", "3", "[{"):
            with self.assertRaises(stage_plot.Malformed):
                stage_plot.read_rows(content)


class Program(unittest.TestCase):
    def run_on(self, content, folder):
        source = Path(folder) / "rows.json"
        source.write_text(content, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as complaints:
            code = stage_plot.main([str(source), str(Path(folder) / "plots")])
        return code, complaints.getvalue(), sorted(path.name for path in (Path(folder) / "plots").glob("*.svg"))

    def test_writes_the_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            code, _, names = self.run_on(json.dumps([row(), row(clients=16)]), folder)
            self.assertEqual((code, names), (0, ["stages-4000000-bytes-16-clients.svg",
                                                 "stages-4000000-bytes-4-clients.svg"]))

    def test_names_of_networks_stay_in_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            code, _, names = self.run_on(json.dumps([row(network="../../Res Net/50", way="replayed")]), folder)
            self.assertEqual((code, names), (0, ["stages-res-net-50-4000000-bytes-4-clients.svg"]))

    def test_complains_in_one_line_and_writes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            code, complaint, names = self.run_on("[1]", folder)
            self.assertEqual((code, names, complaint.count("\n")), (1, [], 1))


if __name__ == "__main__":
    unittest.main()
