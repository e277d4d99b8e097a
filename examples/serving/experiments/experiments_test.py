#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the experiments' modules."""
import itertools
import random
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
# pylint: disable=wrong-import-position
import claims  # noqa: E402
import experiments  # noqa: E402
import front  # noqa: E402
import matrix  # noqa: E402
import pictures  # noqa: E402
import probe  # noqa: E402
import late  # noqa: E402
import links  # noqa: E402
import plan  # noqa: E402
import reasons  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import rounds  # noqa: E402
import svg_shapes  # noqa: E402
from commands import Commands, Work  # noqa: E402
from matrix import FIGURES, Cell, Machine  # noqa: E402
from processes import Failed, Process  # noqa: E402
from runner import Runner, figures_of  # noqa: E402
from runs import Runs  # noqa: E402
from servers import Servers  # noqa: E402

LINK, FAST = "25Gb/s,1us", "100Gb/s,1us"
EVERYTHING = Machine(transports=matrix.DIRECT, gpu="H200", gpus=2, gateway=True, mps=True, cpu="Xeon", cores=16,
                     models={name: "torchscript" for name in matrix.ALL_MODELS} | {"digits": "builtin"})
NO_GPU = Machine(transports=("local", "tcp", "zmq", "shm", "rdma"), gateway=True, emulated=True, cpu="Xeon", cores=2,
                 models={name: "synthetic" for name in matrix.ALL_MODELS} | {"digits": "builtin"})


def canned(cell, total=1000.0, number=1, **changes):
    """A row in which half of the time is inference."""
    figures = {"kind": "synthetic", "requests": 100, "wrong": 0, "failed": 0, "seconds": 1.0, "rate": 100.0,
               "total_mean": total, "total_p50": total, "total_p99": 2 * total, "total_cov": 0.1,
               "inference_cov": 0.1, "request_mean": total / 4, "queue_mean": 0.0, "copy_mean": total / 8,
               "preprocessing_mean": 0.0, "inference_mean": total / 2, "response_mean": total / 8,
               "server_user": 10.0, "server_kernel": 5.0, "client_user": 3.0, "client_kernel": 2.0,
               "inference_distribution": "5:400 50:500 100:900"}
    if cell.priority_clients:
        figures |= {"high_mean": total / 2, "normal_mean": total}
    return results.row_of(cell, number, **(figures | changes))


class Rows:
    """Rounds of all cells, which vary by a permille or so; a cell's column may be set."""
    def __init__(self, machine=EVERYTHING, total=lambda cell: 1000.0, link="", count=rounds.ENOUGH, **changes):
        vary, self.device, self.all = random.Random(5), machine.device, {}
        cells, _ = matrix.cells_of(FIGURES.values(), machine)
        for number in range(1, count + 1):
            for cell in cells:
                row = canned(cell, total(cell) * (1 + vary.gauss(0, 0.001)), number, link=cell.link_of(link),
                             device=machine.device, run="1", **changes)
                self.all.setdefault(row.key, []).append(row)

    def put(self, cell, link="", **changes):
        """A change may be one value of all rounds, or a list with one for each."""
        for i, row in enumerate(self.all[cell.key, cell.link_of(link)]):
            row.update({name: value[i] if isinstance(value, list) else value for name, value in changes.items()})
        return self

    def rows(self):
        return list(itertools.chain(*self.all.values()))

    def view(self, link="", emulated=False):
        return claims.View(rounds.measured(self.rows(), self.device), link, emulated)


def measured(cell, total=1000.0, **changes):
    return rounds.Measured([canned(cell, total, **changes)])


class Matrix(unittest.TestCase):
    def test_every_figure_of_the_papers_is_there_with_claims_and_a_picture(self):
        wanted = [f"F{i}" for i in range(5, 18)] + ["G1", "G2", "G6", "G7"]
        self.assertEqual(list(FIGURES), ["overview"] + wanted + ["pipelines"])
        self.assertEqual(list(claims.CLAIMS), [name for name in wanted if name != "G1"])
        count = {paper: sum(len(members) for name, members in claims.CLAIMS.items() if name[0] == paper)
                 for paper in "FG"}
        self.assertEqual(count, {"F": 40, "G": 4})
        for figure in FIGURES.values():
            self.assertIn(figure.shows, pictures.SINGLE | pictures.SEVERAL, figure.id)

    def test_figures_have_the_papers_cells(self):
        self.assertEqual(len(FIGURES["F5"].cells()), 7 * 2)
        self.assertEqual(len(FIGURES["F7"].cells()), 6 * 7 * 2)
        self.assertEqual(len(FIGURES["F14"].cells()), 7 * 5)
        self.assertEqual(len(FIGURES["overview"].cells()), 6 * 7 * 2)
        self.assertEqual({cell.clients for cell in FIGURES["F11"].cells()}, {1, 2, 4, 8, 16})
        self.assertEqual({cell.streams for cell in FIGURES["F15"].cells()}, {1, 2, 4, 8, 16})
        self.assertEqual({cell.sharing for cell in FIGURES["F17"].cells()}, {"streams", "contexts", "mps"})
        self.assertTrue(all(cell.priority_clients == 1 and cell.clients > 1 for cell in FIGURES["F16"].cells()))

    def test_two_stages_take_every_way_on_one_gpu_and_on_two(self):
        ways = [("shm", False), ("shm", True), ("tcp", False), ("zmq", False)]
        for gpus in (1, 2):
            cells = [cell for cell in FIGURES["pipelines"].cells() if (cell.model, cell.gpus) == ("resnet50", gpus)]
            self.assertEqual([(cell.transport, cell.by_host) for cell in cells], ways)
            self.assertEqual({cell.link_of(LINK) for cell in cells}, {""}, "they are measured, not modelled")
            self.assertEqual(len({plan.group_of(cell) for cell in cells}), 1)
            self.assertEqual(len({plan.server_of(cell) for cell in cells}), 3)
        one = Machine(**{**EVERYTHING.document(), "gpus": 1})
        self.assertEqual(matrix.cells_of([FIGURES["pipelines"]], one)[1], {"pipelines": {"needs two GPUs": 8}})

    def test_cells_of_several_figures_are_measured_once(self):
        cells, _ = matrix.cells_of([FIGURES["F5"], FIGURES["F6"]], EVERYTHING)
        self.assertEqual(len(cells), 14)
        self.assertEqual(len({cell.key for cell in matrix.cells_of(FIGURES.values(), EVERYTHING)[0]}),
                         len(matrix.cells_of(FIGURES.values(), EVERYTHING)[0]))

    def test_cells_that_cannot_run_are_left_out_with_their_reason(self):
        cells, left_out = matrix.cells_of(FIGURES.values(), NO_GPU)
        self.assertTrue(all(cell.links <= set(NO_GPU.transports) for cell in cells))
        self.assertEqual(left_out["F16"], {"needs a GPU": 8})
        self.assertEqual(left_out["F5"], {"no gdr here": 2, "no gpu here": 2})
        without = Machine(transports=("local", "tcp"), models=NO_GPU.models)
        self.assertIn("no gateway was built", matrix.cells_of([FIGURES["F10"]], without)[1]["F10"])

    def test_quick_keeps_every_transport(self):
        for figure in FIGURES.values():
            small = matrix.quick(figure)
            self.assertLessEqual(len(small.cells()), len(figure.cells()))
            self.assertEqual({cell.transport for cell in small.cells()}, {cell.transport for cell in figure.cells()})

    def test_digits_stand_in_where_no_model_is(self):
        only_digits = Machine(transports=("local", "tcp"), models={"digits": "builtin"})
        figure = matrix.stand_ins(FIGURES["F5"], only_digits)
        self.assertEqual({cell.model for cell in figure.cells()}, {"digits"})
        self.assertIn("digits", figure.title)


