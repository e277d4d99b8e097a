#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of svg_shapes.py."""
import unittest
import xml.etree.ElementTree as ElementTree

import svg_shapes

SVG = "{http://www.w3.org/2000/svg}"
# What DejaVu Sans takes for these texts, in ems: (regular, bold).
MEASURED = {"wide_resnet101, rdma, preprocessed": (18.54, 20.90), "GPU-resident (not broken down)": (16.05, 18.27),
            "2.36 ms, CoV 0.05": (9.21, 10.19), "EfficientNetB0, Streams, MPS": (14.66, 16.64),
            "MMWW%%": (5.60, 6.20), "illicit, first (left)": (7.64, 9.02)}


def texts(picture):
    return list(ElementTree.fromstring(picture).iter(f"{SVG}text"))


def extents(picture):
    """[(left, top, right, bottom)] of the texts, as wide as svg_shapes takes them."""
    found = []
    for each in texts(picture):
        size, x, y = (float(each.get(key)) for key in ("font-size", "x", "y"))
        width = svg_shapes.width_of(each.text, size, each.get("font-weight") == "bold")
        left = x - {"start": 0, "middle": width / 2, "end": width}[each.get("text-anchor")]
        found.append((left, y - 0.75 * size, left + width, y + 0.25 * size))
    return found


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


class Texts(unittest.TestCase):
    def test_times_have_three_digits(self):
        for microseconds, wanted in ((0, "0 µs"), (999.4, "999 µs"), (999.6, "1 ms"), (1234, "1.23 ms"),
                                     (999_400, "999 ms"), (999_600, "1 s")):
            self.assertEqual(svg_shapes.time_text(microseconds), wanted)

    def check_fit(self, picture):
        found = extents(picture)
        for number, each in enumerate(found):
            self.assertGreaterEqual(each[0], 0)
            self.assertLessEqual(each[2], svg_shapes.WIDTH)
            self.assertFalse([other for other in found[number + 1:] if overlap(each, other)])

    def test_width_of_text_is_at_least_that_of_dejavu(self):
        for content, ems in MEASURED.items():
            for bold in (False, True):
                width = svg_shapes.width_of(content, 1, bold)
                self.assertTrue(ems[bold] <= width <= 1.25 * ems[bold], (content, bold, width))

    def test_long_names_and_ends_of_bars_fit_on_the_page(self):
        rows = [("wide_resnet101, rdma, preprocessed", [("one", "#000000", 900.0)], "900 µs, CoV 0.05, late"),
                ("tcp", [("one", "#000000", 1.0)], "1 µs")]
        self.check_fit(svg_shapes.bars("Title", "subtitle", rows))

    def test_legend_of_bars_takes_another_line_when_it_is_too_long(self):
        names = [f"a stage with a long name, {number}" for number in range(8)]
        picture = svg_shapes.bars("Title", "subtitle", [("tcp", [(name, "#000000", 1.0) for name in names], "8 µs")])
        self.check_fit(picture)
        _, lines = svg_shapes.legend([(name, "#000000") for name in names])
        self.assertGreater(lines, 1)

    def test_panels_stand_beside_each_other_and_fit_on_the_page(self):
        rows = [(name, [("one", "#000000", 900.0), ("two", "#ffffff", 99.0)], "999 µs, late", (990.0, 1100.0))
                for name in ("tcp", "rdma/gdr")]
        picture = svg_shapes.panels("Title", "subtitle", [(f"model, {n} clients", rows[:n]) for n in (1, 2, 0)])
        self.check_fit(picture)
        at = {each.text: (each.get("x"), each.get("y")) for each in texts(picture)}
        self.assertEqual(at["model, 1 clients"][1], at["model, 2 clients"][1])
        self.assertEqual(at["model, 1 clients"][0], at["model, 0 clients"][0])

    def test_texts_of_bars_come_after_their_intervals(self):
        ends = [next(float(each.get("x")) for each in texts(svg_shapes.bars("", "", [
            ("a", [("one", "#000000", 100.0)], "end", *interval), ("b", [("one", "#000000", 200.0)], "")]))
            if each.text == "end") for interval in ([], [(90.0, 150.0)])]
        self.assertLess(ends[0], ends[1])

    def test_intervals_of_curves_are_drawn_and_count_for_the_axis(self):
        plain, wide = (svg_shapes.curves("", "", {"one": [(1, 2.0, *ends)]}, "x") for ends in ((), (1.0, 8.0)))
        self.assertEqual(wide.count(f'stroke="{svg_shapes.INK}"'), plain.count(f'stroke="{svg_shapes.INK}"') + 3)
        self.assertIn("8 µs", [each.text for each in texts(wide)])

    def test_names_of_curves_fit_on_the_page(self):
        lines = {f"efficientnet_b0, rdma, {number} streams": [(1, 1.0), (16, 9.0)] for number in range(12)}
        self.check_fit(svg_shapes.curves("Title", "subtitle", lines, "clients"))

    def test_legend_shows_the_dashes_of_curves_that_share_a_colour(self):
        count = len(svg_shapes.COLOURS) + 1
        picture = svg_shapes.curves("Title", "subtitle", {f"line {i}": [(1, 1.0)] for i in range(count)}, "clients")
        samples = [each for each in ElementTree.fromstring(picture).iter(f"{SVG}line") if each.get("stroke-width")]
        self.assertEqual([each.get("stroke-dasharray") is not None for each in samples], [False] * (count - 1) + [True])

    def test_ticks_of_many_values_are_round_numbers(self):
        lines = {"one": [(i * 2.853 / 20, i) for i in range(21)]}
        said = [each.text for each in texts(svg_shapes.curves("", "", lines, "ms"))]
        self.assertIn("1.5", said)
        self.assertNotIn("2.853", said)


if __name__ == "__main__":
    unittest.main()
