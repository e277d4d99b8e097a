#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the experiments' modules."""
import itertools
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
import matrix  # noqa: E402
import pictures  # noqa: E402
import probe  # noqa: E402
import late  # noqa: E402
import links  # noqa: E402
import plan  # noqa: E402
import reasons  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
from budget import CELL, SHORTEST, START, Budget, weight  # noqa: E402
from commands import Commands, Work  # noqa: E402
from matrix import FIGURES, Cell, Machine  # noqa: E402
from processes import Failed, Process  # noqa: E402
from runner import Runner, figures_of  # noqa: E402
from runs import Runs  # noqa: E402
from servers import Servers  # noqa: E402

LINK, FAST = "25Gb/s,1us", "100Gb/s,1us"
EVERYTHING = Machine(transports=matrix.DIRECT, gpu="H200", gateway=True, mps=True, cpu="Xeon", cores=16,
                     models={name: "torchscript" for name in matrix.ALL_MODELS} | {"digits": "builtin"})
NO_GPU = Machine(transports=("local", "tcp", "zmq", "shm", "rdma"), gateway=True, emulated=True, cpu="Xeon", cores=2,
                 models={name: "synthetic" for name in matrix.ALL_MODELS} | {"digits": "builtin"})


def canned(cell, total=1000.0, **changes):
    """A row in which half of the time is inference."""
    figures = {"kind": "synthetic", "requests": 100, "wrong": 0, "failed": 0, "seconds": 1.0, "rate": 100.0,
               "total_mean": total, "total_p50": total, "total_p99": 2 * total, "total_cov": 0.1,
               "inference_cov": 0.1, "request_mean": total / 4, "queue_mean": 0.0, "copy_mean": total / 8,
               "preprocessing_mean": 0.0, "inference_mean": total / 2, "response_mean": total / 8,
               "server_user": 10.0, "server_kernel": 5.0, "client_user": 3.0, "client_kernel": 2.0,
               "inference_distribution": "5:400 50:500 100:900"}
    if cell.priority_clients:
        figures |= {"high_mean": total / 2, "normal_mean": total}
    return results.row_of(cell, **(figures | changes))


def canned_rows(machine=EVERYTHING, total=lambda cell: 1000.0, link="", **changes):
    """{(key, link): row} of all cells."""
    cells, _ = matrix.cells_of(FIGURES.values(), machine)
    rows = [canned(cell, total(cell), link=cell.link_of(link), device=machine.device, run="1", **changes)
            for cell in cells]
    return {row.key: row for row in rows}


def put(rows, cell, link="", **changes):
    rows[cell.key, cell.link_of(link)].update(changes)


class Matrix(unittest.TestCase):
    def test_every_figure_of_the_papers_is_there_with_claims_and_a_picture(self):
        wanted = [f"F{i}" for i in range(5, 18)] + ["G1", "G2", "G6", "G7"]
        self.assertEqual(sorted(FIGURES), sorted(wanted))
        self.assertEqual(sorted(claims.CLAIMS), sorted(wanted))
        for figure in FIGURES.values():
            self.assertIn(figure.shows, pictures.SINGLE | pictures.SEVERAL, figure.id)

    def test_figures_have_the_papers_cells(self):
        self.assertEqual(len(FIGURES["F5"].cells()), 7 * 2)
        self.assertEqual(len(FIGURES["F7"].cells()), 6 * 7 * 2)
        self.assertEqual(len(FIGURES["F14"].cells()), 5 * 5)
        self.assertEqual({cell.clients for cell in FIGURES["F11"].cells()}, {1, 2, 4, 8, 16})
        self.assertEqual({cell.streams for cell in FIGURES["F15"].cells()}, {1, 2, 4, 8, 16})
        self.assertEqual({cell.sharing for cell in FIGURES["F17"].cells()}, {"streams", "contexts", "mps"})
        self.assertTrue(all(cell.priority_clients == 1 and cell.clients > 1 for cell in FIGURES["F16"].cells()))

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
        self.assertLess(len({plan.server_of(cell) for cell in self.cells}), 70)

    def test_cells_that_never_leave_the_gpu_run_alone(self):
        for _, group in itertools.groupby(self.cells, plan.group_of):
            members = list(group)
            servers = {plan.server_of(cell) for cell in members} - {None}
            alone = any(cell.transport == "gpu" or cell.sharing != "streams" for cell in members)
            self.assertLessEqual(len(servers), 1 if alone else 5, members[0].key)