class Plan(unittest.TestCase):
    cells = plan.ordered(matrix.cells_of(FIGURES.values(), EVERYTHING)[0])

    def test_each_server_runs_for_one_stretch_of_cells(self):
        groups, ended = [], set()
        for group, members in itertools.groupby(self.cells, plan.group_of):
            servers = {plan.server_of(cell) for cell in members} - {None}
            self.assertNotIn(group, groups)
            self.assertFalse(servers & ended)
            groups.append(group)
            ended |= servers

    def test_transports_take_turns(self):
        f11 = [cell for cell in self.cells if cell.model == "deeplab_v3" and cell.raw and cell.clients == 4]
        self.assertEqual([cell.transport for cell in f11], list(matrix.NETWORK))
        places = [self.cells.index(cell) for cell in f11 if cell.transport != "gpu"]
        self.assertEqual(places, list(range(places[0], places[0] + len(places))))

    def test_cells_that_differ_in_clients_share_a_server_and_contexts_do_as_well(self):
        self.assertEqual(plan.server_of(Cell("resnet50", "tcp", True, 1)),
                         plan.server_of(Cell("resnet50", "tcp", False, 16)))
        self.assertEqual(plan.server_of(Cell("resnet50", "tcp")), plan.server_of(Cell("resnet50", "rdma/tcp")))
        self.assertNotEqual(plan.server_of(Cell("resnet50", "gpu", True)), plan.server_of(Cell("resnet50", "gpu")))
        contexts = {plan.server_of(Cell("efficientnet_b0", "gdr", True, n, sharing="mps")) for n in matrix.CLIENTS}
        self.assertEqual([server.processes for server in contexts], [16])
        self.assertIsNone(plan.server_of(Cell("resnet50", "local")))
        self.assertLess(len({plan.server_of(cell) for cell in self.cells}), 85)

    def test_cells_that_never_leave_the_gpu_run_alone(self):
        for _, group in itertools.groupby(self.cells, plan.group_of):
            members = list(group)
            servers = {plan.server_of(cell) for cell in members} - {None}
            alone = any(cell.transport == "gpu" or cell.sharing != "streams" for cell in members)
            self.assertLessEqual(len(servers), 1 if alone else 6, members[0].key)


class Intervals(unittest.TestCase):
    cells = (Cell("resnet50", "gdr"), Cell("resnet50", "zmq"))

    def of(self, cell, values, **changes):
        return rounds.Measured([canned(cell, value, number, **changes) for number, value in enumerate(values, 1)])

    def test_a_figure_is_the_mean_over_its_rounds(self):
        cell = self.of(self.cells[0], [100.0, 200.0, 600.0])
        self.assertEqual((cell["total_mean"], cell["model"], cell.cell), (300.0, "resnet50", self.cells[0]))
        self.assertEqual(cell["inference_distribution"], "5:400.000 50:500.000 100:900.000")
        self.assertIsNone(cell["gpu_memory"])

    def test_all_resamples_of_few_rounds_are_enumerated(self):
        for count in (1, 2, 5, 7):
            drawn = rounds.resamples(tuple(range(count)))
            self.assertAlmostEqual(sum(probability for _, probability in drawn), 1.0)
        chances = dict(rounds.resamples((1, 2)))
        self.assertEqual(chances, {(1, 1): 0.25, (1, 2): 0.5, (2, 2): 0.25})
        self.assertEqual(len(rounds.resamples(tuple(range(8)))), rounds.DRAWS)

    def test_an_interval_of_five_rounds_is_that_of_all_3125_resamples(self):
        values = [10.0, 11.0, 12.0, 14.0, 20.0]
        means = sorted(sum(drawn) / 5 for drawn in itertools.product(values, repeat=5))
        found = rounds.estimate_of(self.of(self.cells[0], values), "total_mean")
        # 2.5 % of them lie below the 79th, and as many above the 3047th.
        self.assertAlmostEqual(found.low, means[78])
        self.assertAlmostEqual(found.high, means[3046])
        self.assertAlmostEqual(found.value, 13.4)

    def test_cells_are_paired_by_round(self):
        base = [1000.0, 2000.0, 1500.0, 900.0, 3000.0]
        rows = [self.of(self.cells[0], [0.8 * value for value in base]), self.of(self.cells[1], base)]
        found = rounds.estimate(claims.change_of, rows)
        for value in (found.value, found.low, found.high):
            self.assertAlmostEqual(value, -20.0)

    def test_only_rounds_that_all_cells_have_count(self):
        rows = [self.of(self.cells[0], [1.0, 2.0, 3.0]), self.of(self.cells[1], [2.0, 4.0]), None]
        self.assertEqual(rounds.estimate(claims.change_of, rows), rounds.Estimate(-50.0, -50.0, -50.0, 2))
        other = rounds.Measured([canned(self.cells[1], number=9)])
        self.assertIsNone(rounds.estimate(claims.change_of, [rows[0], other]))

    def test_many_rounds_have_the_same_interval_each_time(self):
        cell = self.of(self.cells[0], [100.0 + number for number in range(12)])
        first, again = (rounds.estimate_of(cell, "total_mean") for _ in range(2))
        self.assertEqual(first, again)
        self.assertTrue(first.low < first.value < first.high)

    def test_full_rows_of_the_last_kind_of_model_count(self):
        cell = self.cells[0]
        rows = [canned(cell, 1.0, 1, kind="torchscript"), canned(cell, 2.0, 2, kind="aoti"),
                canned(cell, 3.0, 3, kind="aoti", quick="1"), canned(cell, 4.0, 4, kind="aoti", device="H100"),
                results.row_of(cell, 5, kind="aoti", problem="it ended")]
        self.assertEqual(rounds.measured(rows, "")[cell.key, ""]["total_mean"], 2.0)
        self.assertEqual(rounds.measured(rows[2:3], "")[cell.key, ""]["quick"], "1")
        self.assertFalse(rounds.measured(rows[4:], "")[cell.key, ""].good)


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def test_an_interrupted_run_goes_on_behind_the_last_whole_line(self):
        done, half = Cell("digits", "tcp"), Cell("digits", "shm")
        results.Store(self.path).add(canned(done))
        with open(self.path / "results.csv", "a", encoding="utf-8") as file:
            file.write(results.line_of(canned(half))[:30])
        store = results.Store(self.path)
        self.assertTrue(store.done(done, "", 1, self.like))
        self.assertFalse(store.done(half, "", 1, self.like))
        store.add(canned(half))
        self.assertTrue(results.Store(self.path).done(half, "", 1, self.like))

    like = {"kind": "synthetic", "device": "", "quick": ""}

    def test_a_cell_that_failed_or_had_another_link_is_measured_again(self):
        cell = Cell("digits", "tcp")
        store = results.Store(self.path)
        store.add(results.row_of(cell, 1, problem="the server did not start"))
        self.assertFalse(store.done(cell, "", 1, self.like))
        store.add(canned(cell, link=LINK))
        self.assertTrue(store.done(cell, LINK, 1, self.like))
        self.assertFalse(store.done(cell, "", 1, self.like))

    def test_rows_of_several_links_stand_beside_each_other_and_local_has_none(self):
        store = results.Store(self.path)
        for link in (LINK, FAST):
            store.add(canned(Cell("digits", "tcp"), link=link))
        store.add(canned(Cell("digits", "local")))
        again = results.Store(self.path)
        self.assertTrue(again.done(Cell("digits", "tcp"), LINK, 1, self.like))
        self.assertTrue(again.done(Cell("digits", "tcp"), FAST, 1, self.like))
        self.assertTrue(again.done(Cell("digits", "local"), FAST, 1, self.like))

    def test_rows_of_another_gpu_of_other_models_and_quick_ones_do_not_count(self):
        cell = Cell("digits", "tcp")
        store = results.Store(self.path)
        store.add(canned(cell, device="H100"))
        self.assertTrue(store.done(cell, "", 1, {**self.like, "device": "H100"}))
        self.assertFalse(store.done(cell, "", 1, {**self.like, "device": "H200"}))
        self.assertFalse(store.done(cell, "", 1, {**self.like, "device": "H100", "kind": "aoti"}))
        store.add(canned(cell, quick="1"))
        self.assertFalse(store.done(cell, "", 1, self.like))
        self.assertTrue(store.done(cell, "", 1, {**self.like, "quick": "1"}))
        store.add(canned(cell, number=2))
        self.assertTrue(store.done(cell, "", 2, {**self.like, "quick": "1"}))

    def test_each_round_has_its_row_and_the_last_one_counts(self):
        cell, store = Cell("digits", "tcp"), results.Store(self.path)
        for number, total in ((1, 1.0), (2, 2.0), (1, 3.0)):
            store.add(canned(cell, total, number))
        again = results.Store(self.path)
        self.assertEqual([(row["round"], row["total_mean"]) for row in again.rows.values()], [("2", 2.0), ("1", 3.0)])
        self.assertTrue(again.done(cell, "", 2, self.like))
        self.assertFalse(again.done(cell, "", 3, self.like))

    def test_results_without_rounds_say_what_to_do(self):
        with self.assertRaisesRegex(results.Malformed, "another folder with --out and measure again"):
            results.read(results.header().replace("round,", ""))

    def test_a_run_says_when_where_and_how(self):
        Runs(self.path).add("2026-11-25 14:30", "./run experiments F5", False, EVERYTHING)
        run = Runs(self.path).add("2026-11-25 14:40", "./run experiments F5", True, NO_GPU)
        self.assertEqual(run.id, "2")
        first, second = Runs(self.path).all
        self.assertEqual((first.machine, first.quick, first.date), (EVERYTHING, False, "2026-11-25 14:30"))
        self.assertEqual(second.machine, NO_GPU)
        for bad in ("[]", "{", '{"runs": [{"id": "1"}]}', '{"runs": [1]}'):
            (self.path / "run.json").write_text(bad, encoding="utf-8")
            with self.assertRaises(results.Malformed):
                Runs(self.path)

    def test_rows_survive_their_file(self):
        cell = Cell("yolo_v4", "rdma/gdr", True, 16, 4, "mps", 1)
        row = canned(cell, problem="a, \"b\"\nc")
        again = results.read(results.header() + results.line_of(row))[row.place]
        self.assertEqual(again.cell, cell)
        self.assertEqual(dict(again), {**row, "requests": 100.0, "wrong": 0.0, "failed": 0.0})

    def test_malformed_files_are_refused(self):
        good = results.header() + results.line_of(canned(Cell("digits", "tcp")))
        for bad, where in ((good.replace("model,", "modell,", 1), "line 1"), (good + "a,b\n", "line 3"),
                           (good.replace(",1000,", ",many,", 1), "line 2"),
                           (good.replace(",1000,", ",nan,", 1), "line 2"),
                           (good.replace(",1000,", ",-1,", 1), "line 2"),
                           (good.replace("digits,tcp,0", "digits,tcp,2"), "line 2"),
                           (good.replace("digits,tcp,0,1", "digits,tcp,0,x"), "line 2"),
                           (good.replace("5:400", "5-400"), "line 2"), ("", "line 1")):
            with self.assertRaises(results.Malformed) as raised:
                results.read(bad)
            self.assertIn(where, str(raised.exception))


def found(low, high, count=rounds.ENOUGH):
    return rounds.Estimate((low + high) / 2, low, high, count)


class Verdicts(unittest.TestCase):
    def test_a_change_is_judged_by_its_interval_direction_and_size(self):
        for (low, high), wanted in {
                (-25, -15): claims.CONFIRMED, (-12, -9): claims.CONFIRMED, (-8, -2): claims.SMALLER,
                (1, 8): claims.NOT_CONFIRMED, (-5, 5): claims.NOT_CONFIRMED, (-9, 40): claims.NOT_CONFIRMED,
                (-25, 1): claims.NOT_MEASURED, (-10, 0): claims.NOT_MEASURED}.items():
            self.assertEqual(claims.Effect(-20).verdict(found(low, high)), wanted, (low, high))
            self.assertEqual(claims.Effect(20).verdict(found(-high, -low)), wanted, (low, high))

    def test_a_range_has_two_sides(self):
        for (low, high), smaller, wanted in (
                ((210, 600), True, claims.CONFIRMED), ((100, 190), True, claims.SMALLER),
                ((100, 190), False, claims.NOT_CONFIRMED), ((-5, 190), True, claims.NOT_CONFIRMED),
                ((700, 800), True, claims.NOT_CONFIRMED), ((100, 300), True, claims.NOT_MEASURED),
                ((600, 700), True, claims.NOT_MEASURED)):
            self.assertEqual(claims.Range(200, 660, smaller).verdict(found(low, high)), wanted, (low, high))

    def test_an_order_needs_an_interval_that_excludes_zero(self):
        for (low, high), wanted in {(0.1, 0.2): claims.CONFIRMED, (-0.2, -0.1): claims.NOT_CONFIRMED,
                                    (-0.1, 0.1): claims.NOT_MEASURED, (0, 0): claims.NOT_MEASURED}.items():
            self.assertEqual(claims.POSITIVE.verdict(found(low, high)), wanted, (low, high))