class Time(unittest.TestCase):
    def test_a_budget_is_spread_and_the_rest_is_carried_over(self):
        now = [0.0]
        budget = Budget(100, lambda: now[0])
        self.assertAlmostEqual(budget.duration(10, 4), (100 - 10 * CELL - 4 * START) / 10)
        now[0] = 2.0  # the first cell took less than its part
        self.assertAlmostEqual(budget.duration(9, 4), (98 - 9 * CELL - 4 * START) / 9)
        now[0] = 1000.0
        self.assertEqual(budget.duration(5, 0), SHORTEST)

    def test_a_budget_learns_what_cells_and_starts_cost(self):
        budget = Budget(1000, lambda: 0.0)
        for _ in range(100):
            budget.saw(16.0, 1.0, 10.0, weight(16))
        self.assertAlmostEqual(budget.cell.value, 5.0, 1)
        self.assertAlmostEqual(budget.start.value, 10.0 / weight(16), 1)
        self.assertGreater(weight(16), 4)

    def test_earlier_runs_count(self):
        self.assertEqual(Budget(100, lambda: 0.0, 40).left(), 60)


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
        self.assertTrue(store.done(done, "", self.like))
        self.assertFalse(store.done(half, "", self.like))
        store.add(canned(half))
        self.assertTrue(results.Store(self.path).done(half, "", self.like))

    like = {"kind": "synthetic", "device": "", "quick": ""}

    def test_a_cell_that_failed_or_had_another_link_is_measured_again(self):
        cell = Cell("digits", "tcp")
        store = results.Store(self.path)
        store.add(results.row_of(cell, problem="the server did not start"))
        self.assertFalse(store.done(cell, "", self.like))
        store.add(canned(cell, link=LINK))
        self.assertTrue(store.done(cell, LINK, self.like))
        self.assertFalse(store.done(cell, "", self.like))

    def test_rows_of_several_links_stand_beside_each_other_and_local_has_none(self):
        store = results.Store(self.path)
        for link in (LINK, FAST):
            store.add(canned(Cell("digits", "tcp"), link=link))
        store.add(canned(Cell("digits", "local")))
        again = results.Store(self.path)
        self.assertTrue(again.done(Cell("digits", "tcp"), LINK, self.like))
        self.assertTrue(again.done(Cell("digits", "tcp"), FAST, self.like))
        self.assertTrue(again.done(Cell("digits", "local"), FAST, self.like))

    def test_rows_of_another_gpu_of_other_models_and_quick_ones_do_not_count(self):
        cell = Cell("digits", "tcp")
        store = results.Store(self.path)
        store.add(canned(cell, device="H100"))
        self.assertTrue(store.done(cell, "", {**self.like, "device": "H100"}))
        self.assertFalse(store.done(cell, "", {**self.like, "device": "H200"}))
        self.assertFalse(store.done(cell, "", {**self.like, "device": "H100", "kind": "aoti"}))
        store.add(canned(cell, quick="1"))
        self.assertFalse(store.done(cell, "", self.like))
        self.assertTrue(store.done(cell, "", {**self.like, "quick": "1"}))

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
        again = results.read(results.header() + results.line_of(row))[cell.key, ""]
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