class Claims(unittest.TestCase):
    gdr, zmq = Cell("resnet50", "gdr", True), Cell("resnet50", "zmq", True)

    def check(self, figure, words, rows, link="", emulated=False):
        """The first claim of the figure that has these words."""
        claim = next(claim for claim in claims.CLAIMS[figure] if words in claim.paper)
        return claim.check(rows.view(link, emulated))

    def rows_of(self, **totals):
        return Rows(total=lambda cell: totals.get(cell.transport, 1000.0))

    def test_hanafys_tcp_is_zmq(self):
        for name, members in claims.CLAIMS.items():
            for claim in members:
                self.assertFalse(any("tcp" in cell.links for cell in claim.cells), f"{name}: {claim.paper}")

    def test_a_change_is_confirmed_smaller_or_not(self):
        for gdr, wanted in ((800.0, claims.CONFIRMED), (950.0, claims.SMALLER), (1100.0, claims.NOT_CONFIRMED),
                            (1500.0, claims.NOT_CONFIRMED)):
            seen = self.check("F5", "gdr −20.3 %", self.rows_of(gdr=gdr))
            self.assertEqual(seen.verdict, wanted)
            self.assertEqual(bool(seen.reason), wanted != claims.CONFIRMED)
        seen = self.check("F5", "gdr −20.3 %", self.rows_of(gdr=800.0)).seen
        self.assertRegex(seen, r"^−(20.[01]|19.9) % \[−20.\d %, −(20.0|19.\d) %\] \((800|799|801) µs against 1 ms\)$")

    def test_few_rounds_quick_ones_and_wide_intervals_give_no_verdict(self):
        few = Rows(total=lambda cell: 800.0 if cell.transport == "gdr" else 1000.0, count=4)
        few = self.check("F5", "gdr −20.3 %", few)
        self.assertEqual((few.verdict, few.reason), (claims.NOT_MEASURED, "4 of 5 rounds"))
        quick = self.check("F5", "gdr −20.3 %", self.rows_of(gdr=800.0).put(self.gdr, quick="1"))
        self.assertEqual((quick.verdict, quick.reason), (claims.NOT_MEASURED, "a quick run"))
        wide = self.check("F5", "gdr −20.3 %", Rows().put(self.gdr, total_mean=[300.0, 900.0, 500.0, 1200.0, 1400.0]))
        self.assertEqual((wide.verdict, wide.reason), (claims.NOT_MEASURED, "the interval is too wide"))

    def test_emulated_transports_are_judged_with_a_model_of_a_link_alone(self):
        seen = self.check("F5", "gdr −20.3 %", self.rows_of(gdr=800.0), emulated=True)
        self.assertEqual((seen.verdict, seen.reason), (claims.NOT_MEASURED, "gdr emulated without a model of a link "
                                                       "(--link)"))
        self.assertEqual(self.check("F5", "zmq adds", self.rows_of(zmq=2200.0), emulated=True).verdict,
                         claims.CONFIRMED)
        modelled = Rows(total=lambda cell: 800.0 if cell.transport == "gdr" else 1000.0, link=LINK)
        self.assertEqual(self.check("F5", "gdr −20.3 %", modelled, LINK, True).verdict, claims.CONFIRMED)

    def test_late_cells_are_judged_where_what_they_were_late_by_changes_no_verdict(self):
        for by, wanted in ((30.0, claims.NOT_CONFIRMED), (150.0, claims.NOT_MEASURED), (None, claims.NOT_MEASURED)):
            rows = self.rows_of(gdr=1100.0).put(self.gdr, late_percent=100.0, late_request_us=by, late_response_us=by)
            seen = self.check("F5", "gdr −20.3 %", rows)
            self.assertEqual(seen.verdict, wanted, by)
            self.assertIn("which changes no verdict" if wanted == claims.NOT_CONFIRMED else "emulation too slow",
                          seen.reason)
            self.assertIn("gdr 100.0 % late", seen.reason)
        few = self.rows_of(gdr=1100.0).put(self.gdr, late_percent=0.9)
        self.assertEqual(self.check("F5", "gdr −20.3 %", few).verdict, claims.NOT_CONFIRMED)

    def test_a_row_on_time_is_shorter_by_what_its_messages_were_late(self):
        row = canned(self.gdr, late_request_us=100.0, late_response_us=500.0)
        there = late.on_time(row)
        self.assertEqual((there["request_mean"], there["response_mean"], there["total_mean"]), (150.0, 0.0, 400.0))
        self.assertEqual(row["total_mean"], 1000.0)

    def test_each_late_cell_is_taken_both_ways(self):
        slow = measured(self.gdr, late_percent=50.0, late_request_us=1.0, late_response_us=0.0)
        self.assertEqual([[each and each["total_mean"] for each in variant] for variant in
                          late.variants([slow, None, measured(self.zmq), slow])],
                         [[a, None, 1000.0, b] for a in (1000.0, 999.0) for b in (1000.0, 999.0)])

    def test_unmeasured_cells_make_no_claim(self):
        for name, members in claims.CLAIMS.items():
            for claim in members:
                seen = claim.check(claims.View({}))
                self.assertEqual((seen.seen, seen.verdict), ("", claims.NOT_MEASURED), name)
                self.assertIn("no figures of", seen.reason)

    def test_all_claims_find_their_cells_in_a_full_run(self):
        view = Rows(link=LINK).view(LINK)
        for name, members in claims.CLAIMS.items():
            for claim in members:
                self.assertTrue(claim.check(view).seen, f"{name}: {claim.paper}")

    def test_every_kind_of_claim_says_why_it_is_not_confirmed(self):
        told = 0
        for seed in range(4):
            rows = Rows()
            for number, each in enumerate(rows.all.values()):
                factor = 1 + (number * 7 + seed * 5) % 11 / 10
                for row in each:
                    row.update(total_mean=1000.0 * factor, inference_mean=500.0 / factor, copy_mean=50.0 * factor,
                               inference_cov=factor / 5, total_cov=1 / factor, server_user=10.0 * factor,
                               gpu_utilisation=40.0)
            view = rows.view()
            for name, members in claims.CLAIMS.items():
                for seen in (claim.check(view) for claim in members):
                    if seen.verdict in (claims.NOT_CONFIRMED, claims.SMALLER):
                        told += 1
                        self.assertRegex(seen.reason, r"\d", name)
                        self.assertNotIn("\n", seen.reason)
        self.assertGreater(told, 30)

    def test_the_paper_of_hanafy_is_confirmed_by_its_own_figures(self):
        totals = {"local": 1000.0, "gdr": 1400.0, "rdma": 1600.0, "zmq": 2300.0}
        rows = self.rows_of(**totals)
        for raw in (True, False):
            for transport in totals:
                rows.put(Cell("resnet50", transport, raw), request_mean=0.5 * (totals[transport] - 1000.0),
                         response_mean=0.5 * (totals[transport] - 1000.0), copy_mean=0.0)
            rows.put(Cell("resnet50", "rdma", raw), copy_mean=300.0)
        for name in ("F5", "F6"):
            for claim in claims.CLAIMS[name]:
                self.assertEqual(claim.check(rows.view()).verdict, claims.CONFIRMED, claim.paper)

    def test_the_smallest_step_of_shares_counts_and_is_explained(self):
        rows = Rows()
        for transport, moved in (("zmq", 600.0), ("rdma", 400.0), ("gdr", 300.0)):
            rows.put(Cell("mobilenet_v3", transport, True), total_mean=1000.0, request_mean=moved, copy_mean=0.0,
                     response_mean=0.0)
        seen = self.check("F8", "data movement of mobilenet_v3", rows)
        self.assertEqual((seen.verdict, seen.seen),
                         (claims.CONFIRMED, "+10 points [+10 points, +10 points] (zmq 60 %, rdma 40 %, gdr 30 %)"))
        seen = self.check("F8", "data movement of mobilenet_v3",
                          rows.put(Cell("mobilenet_v3", "gdr", True), copy_mean=300.0))
        self.assertEqual(seen.verdict, claims.NOT_CONFIRMED)
        self.assertIn("gdr against rdma: copy +30 points", seen.reason)

    def test_spread_and_places_are_judged_by_intervals(self):
        spread = {"zmq/zmq": [0.31, 0.3, 0.32, 0.3, 0.3], "rdma/gdr": 0.2}
        rows = Rows()
        for transport, values in spread.items():
            rows.put(Cell("mobilenet_v3", transport, True), total_cov=values)
        self.assertEqual(self.check("F10", "varies most", rows).verdict, claims.CONFIRMED)
        rows.put(Cell("mobilenet_v3", "zmq/zmq", True), total_cov=[0.1, 0.3, 0.15, 0.25, 0.2])
        self.assertEqual(self.check("F10", "varies most", rows).verdict, claims.NOT_MEASURED)
        self.assertEqual(self.check("F16", "gdr: the client", rows).verdict, claims.CONFIRMED)
        self.assertEqual(self.check("F16", "rdma: the client", rows).verdict, claims.NOT_CONFIRMED)
        for clients in (8, 16):
            rows.put(Cell("yolo_v4", "rdma", False, clients, priority_clients=1), high_mean=900.0)
        self.assertEqual(self.check("F16", "rdma: the client", rows).verdict, claims.CONFIRMED)


class Reasons(unittest.TestCase):
    def row(self, transport, **changes):
        return measured(Cell("resnet50", transport, True), **changes)

    def test_the_stages_that_differ_most_come_first(self):
        said = reasons.of_pair(self.row("gdr", total_mean=885.0, copy_mean=10.0), self.row("zmq"))
        self.assertTrue(said.startswith("gdr against zmq: copy −115 µs"), said)

    def test_a_link_that_dominates_is_named_from_the_numbers(self):
        slow = {"request_mean": 500.0, "response_mean": 200.0, "inference_mean": 100.0}
        self.assertIn("requests and responses take 70 % and 70 %",
                      reasons.of_pair(self.row("gdr", **slow), self.row("tcp", **slow)))
        self.assertNotIn("requests", reasons.of_pair(self.row("gdr", **slow), self.row("tcp")))

    def test_inference_that_dominates_is_named_and_so_is_an_idle_gpu(self):
        both = {"inference_mean": 800.0, "gpu_utilisation": 35.0}
        self.assertIn("inference takes 80 % and 80 % and is equal, while the GPU works for 35 % and 35 % of the time",
                      reasons.of_pair(self.row("gdr", **both), self.row("tcp", **both)))
        busy = {**both, "gpu_utilisation": 95.0}
        self.assertNotIn("GPU", reasons.of_pair(self.row("gdr", **busy), self.row("tcp", **busy)))
        other = {**both, "inference_mean": 600.0}
        self.assertIn("not the transport's doing", reasons.of_pair(self.row("gdr", **other), self.row("tcp", **both)))

    def test_stages_that_a_gpu_resident_service_lacks_are_not_compared(self):
        gpu = self.row("gpu", inference_mean=0.0, preprocessing_mean=0.0, copy_mean=0.0)
        said = reasons.of_pair(gpu, self.row("rdma", total=1500.0))
        self.assertNotIn("inference", said)
        self.assertNotIn("copy", said)
        self.assertIn("GPU-resident (not broken down) −", said)
        self.assertIsNone(reasons.share(gpu, ("inference",)))
        self.assertEqual(reasons.share(gpu, ("request",)), 25.0)

    def test_the_bar_of_a_gpu_resident_service_says_so(self):
        gpu = self.row("gpu", inference_mean=0.0, preprocessing_mean=0.0, copy_mean=0.0)
        parts = [name for name, _, value in pictures.stage_parts(gpu) if value > 0]
        self.assertEqual(parts, ["request", reasons.RESIDENT, "response"])
        self.assertAlmostEqual(sum(part[2] for part in pictures.stage_parts(gpu)), gpu["total_mean"])

    def test_stages_are_compared_with_the_total(self):
        self.assertEqual(reasons.overlap(self.row("zmq")), 0.0)
        self.assertAlmostEqual(reasons.overlap(self.row("zmq", queue_mean=58.0)), 5.8)


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        self.runs = Runs(self.path)

    def write(self, figures, rows, machine=EVERYTHING, given=None, command="./run experiments F5"):
        """As one line."""
        self.runs.add("2026-11-25 14:30", command, False, machine)
        made = report.write(self.path, [FIGURES[name] for name in figures], rows, given, machine, self.runs)
        self.text = made.read_text(encoding="utf-8")
        return " ".join(self.text.split())

    def page(self, rows, link="", emulated=False):
        return front.sentences(rows.view(link, emulated), matrix.PAPER_MODELS)

    def test_has_the_papers_figures_in_their_order_with_pictures_that_say_what_they_show(self):
        self.write(FIGURES, Rows(link=LINK).rows(), given=[LINK])
        order = [self.text.index(f"## {name}: ") for name in FIGURES if name != "overview"]
        self.assertEqual(order, sorted(order))
        self.assertLess(self.text.index("(overview-25G.svg)"), order[0])
        self.assertGreater(self.text.index("## How it was measured"), order[-1])
        for name in FIGURES:
            self.assertTrue(list(self.path.glob(f"{name}*.svg")), name)
        for picture in self.path.glob("*.svg"):
            self.assertIn(f"({picture.name})", self.text)
            self.check_texts(picture)

    def check_texts(self, picture):
        drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
        said = list(drawn.iter("{http://www.w3.org/2000/svg}text"))
        self.assertRegex(said[1].text, r".*; .*client.*; 95 % intervals of 5 rounds", picture.name)
        for each in said:
            width = svg_shapes.width_of(each.text, float(each.get("font-size")), each.get("font-weight") == "bold")
            if each.get("text-anchor") == "start":
                self.assertLessEqual(float(each.get("x")) + width, svg_shapes.WIDTH + 1, each.text)

    def test_the_first_picture_has_every_model_transport_and_colour(self):
        rows = Rows().put(Cell("resnet50", "gpu", True), inference_mean=0.0, copy_mean=0.0, queue_mean=0.0)
        rows.put(Cell("resnet50", "zmq", True), queue_mean=20.0, preprocessing_mean=9.0, total_mean=1100.0)
        self.write(["overview"], rows.rows())
        picture = (self.path / "overview.svg").read_text(encoding="utf-8")
        for model in matrix.PAPER_MODELS:
            for clients in ("1 client", "16 clients"):
                self.assertIn(f">{model}, {clients}<", picture)
        for name in (*results.STAGES, "rest", reasons.RESIDENT):
            self.assertIn(f">{name}<", picture)
        self.assertEqual(picture.count(">zmq<"), 12)

    def test_the_first_page_compares_with_zmq(self):
        totals = {"zmq": 1000.0, "gdr": 750.0, "rdma": 800.0, "tcp": 850.0, "shm": 600.0, "gpu": 500.0}
        rows = Rows(total=lambda cell: totals.get(cell.transport, 900.0), link=LINK)
        papers, others, many = self.page(rows, LINK)
        self.assertRegex(papers, r"gdr −2[45]\.\d % \[.*\], rdma −(20\.0|20\.1|19\.9) % \[")
        self.assertIn("in the mean of 6 models: ", papers)
        self.assertRegex(others, r"tcp −1[45]\.\d % .*shm −(40|39).* gpu −(50|49).*; tcp alone saves (59|60|61) % of "
                                 "what gdr saves")
        self.assertIn("With 16 clients", many)
        self.assertEqual(self.page(Rows(NO_GPU), emulated=True)[0].count("rdma"), 0)
        nothing = front.sentences(claims.View({}), matrix.PAPER_MODELS)
        self.assertEqual(nothing, ["There are no figures of zmq and another transport to compare."])

    def test_the_first_page_counts_verdicts(self):
        text = self.write(FIGURES, Rows(count=2).rows())
        self.assertIn("Of 44 claims: 0 confirmed, 0 same direction but smaller, 0 not confirmed, 44 not measured.",
                      text)
        self.assertIn("2 of 5 rounds", text)

    def test_says_how_it_was_measured(self):
        text = self.write(["F5"], Rows(cost=6.0).rows(), command="./run experiments all --rounds 5")
        for words in ("Measured on H200 (Xeon, 16 cores)", "`./run experiments all --rounds 5` (2026-11-25 14:30)",
                      "5 rounds of up to 14 cells; a round took 1.4 to 1.4 minutes", "in the median 100",
                      "| resnet50 | tcp | raw | 1 | 5 | 500 |"):
            self.assertIn(words, text)

    def test_says_what_is_emulated_synthetic_left_out_late_and_wrong(self):
        rows = Rows(NO_GPU, link=LINK).put(Cell("resnet50", "tcp", True), LINK, wrong=3, late_percent=2.5)
        text = self.write(["F5"], rows.rows(), NO_GPU)
        for words in ("The adapter of `rdma` is softnic, an emulated one", "synthetic",
                      "The link is a model (25Gb/s,1us)", "2 cells: no gdr here", "2.5 % late",
                      "Wrong answers in all: 15"):
            self.assertIn(words, text)
        self.assertIn("Without a model of a link", self.write(["F5"], Rows(NO_GPU).rows(), NO_GPU))

    def test_names_cells_whose_stages_add_up_to_more_than_the_total(self):
        rows = Rows().put(Cell("resnet50", "zmq", True), total_mean=1000.0, queue_mean=58.0, request_mean=250.0,
                          copy_mean=125.0, inference_mean=500.0, response_mean=125.0)
        text = self.write(["F6"], rows.rows())
        self.assertIn("Stages add up to more than 2 % beyond the total in: resnet50-zmq-raw-1c (+5.8 %).", text)
        self.assertIn("| stages +5.8 % |", text)
        self.assertNotIn("Stages add up", self.write(["F6"], Rows().rows()))

    def test_rows_of_another_gpu_are_left_out_in_a_sentence_and_quick_ones_are_named(self):
        rows = Rows().put(Cell("resnet50", "tcp", True), device="H100", total_mean=987654.0)
        text = self.write(["F5"], rows.put(Cell("resnet50", "rdma", True), quick="1").rows())
        self.assertIn("5 rows of another device (H100) are in the same folder, and not in this report", text)
        self.assertNotIn("988 ms", text)
        self.assertIn("5 rows are of quick runs", text)

    def test_late_cells_say_so_in_the_pictures(self):
        self.write(["F5"], Rows().put(Cell("resnet50", "gdr", True), late_percent=50.0).rows())
        self.assertEqual((self.path / "F5.svg").read_text(encoding="utf-8").count(", late"), 1)

    def test_super_resolution_stands_with_the_cpu_and_without_it(self):
        rows = Rows()
        for model in ("resnet50", "super_resolution"):
            rows.put(Cell(model, "gpu"), inference_mean=0.0, copy_mean=0.0, total_mean=500.0)
        self.write(["G6"], rows.rows())
        picture = (self.path / "G6.svg").read_text(encoding="utf-8")
        for words in ("super_resolution, rdma, by the CPU", "super_resolution, gpu, GPU-resident", reasons.RESIDENT):
            self.assertIn(words, picture)
        self.assertEqual({claim.check(rows.view()).verdict for claim in claims.CLAIMS["G6"]}, {claims.CONFIRMED})

    def test_a_cell_with_a_problem_names_it(self):
        row = results.row_of(Cell("resnet50", "tcp", True), 1, problem="the server did not start",
                             device=NO_GPU.device, run="1")
        self.assertIn("the server did not start", self.write(["F5"], [row], NO_GPU))

    def test_two_links_are_compared_where_both_were_measured(self):
        fast = Rows(link=FAST, total=lambda cell: 600.0, request_mean=100.0)
        for raw in (True, False):
            fast.put(Cell("resnet50", "gdr", raw), FAST, late_percent=50.0)
        slow = Rows(link=LINK).rows()
        text = self.write(["F5"], slow + [row for row in fast.rows() if row["link"]])
        self.assertIn(f"## {LINK} and {FAST}", text)
        self.assertRegex(text, f"- tcp: a request takes −(40|39).\\d % \\[.*\\] over {FAST} as against {LINK}, in the "
                               "mean of 2 cells")
        self.assertIn("- gdr: not judged: in all 2 cells the emulation was too slow", text)
        self.assertIn(f"50.0 % late over {FAST}", text)
        self.assertNotIn("- shm:", text)
        ElementTree.fromstring((self.path / "links-1-25G-100G.svg").read_text(encoding="utf-8"))
        self.assertNotIn(f"and {FAST}", self.write(["F5"], slow))

    def test_two_reports_of_different_links_share_no_picture_and_name_their_link(self):
        drawn = {}
        for link in (LINK, FAST):
            rows = Rows(link=link).put(Cell("resnet50", "gdr", True), link, late_percent=50.0)
            text = self.write(["F5", "G1"], rows.rows())
            drawn[link] = {picture.name for picture in self.path.glob("*.svg")}
            for picture in self.path.glob("*.svg"):
                self.assertIn(f"({picture.name})", text)
                picture.unlink()
            rate = links.rate_text(link)
            self.assertTrue(text.startswith(f"# The experiments, at {rate} "), text[:60])
            self.assertIn(f"![Total time of ResNet50, one client, at {rate}]", text)
            self.assertIn("![Bandwidth that a model asks for]", text)  # of local, which has no link
            self.assertEqual("Hanafy et al. had a link of 25 Gb/s, and this one has" in text, link == FAST)
            self.assertRegex(text, r"In 1 of \d+ cells over a modelled link more than 1 % of the messages were late\.")
        self.assertEqual(drawn[LINK], {"F5-25G.svg", "G1-25G.svg", "overview-25G.svg"})
        self.assertFalse(drawn[LINK] & drawn[FAST])

    def test_the_first_link_is_that_of_the_figures(self):
        rows = Rows(link=LINK).rows() + [row for row in Rows(link=FAST, total=lambda cell: 600.0).rows() if row["link"]]
        self.assertEqual(links.of_rows(rows), [LINK, FAST])
        self.assertIn(f"## {FAST} and {LINK}", self.write(["F5"], rows, given=[FAST, LINK]))