class Claims(unittest.TestCase):
    def check(self, figure, number, rows, link=""):
        return claims.CLAIMS[figure][number].check(claims.View(rows, link))

    def number(self, figure, words):
        return next(i for i, claim in enumerate(claims.CLAIMS[figure]) if words in claim.paper)

    def rows_of_f5(self, **totals):
        return canned_rows(total=lambda cell: totals.get(cell.transport, 1000.0))

    def test_a_change_holds_weakly_or_not_by_its_direction_and_size(self):
        for gdr, wanted in ((800.0, claims.HOLDS), (950.0, claims.WEAKER), (1100.0, claims.FAILS)):
            said, verdict = self.check("F5", 0, self.rows_of_f5(gdr=gdr))
            self.assertEqual(verdict, wanted)
            self.assertEqual("Why: " in said, verdict != claims.HOLDS)
        self.assertIn("−20.0 % (800 µs against 1 ms)", self.check("F5", 0, self.rows_of_f5(gdr=800.0))[0])

    def test_a_range_has_two_sides(self):
        claim = self.number("F5", "gdr adds 0.27 to 0.53 ms")
        self.assertIn("from 202 µs to 662 µs", claims.CLAIMS["F5"][claim].paper)
        for more, wanted in ((100.0, claims.FAILS), (250.0, claims.HOLDS), (600.0, claims.HOLDS),
                             (1210.0, claims.FAILS), (-300.0, claims.FAILS)):
            self.assertEqual(self.check("F5", claim, self.rows_of_f5(gdr=1000.0 + more))[1], wanted, more)

    def test_as_long_as_means_neither_more_nor_less(self):
        claim = self.number("F11", "rdma takes as long as tcp")
        for rdma, wanted in ((890.0, claims.FAILS), (1050.0, claims.HOLDS), (1110.0, claims.FAILS)):
            self.assertEqual(self.check("F11", claim, self.rows_of_f5(rdma=rdma))[1], wanted, rdma)

    def test_claims_about_late_cells_are_not_judged_and_counted_apart(self):
        rows = self.rows_of_f5(gdr=1100.0)
        put(rows, Cell("resnet50", "gdr", True), late_percent=1.5)
        said, verdict = self.check("F5", 0, rows)
        self.assertEqual(verdict, claims.NOT_JUDGED)
        for words in ("seen: +10.0 %", "gdr 1.5 % late"):
            self.assertIn(words, said)
        put(rows, Cell("resnet50", "gdr", True), late_percent=0.9)
        self.assertEqual(self.check("F5", 0, rows)[1], claims.FAILS)
        put(rows, Cell("resnet50", "gdr", True), late_percent=100.0)
        summary = report.summary([FIGURES["F5"]], claims.View(rows))
        self.assertIn("2 more were not judged, because the emulation was too slow", summary)

    def test_late_cells_are_judged_where_what_they_were_late_by_changes_no_verdict(self):
        for by, wanted in ((30.0, claims.FAILS), (150.0, claims.NOT_JUDGED), (None, claims.NOT_JUDGED)):
            rows = self.rows_of_f5(gdr=1100.0)
            put(rows, Cell("resnet50", "gdr", True), late_percent=100.0, late_request_us=by, late_response_us=by)
            said, verdict = self.check("F5", 0, rows)
            self.assertEqual(verdict, wanted, by)
            self.assertEqual("which changes no verdict" in said, wanted == claims.FAILS)

    def test_a_row_on_time_is_shorter_by_what_its_messages_were_late(self):
        row = canned(Cell("resnet50", "gdr", True), late_request_us=100.0, late_response_us=500.0)
        there = late.on_time(row)
        self.assertEqual((there["request_mean"], there["response_mean"], there["total_mean"]), (150.0, 0.0, 400.0))
        self.assertEqual(row["total_mean"], 1000.0)

    def test_each_late_row_is_taken_both_ways(self):
        row = canned(Cell("resnet50", "gdr", True), late_percent=50.0, late_request_us=1.0, late_response_us=0.0)
        fine = canned(Cell("resnet50", "tcp", True))
        self.assertEqual([[each and each["total_mean"] for each in variant] for variant in
                          late.variants([row, None, fine, row])],
                         [[a, None, 1000.0, b] for a in (1000.0, 999.0) for b in (1000.0, 999.0)])

    def test_unmeasured_cells_make_no_claim(self):
        for figure, members in claims.CLAIMS.items():
            for number in range(len(members)):
                self.assertEqual(self.check(figure, number, {}), ("", claims.UNKNOWN), figure)

    def test_all_claims_find_their_cells_in_a_full_run(self):
        rows = canned_rows(link=LINK)
        for figure, members in claims.CLAIMS.items():
            for number, claim in enumerate(members):
                self.assertNotEqual(self.check(figure, number, rows, LINK)[1], claims.UNKNOWN,
                                    f"{figure}: {claim.paper}")

    def test_every_kind_of_claim_says_why_it_does_not_hold(self):
        failed = 0
        for seed in range(4):
            rows = canned_rows()
            for number, row in enumerate(rows.values()):
                factor = 1 + (number * 7 + seed * 5) % 11 / 10
                row.update(total_mean=1000.0 * factor, inference_mean=500.0 / factor, copy_mean=50.0 * factor,
                           inference_cov=factor / 5, total_cov=1 / factor, server_user=10.0 * factor,
                           gpu_utilisation=40.0)
            for figure, members in claims.CLAIMS.items():
                for number, claim in enumerate(members):
                    said, verdict = self.check(figure, number, rows)
                    if verdict in (claims.FAILS, claims.WEAKER):
                        failed += 1
                        self.assertRegex(said, r"Why: .*\d", f"{figure}: {claim.paper}")
        self.assertGreater(failed, 30)

    def test_the_order_of_shares_counts_and_the_worst_pair_is_explained(self):
        rows = canned_rows()
        put(rows, Cell("mobilenet_v3", "gdr", True), copy_mean=900.0)
        said, verdict = self.check("F8", 0, rows)
        self.assertEqual(verdict, claims.FAILS)
        self.assertRegex(said, r"gdr against (tcp|rdma): shares of the total differ in copy \+7\d points")