def runs(number):
    try:
        return ") Z " not in Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def commands(self, machine=NO_GPU, pacing=True, link=LINK):
        return Commands(Path("/bin"), machine, Path("/models"), pacing, link)

    def words(self, command):
        return " ".join(str(part) for part in command)

    def test_verbs_run_on_softnic_with_the_link_and_sockets_are_paced(self):
        rdma = self.words(self.commands().server(Cell("resnet50", "rdma", clients=4), "name"))
        self.assertRegex(rdma, r"^/bin/softnic run --fabric name --link 25Gb/s,1us -- /bin/model_server rdma://")
        self.assertIn("--on host --streams 16", rdma)
        tcp = self.words(self.commands().server(Cell("resnet50", "tcp"), "name"))
        self.assertRegex(tcp, r"^/bin/model_server tcp://127.0.0.1:0\?insecure=true&pacing=25Gb/s ")
        self.assertNotIn("pacing", self.words(self.commands(pacing=False).server(Cell("resnet50", "tcp"), "name")))

    def test_an_emulated_adapter_spins_where_there_are_cores_for_it(self):
        many = Machine(**{**EVERYTHING.document(), "emulated": True})
        spins = [self.words(self.commands(many).server(cell, "name")) for cell in
                 (Cell("resnet50", "rdma"), Cell("efficientnet_b0", "rdma", True, 16, sharing="contexts"))]
        self.assertIn("--mode spin", spins[0])
        self.assertNotIn("--mode spin", spins[1])
        self.assertIn("--cuda-stay", spins[0])
        self.assertNotIn("--cuda-stay", self.words(self.commands().server(Cell("resnet50", "rdma"), "name")))

    def test_varied_options_reach_the_programs(self):
        commands = self.commands(EVERYTHING, False, "")
        self.assertIn("--on gpu-resident", self.words(commands.server(Cell("resnet50", "gpu"), "n")))
        self.assertIn("--resident-raw", self.words(commands.server(Cell("resnet50", "gpu", True), "n")))
        self.assertIn("--streams 4", self.words(commands.server(Cell("resnet50", "gdr", streams=4), "n")))
        self.assertIn("--contexts 16", self.words(commands.server(
            Cell("resnet50", "gdr", clients=8, sharing="mps"), "n")))
        load = self.words(commands.load(Cell("yolo_v4", "gdr", False, 8, priority_clients=1), ["gdr://a:1"],
                                        Work(2.5, 0.8, 1000, 100), "out", "n"))
        self.assertIn("--priority-clients 1", load)
        self.assertIn("--clients 8 --requests 1000 --duration 2500ms --at-least 13 --warm-up 5 --settle 800ms", load)
        gateway = self.words(commands.gateway(Cell("resnet50", "tcp/gdr"), ["gdr://127.0.0.1:5"], "n"))
        self.assertIn("--listen tcp://127.0.0.1:0?insecure=true --to resnet50=rdma://127.0.0.1:5?insecure=true", gateway)

    def test_two_stages_are_at_a_gpu_each(self):
        commands = self.commands(EVERYTHING, False, "")
        for gpus, by_host in ((1, False), (2, True)):
            cell = Cell("resnet50", "shm", gpus=gpus, by_host=by_host)
            server = self.words(commands.server(cell, "n"))
            load = self.words(commands.load(cell, ["shm://n"], Work(), "out", "n"))
            self.assertEqual("--gpu 1" in server, gpus == 2)
            self.assertIn("--preprocess-on 0", load)
            self.assertEqual("--from-host" in load, by_host)
        self.assertNotIn("--preprocess-on", self.words(commands.load(Cell("resnet50", "shm"), [], Work(), "out", "n")))

    def test_local_is_one_process(self):
        load = self.words(self.commands().load(Cell("digits", "local"), ["local://x"], Work(), "out", ""))
        self.assertIn("--in-process digits=builtin --on host", load)

    def test_compiled_files_are_taken_first(self):
        for name in ("resnet50.pt", "resnet50.pt2", "yolo_v4.pt"):
            (self.path / name).touch()
        kinds = probe.model_kinds(self.path)
        self.assertEqual((kinds["resnet50"], kinds["yolo_v4"], kinds["super_resolution"], kinds["digits"]),
                         ("aoti", "torchscript", "synthetic", "builtin"))
        self.assertTrue(Commands(self.path, EVERYTHING, self.path).spec("resnet50").endswith("resnet50.pt2"))
        self.assertEqual(probe.model_kinds(None)["resnet50"], "synthetic")

    def test_a_program_that_is_missing_is_a_problem_of_its_cell(self):
        with Runner(Commands(self.path / "none", NO_GPU), self.path) as runner:
            row = runner.run(Cell("digits", "tcp"), Work(0.1), 1)
            again = [runner.run(Cell("digits", "tcp", clients=n), Work(0.1), 1) for n in (2, 4)]
        self.assertFalse(row.good)
        self.assertIn("model_server", row["problem"])
        self.assertIn("not tried, because other cells of this server failed", again[1]["problem"])

    def servers(self, script="echo '{\"endpoints\": [\"tcp://a:1\"]}'; exec sleep 30"):
        return Servers(lambda cell, fabric, link: ["sh", "-c", script],
                       lambda name, command: Process(name, command, self.path / "log"), "test")

    def test_servers_have_the_link_of_their_cells_whatever_cell_begins_the_group(self):
        links = {}
        def command(cell, _fabric, link):
            links[cell.transport] = link
            return ["true"]
        cells = [Cell("digits", "local"), Cell("digits", "shm", clients=1), Cell("digits", "rdma", clients=1)]
        with Servers(command, lambda name, command: Process(name, command, self.path / "log"), "test") as servers:
            servers.enter(cells, "25Gb/s,1us")
        self.assertEqual(links, {"shm": "", "rdma": "25Gb/s,1us"})

    def test_a_server_stays_for_its_group_and_ends_with_it(self):
        with self.servers() as servers:
            cells = [Cell("digits", "tcp", clients=1), Cell("digits", "local"), Cell("digits", "zmq", clients=1),
                     Cell("digits", "tcp", clients=4)]
            self.assertEqual({server.transport for server in servers.enter(cells, "")}, {"tcp", "zmq"})
            first = servers.of(cells[0])
            self.assertEqual(servers.enter(cells[2:], ""), [])
            self.assertIs(servers.of(cells[3]), first)
            self.assertEqual(first.endpoints, ["tcp://a:1"])
            self.assertIsNot(servers.of(cells[2]), first)
            self.assertEqual(len(servers.enter([cells[0]], LINK)), 1)
            self.assertIsNotNone(first.process.child.poll())
            self.assertEqual(len(servers.running), 1)

    def test_a_server_that_has_died_is_started_again(self):
        with self.servers() as servers:
            servers.enter([Cell("digits", "tcp")], "")
            first = servers.of(Cell("digits", "tcp"))
            first.process.child.kill()
            first.process.child.wait(5)
            second = servers.of(Cell("digits", "tcp"))
            self.assertIsNot(second, first)
            self.assertIsNone(second.process.child.poll())

    def test_a_server_that_does_not_start_leaves_nothing(self):
        with self.servers("exit 3") as servers:
            servers.enter([Cell("digits", "tcp")], "")
            with self.assertRaises(Failed):
                servers.of(Cell("digits", "tcp"))
            self.assertEqual(servers.running, {})

    def test_waiting_for_a_process_ends(self):
        with Process("sleeper", ["sleep", "600"], self.path / "log") as process:
            with self.assertRaises(Failed):
                process.line(0.2)
            self.assertIsNone(process.child.poll())
            number = process.child.pid
        self.assertFalse(Path(f"/proc/{number}").exists())

    def test_children_of_a_process_end_with_it(self):
        script = "sleep 30 & echo $!; wait"
        with Process("parent", ["sh", "-c", script], self.path / "log") as process:
            child = process.line(5)
        # A killed process has not ended yet when `kill` returns.
        deadline = time.monotonic() + 60
        while runs(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(runs(child))

    def test_late_messages_of_all_programs_count(self):
        said = late.said("softnic: late messages 1 of 50, 300 us behind the link, device\n"
                         "softnic: late messages 3 of 150, 100 us behind the link, device\n")
        self.assertEqual(said, late.Lateness(4, 200, 400.0))
        self.assertEqual(said.percent, 2.0)
        self.assertEqual(late.figures(said, late.Lateness(6, 50, 1000.0), 10),
                         {"late_percent": 4.0, "late_request_us": 100.0, "late_response_us": 40.0})
        self.assertIsNone(late.said("late messages 0 of 0, 0 us behind the link, device").percent)
        self.assertEqual(set(late.figures(late.Lateness(), late.Lateness(), 10).values()), {None})

    def test_late_messages_of_running_servers_are_those_of_their_processes(self):
        table = "node   process  link messages  late messages  late %  behind link s  device CPU s  in calls s\n" \
                "   0       123             100              5    5.00       0.000250         0.100       0.000\n" \
                "   1       124              50              1    2.00       0.000125         0.100       0.000\n" \
                "   2       999              70             70  100.00       9.000000         0.100       0.000\n"
        self.assertEqual(late.of_processes(table, {123, 124}), late.Lateness(6, 150, 375.0))

    def test_a_load_that_failed_altogether_is_a_problem(self):
        stage = {"mean": 0, "p50": 0, "p99": 0, "cov": 0}
        seen = {"requests": 5, "wrong": 0, "errors": {"peer_lost": 5}, "seconds": 1, "rate": 5,
                "first_error": "peer_lost", "cpu_user_us_per_request": 1, "cpu_kernel_us_per_request": 1, "rss_mib": 1,
                "inference_distribution_us": [], **{f"{name}_us": stage for name in ("total",) + results.STAGES}}
        self.assertEqual(figures_of(seen)["problem"], "peer_lost")


class CommandLine(unittest.TestCase):
    def test_mistakes_are_refused(self):
        for bad in (["F4"], ["--link", "fast"], ["--rounds", "0"], ["--cell", "0"], ["--stop-after", "0"],
                    ["--link", LINK, "--link", "x"]):
            with self.assertRaises(SystemExit):
                experiments.parse(bad)

    def test_figures_are_named_in_any_way(self):
        self.assertEqual(experiments.parse(["F5,F6", "F5"]).figures, ["F5", "F6"])
        self.assertEqual(experiments.parse([]).figures, list(FIGURES))

    def waiting(self, arguments, rows=()):
        chosen = experiments.parse(arguments)
        cells, _ = matrix.cells_of(experiments.figures_for(chosen, EVERYTHING), EVERYTHING)
        with tempfile.TemporaryDirectory() as folder:
            store = results.Store(Path(folder))
            for row in rows:
                store.add(row)
            return experiments.waiting_cells(cells, chosen.link or [""], store, EVERYTHING, chosen)

    def test_the_second_link_measures_what_has_a_link(self):
        waiting = self.waiting(["F5", "--link", LINK, "--link", FAST, "--rounds", "1"])
        self.assertEqual(len(waiting), 14 + 10)
        self.assertEqual({cell.transport for _, cell, link in waiting if link == FAST}, set(matrix.NETWORK) - {"shm"})

    def test_rounds_come_one_after_another_and_a_run_goes_on_in_the_first_that_is_not_whole(self):
        self.assertEqual([number for number, _, _ in self.waiting(["F5"])], sorted(list(range(1, 6)) * 14))
        first = [cell for _, cell, _ in self.waiting(["F5", "--rounds", "1"])]
        like = {"device": EVERYTHING.device, "kind": "torchscript"}
        whole = [canned(cell, **like) for cell in first]
        part = whole + [canned(cell, number=2, **like) for cell in first[:3]]
        waiting = self.waiting(["F5", "--rounds", "2"], part)
        self.assertEqual([(number, cell) for number, cell, _ in waiting], [(2, cell) for cell in first[3:]])
        self.assertEqual(self.waiting(["F5", "--rounds", "1"], part), [])
        self.assertEqual(len(self.waiting(["F5", "--rounds", "2", "--again"], part)), 28)
        other = [{**like, "device": "H100"}, {**like, "kind": "aoti"}, {**like, "quick": "1"}, {**like, "problem": "x"}]
        for wrong in other:
            rows = [canned(cell, **wrong) for cell in first]
            self.assertEqual(len(self.waiting(["F5", "--rounds", "1"], rows)), 14, wrong)

    def test_a_quick_run_is_one_round(self):
        self.assertEqual({number for number, _, _ in self.waiting(["F5", "--quick"])}, {1})

    def test_a_stored_command_names_no_folder(self):
        self.assertEqual(experiments.command_text(["F5", "--out", "/a", "--models=/b", "--quick", "--programs", "c"]),
                         "./run experiments F5 --quick")

    def test_another_gpu_measures_again_and_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            store = results.Store(Path(folder))
            self.assertEqual(experiments.other_devices_text(store, EVERYTHING), "")
            store.add(canned(Cell("resnet50", "tcp"), device="H100"))
            self.assertEqual(experiments.other_devices_text(store, EVERYTHING),
                             "rows of another device (H100) are measured again on H200")

    def test_a_run_ends_in_time_and_goes_on_there(self):
        chosen = experiments.parse(["F5", "--stop-after", "0.01"])
        with tempfile.TemporaryDirectory() as folder:
            store = results.Store(Path(folder))
            self.assertFalse(experiments.measure([(1, Cell("resnet50", "tcp"), "")], chosen, store, None))
            self.assertEqual(store.rows, {})

    def test_the_doctor_says_what_is_usable(self):
        doctor = '{"schemes": [{"scheme": "tcp", "usable": true}, {"scheme": "gdr", "usable": true}, ' \
                 '{"scheme": "rdma", "usable": false}]}'
        self.assertEqual(probe.usable(doctor, ""), ("tcp",))
        self.assertEqual(probe.usable(doctor, "H200"), ("tcp", "gdr"))
        self.assertEqual(probe.usable("no JSON", ""), ("local", "tcp"))


if __name__ == "__main__":
    unittest.main()