class Reasons(unittest.TestCase):
    def row(self, transport, **changes):
        return canned(Cell("resnet50", transport, True), **changes)

    def test_the_stages_that_differ_most_come_first(self):
        said = reasons.of_pair(self.row("gdr", total_mean=885.0, copy_mean=10.0), self.row("tcp"))
        self.assertTrue(said.startswith("gdr against tcp: they differ in copy −115 µs; "), said)

    def test_a_link_that_dominates_is_named_from_the_numbers(self):
        slow = {"request_mean": 500.0, "response_mean": 200.0, "inference_mean": 100.0}
        self.assertIn("the link dominates: requests and responses take 70 % and 70 % of the totals",
                      reasons.of_pair(self.row("gdr", **slow), self.row("tcp", **slow)))
        self.assertNotIn("link", reasons.of_pair(self.row("gdr", **slow), self.row("tcp")))

    def test_equal_inference_on_an_idle_gpu_is_the_launching_of_kernels(self):
        both = {"inference_mean": 800.0, "gpu_utilisation": 35.0}
        said = reasons.of_pair(self.row("gdr", **both), self.row("tcp", **both))
        self.assertIn("inference dominates and is equal (800 µs and 800 µs, 80 % and 80 % of the totals), while the "
                      "GPU works for 35 % and 35 % of the time: most of it is the launching of kernels", said)
        busy = {**both, "gpu_utilisation": 95.0}
        self.assertNotIn("launching", reasons.of_pair(self.row("gdr", **busy), self.row("tcp", **busy)))
        other = {**both, "inference_mean": 600.0}
        self.assertIn("none of the transport's doing",
                      reasons.of_pair(self.row("gdr", **other), self.row("tcp", **both)))

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


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)
        self.runs = Runs(self.path)

    def write(self, figures, rows, machine=EVERYTHING, given=None, command="./run experiments F5"):
        self.runs.add("2026-11-25 14:30", command, False, machine)
        rows = {row.key: row for row in (rows.values() if isinstance(rows, dict) else rows)}
        for row in rows.values():
            row.update(run=row["run"] or "1", device=row["device"] or machine.device)
        return report.write(self.path, figures, rows, given, machine, self.runs).read_text(encoding="utf-8")

    def test_has_every_figure_with_its_picture(self):
        text = self.write(list(FIGURES.values()), canned_rows())
        for figure in FIGURES:
            self.assertIn(f"## {figure}: ", text)
            self.assertTrue(list(self.path.glob(f"{figure}*.svg")), figure)
        for picture in self.path.glob("*.svg"):
            ElementTree.fromstring(picture.read_text(encoding="utf-8"))
            self.assertIn(f"({picture.name})", text)

    def test_begins_with_the_run_as_it_was_stored(self):
        text = self.write([FIGURES["F5"]], canned_rows(cost=6.0), command="./run experiments all --budget 20")
        head = text[:text.index("## The machine")]
        for words in ("Measured on H200 (Xeon, 16 cores)", "`./run experiments all --budget 20` (2026-11-25 14:30)",
                      "14 cells in 1.4 minutes", "in the median 100"):
            self.assertIn(words, " ".join(head.split()))

    def test_says_what_is_emulated_synthetic_left_out_late_and_wrong(self):
        cells, _ = matrix.cells_of([FIGURES["F5"]], NO_GPU)
        rows = [canned(cell, link=cell.link_of(LINK)) for cell in cells]
        rows[1].update(wrong=3, late_percent=2.5)
        text = self.write([FIGURES["F5"]], {row.key: row for row in rows}, NO_GPU)
        for words in ("emulated", "synthetic", "25Gb/s,1us (modelled)", "2 cells: no gdr here", "2.5 % late",
                      "Wrong answers in all: 3"):
            self.assertIn(words, text)

    def test_rows_of_another_gpu_are_left_out_in_a_sentence_and_quick_ones_are_named(self):
        rows = canned_rows()
        put(rows, Cell("resnet50", "tcp", True), device="H100", total_mean=987654.0)
        put(rows, Cell("resnet50", "rdma", True), quick="1")
        text = " ".join(self.write([FIGURES["F5"]], rows).split())
        self.assertIn("1 cells of another device (H100) are in the same folder, and not in this report", text)
        self.assertNotIn("988 ms", text)
        self.assertIn("1 cells are quick ones", text)

    def test_late_cells_say_so_in_the_pictures(self):
        rows = canned_rows()
        put(rows, Cell("resnet50", "gdr", True), late_percent=50.0)
        self.write([FIGURES["F5"]], rows)
        self.assertEqual((self.path / "F5.svg").read_text(encoding="utf-8").count(", late"), 1)

    def test_super_resolution_stands_with_the_cpu_and_without_it(self):
        rows = canned_rows()
        for model in ("resnet50", "super_resolution"):
            put(rows, Cell(model, "gpu"), inference_mean=0.0, copy_mean=0.0, total_mean=500.0)
        self.write([FIGURES["G6"]], rows)
        picture = (self.path / "G6.svg").read_text(encoding="utf-8")
        for words in ("super_resolution, rdma, by the CPU", "super_resolution, gpu, GPU-resident", reasons.RESIDENT):
            self.assertIn(words, picture)
        self.assertEqual(self.check_g6(rows), [claims.HOLDS, claims.HOLDS])

    def check_g6(self, rows):
        return [claim.check(claims.View(rows))[1] for claim in claims.CLAIMS["G6"]]

    def test_a_cell_with_a_problem_names_it(self):
        row = results.row_of(Cell("resnet50", "tcp", True), problem="the server did not start")
        self.assertIn("the server did not start", self.write([FIGURES["F5"]], {row.key: row}, NO_GPU))

    def test_two_links_are_compared_where_both_were_measured(self):
        rows = canned_rows(link=LINK) | canned_rows(link=FAST, total=lambda cell: 600.0, request_mean=100.0)
        for raw in (True, False):
            put(rows, Cell("resnet50", "gdr", raw), FAST, late_percent=50.0)
        text = " ".join(self.write([FIGURES["F5"]], rows).split())
        self.assertIn(f"## {LINK} and {FAST}", text)
        self.assertIn(f"- tcp: a request takes −40.0 % over {FAST} as against {LINK}, in the mean of 2 cells", text)
        self.assertIn("- gdr: not judged: in all 2 cells the emulation was too slow", text)
        self.assertIn(f"50.0 % late over {FAST}", text)
        self.assertNotIn("- shm:", text)
        ElementTree.fromstring((self.path / "links-1-25G-100G.svg").read_text(encoding="utf-8"))
        self.assertNotIn(f"and {FAST}", self.write([FIGURES["F5"]], canned_rows(link=LINK)))

    def test_two_reports_of_different_links_share_no_picture_and_name_their_link(self):
        pictures = {}
        for link in (LINK, FAST):
            rows = canned_rows(link=link)
            put(rows, Cell("resnet50", "gdr", True), link, late_percent=50.0)
            text = " ".join(self.write([FIGURES["F5"], FIGURES["G1"]], rows).split())
            pictures[link] = {picture.name for picture in self.path.glob("*.svg")}
            for picture in self.path.glob("*.svg"):
                self.assertIn(f"({picture.name})", text)
                picture.unlink()
            rate = links.rate_text(link)
            self.assertTrue(text.startswith(f"# The experiments, at {rate} "), text[:60])
            self.assertIn(f"![Total time of ResNet50, one client, at {rate}]", text)
            self.assertIn("![Bandwidth that a model asks for]", text)  # of local, which has no link
            self.assertEqual("Hanafy et al. had a link of 25 Gb/s, and this one has" in text, link == FAST)
            self.assertRegex(text, r"In 1 of \d+ cells over a modelled link more than 1 % of the messages were late\.")
        both = canned_rows(link=LINK) | canned_rows(link=FAST, late_percent=50.0)
        self.assertIn("In 0 of ", self.write([FIGURES["F5"]], both, given=[LINK]))
        self.assertEqual(pictures[LINK], {"F5-25G.svg", "G1-25G.svg"})
        self.assertFalse(pictures[LINK] & pictures[FAST])

    def test_the_first_link_is_that_of_the_figures(self):
        rows = canned_rows(link=LINK) | canned_rows(link=FAST, total=lambda cell: 600.0)
        self.assertEqual(links.of_rows(rows.values()), [LINK, FAST])
        self.assertIn(f"## {FAST} and {LINK}", self.write([FIGURES["F5"]], rows, given=[FAST, LINK]))


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
                                        Work(1000, 2.5, 13, 0.8), "out", "n"))
        self.assertIn("--priority-clients 1", load)
        self.assertIn("--clients 8 --requests 1000 --duration 2500ms --at-least 13 --warm-up 10 --settle 800ms", load)
        gateway = self.words(commands.gateway(Cell("resnet50", "tcp/gdr"), ["gdr://127.0.0.1:5"], "n"))
        self.assertIn("--listen tcp://127.0.0.1:0?insecure=true --to resnet50=rdma://127.0.0.1:5?insecure=true", gateway)

    def test_local_is_one_process(self):
        load = self.words(self.commands().load(Cell("digits", "local"), ["local://x"], Work(1, 1, 1), "out", ""))
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
            row = runner.run(Cell("digits", "tcp"), Work(1, 0.1, 1))
            again = [runner.run(Cell("digits", "tcp", clients=n), Work(1, 0.1, 1)) for n in (2, 4)]
        self.assertFalse(row.good)
        self.assertIn("model_server", row["problem"])
        self.assertIn("not tried, because other cells of this server failed", again[1]["problem"])

    def servers(self, script="echo '{\"endpoints\": [\"tcp://a:1\"]}'; exec sleep 30"):
        return Servers(lambda cell, fabric: ["sh", "-c", script],
                       lambda name, command: Process(name, command, self.path / "log"), "test")

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
        for bad in (["F4"], ["--link", "fast"], ["--budget", "0"], ["--stop-after", "0"],
                    ["--link", LINK, "--link", "x"]):
            with self.assertRaises(SystemExit):
                experiments.parse(bad)

    def test_figures_are_named_in_any_way(self):
        self.assertEqual(experiments.parse(["F5,F6", "F5"]).figures, ["F5", "F6"])
        self.assertEqual(experiments.parse([]).figures, list(FIGURES))

    def test_the_second_link_measures_what_has_a_link(self):
        chosen = experiments.parse(["F5", "--link", LINK, "--link", FAST])
        cells, _ = matrix.cells_of([FIGURES["F5"]], EVERYTHING)
        waiting = experiments.waiting_cells(cells, chosen.link, experiments.Nothing(), EVERYTHING, chosen)
        self.assertEqual(len(waiting), 14 + 10)
        self.assertEqual({cell.transport for cell, link in waiting if link == FAST},
                         set(matrix.NETWORK) - {"shm"})
        self.assertEqual(chosen.command, f"./run experiments F5 --link {LINK} --link {FAST}")

    def test_a_stored_command_names_no_folder(self):
        self.assertEqual(experiments.command_text(["F5", "--out", "/a", "--models=/b", "--quick", "--programs", "c"]),
                         "./run experiments F5 --quick")

    def test_another_gpu_measures_again_and_says_so(self):
        cells, _ = matrix.cells_of([FIGURES["F5"]], EVERYTHING)

        class Store(experiments.Nothing):
            rows = {(cell.key, ""): canned(cell, device="H100") for cell in cells}
        self.assertEqual(experiments.other_device_text(cells, [""], Store(), EVERYTHING),
                         "rows of another device (H100) are measured again on H200")
        Store.rows = {(cell.key, ""): canned(cell, device="H200") for cell in cells}
        self.assertEqual(experiments.other_device_text(cells, [""], Store(), EVERYTHING), "")

    def test_a_run_ends_in_time_and_goes_on_there(self):
        chosen = experiments.parse(["F5", "--budget", "10", "--stop-after", "0.01"])

        class Idle:
            servers = Servers(None, None, "test")
        with tempfile.TemporaryDirectory() as folder:
            store = results.Store(Path(folder))
            self.assertFalse(experiments.measure([(Cell("resnet50", "tcp"), "")], chosen, store, Idle(), 0.0))
            self.assertEqual(store.rows, {})

    def test_the_doctor_says_what_is_usable(self):
        doctor = '{"schemes": [{"scheme": "tcp", "usable": true}, {"scheme": "gdr", "usable": true}, ' \
                 '{"scheme": "rdma", "usable": false}]}'
        self.assertEqual(probe.usable(doctor, ""), ("tcp",))
        self.assertEqual(probe.usable(doctor, "H200"), ("tcp", "gdr"))
        self.assertEqual(probe.usable("no JSON", ""), ("local", "tcp"))


if __name__ == "__main__":
    unittest.main()
