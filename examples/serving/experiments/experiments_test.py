#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the experiments' modules."""
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
import report  # noqa: E402
import results  # noqa: E402
from budget import SHORTEST, START_UP, Budget  # noqa: E402
from matrix import FIGURES, Cell, Machine  # noqa: E402
from processes import Failed, Process  # noqa: E402
from runner import Runner, figures_of, late_figures  # noqa: E402

EVERYTHING = Machine(transports=matrix.DIRECT, gpu="H200", gateway=True, mps=True,
                     models={name: "file" for name in matrix.PAPER_MODELS + ("super_resolution",)}
                     | {"digits": "builtin"})
NO_GPU = Machine(transports=("local", "tcp", "zmq", "shm", "rdma"), gateway=True, emulated=True,
                 models={name: "synthetic" for name in matrix.PAPER_MODELS} | {"digits": "builtin"}, link="25Gb/s,1us")


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


def canned_rows(machine=EVERYTHING, total=lambda cell: 1000.0):
    cells, _ = matrix.cells_of(FIGURES.values(), machine)
    return {cell.key: canned(cell, total(cell)) for cell in cells}


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

    def test_what_cannot_be_run_is_left_out_with_its_reason(self):
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


class Time(unittest.TestCase):
    def test_a_budget_is_spread_and_what_is_left_goes_on(self):
        now = [0.0]
        budget = Budget(100, lambda: now[0])
        self.assertAlmostEqual(budget.duration(10), 10 - START_UP)
        now[0] = 2.0  # the first cell took less than its part
        self.assertAlmostEqual(budget.duration(9), 98 / 9 - START_UP)
        now[0] = 1000.0
        self.assertEqual(budget.duration(5), SHORTEST)


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
        self.assertTrue(store.done(done, ""))
        self.assertFalse(store.done(half, ""))
        store.add(canned(half))
        self.assertTrue(results.Store(self.path).done(half, ""))

    def test_a_cell_that_failed_or_had_another_link_is_measured_again(self):
        cell = Cell("digits", "tcp")
        store = results.Store(self.path)
        store.add(results.row_of(cell, problem="the server did not start"))
        self.assertFalse(store.done(cell, ""))
        store.add(canned(cell, link="25Gb/s,1us"))
        self.assertTrue(store.done(cell, "25Gb/s,1us"))
        self.assertFalse(store.done(cell, ""))
        self.assertFalse(store.done(cell, "25Gb/s,1us", again=True))

    def test_rows_survive_their_file(self):
        cell = Cell("yolo_v4", "rdma/gdr", True, 16, 4, "mps", 1)
        row = canned(cell, problem="a, \"b\"\nc")
        again = results.read(results.header() + results.line_of(row))[cell.key]
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
    def check(self, figure, number, rows):
        return claims.CLAIMS[figure][number].check(claims.View(rows))

    def test_a_change_holds_weakly_or_not_by_its_direction_and_size(self):
        for gdr, wanted in ((800.0, claims.HOLDS), (950.0, claims.WEAKER), (1100.0, claims.FAILS)):
            rows = canned_rows(total=lambda cell, gdr=gdr: gdr if cell.transport == "gdr" else 1000.0)
            said, verdict = self.check("F5", 0, rows)
            self.assertEqual(verdict, wanted)
            self.assertIn("stages: ", said)
        self.assertIn("−20.0 % (800 µs against 1 ms)",
                      self.check("F5", 0, canned_rows(total=lambda c: 800.0 if c.transport == "gdr" else 1000.0))[0])

    def test_what_was_not_measured_is_no_claim(self):
        for figure, members in claims.CLAIMS.items():
            for number in range(len(members)):
                self.assertEqual(self.check(figure, number, {}), ("", claims.UNKNOWN), figure)

    def test_all_claims_find_their_cells_in_a_full_run(self):
        rows = canned_rows()
        for figure, members in claims.CLAIMS.items():
            for number, claim in enumerate(members):
                self.assertNotEqual(self.check(figure, number, rows)[1], claims.UNKNOWN, f"{figure}: {claim.paper}")

    def test_the_order_of_shares_counts(self):
        rows = canned_rows()
        key = Cell("mobilenet_v3", "gdr", True).key
        rows[key] = canned(Cell("mobilenet_v3", "gdr", True), copy_mean=900.0)
        self.assertEqual(self.check("F8", 0, rows)[1], claims.FAILS)


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def test_has_every_figure_with_its_picture(self):
        rows = canned_rows()
        text = report.write(self.path, list(FIGURES.values()), rows, {}, EVERYTHING).read_text(encoding="utf-8")
        for figure in FIGURES:
            self.assertIn(f"## {figure}: ", text)
            self.assertTrue(list(self.path.glob(f"{figure}*.svg")), figure)
        for picture in self.path.glob("*.svg"):
            ElementTree.fromstring(picture.read_text(encoding="utf-8"))
            self.assertIn(f"({picture.name})", text)

    def test_says_what_is_emulated_synthetic_left_out_late_and_wrong(self):
        cells, left_out = matrix.cells_of([FIGURES["F5"]], NO_GPU)
        rows = {cell.key: canned(cell, link=NO_GPU.link) for cell in cells}
        rows[cells[0].key].update(wrong=3, late_percent=2.5)
        text = report.write(self.path, [FIGURES["F5"]], rows, left_out, NO_GPU).read_text(encoding="utf-8")
        for words in ("emulated", "synthetic", "25Gb/s,1us (modelled)", "2 cells: no gdr here", "2.5 % late",
                      "Wrong answers in all: 3"):
            self.assertIn(words, text)

    def test_a_cell_with_a_problem_names_it(self):
        cell = Cell("resnet50", "tcp", True)
        rows = {cell.key: results.row_of(cell, problem="the server did not start")}
        text = report.write(self.path, [FIGURES["F5"]], rows, {}, NO_GPU).read_text(encoding="utf-8")
        self.assertIn("the server did not start", text)


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def runner(self, machine=NO_GPU, pacing=True):
        return Runner(Path("/bin"), machine, Path("/models"), pacing, self.path)

    def words(self, command):
        return " ".join(str(part) for part in command)

    def test_verbs_run_on_softnic_with_the_link_and_sockets_are_paced(self):
        rdma = self.words(self.runner().server_command(Cell("resnet50", "rdma", clients=4)))
        self.assertRegex(rdma, r"^/bin/softnic run --fabric \S+ --link 25Gb/s,1us -- /bin/model_server rdma://")
        self.assertIn("--on host --streams 4", rdma)
        tcp = self.words(self.runner().server_command(Cell("resnet50", "tcp")))
        self.assertRegex(tcp, r"^/bin/model_server tcp://127.0.0.1:0\?insecure=true&pacing=25Gb/s ")
        self.assertNotIn("pacing", self.words(self.runner(pacing=False).server_command(Cell("resnet50", "tcp"))))

    def test_what_varies_reaches_the_programs(self):
        runner = self.runner(EVERYTHING)
        self.assertIn("--on gpu-resident", self.words(runner.server_command(Cell("resnet50", "gpu"))))
        self.assertIn("--streams 4", self.words(runner.server_command(Cell("resnet50", "gdr", streams=4))))
        self.assertIn("--contexts 8", self.words(runner.server_command(
            Cell("resnet50", "gdr", clients=8, sharing="mps"))))
        load = self.words(runner.load_command(Cell("yolo_v4", "gdr", False, 8, priority_clients=1), ["gdr://a:1"],
                                              1000, 2.5, "out"))
        self.assertIn("--priority-clients 1", load)
        self.assertIn("--clients 8 --requests 1000 --duration 2500ms", load)
        gateway = self.words(runner.gateway_command(Cell("resnet50", "tcp/gdr"), ["gdr://127.0.0.1:5"]))
        self.assertIn("--listen tcp://127.0.0.1:0?insecure=true --to resnet50=rdma://127.0.0.1:5?insecure=true", gateway)

    def test_local_is_one_process(self):
        load = self.words(self.runner().load_command(Cell("digits", "local"), ["local://x"], 1, 1, "out"))
        self.assertIn("--in-process digits=builtin --on host", load)

    def test_a_program_that_is_missing_is_a_problem_of_its_cell(self):
        row = Runner(self.path / "none", NO_GPU, logs=self.path).run(Cell("digits", "tcp"), 1, 0.1)
        self.assertFalse(row.good)
        self.assertIn("model_server", row["problem"])

    def test_waiting_for_a_process_ends(self):
        with Process("sleeper", ["sleep", "30"], self.path / "log") as process:
            begin = time.monotonic()
            with self.assertRaises(Failed):
                process.line(0.2)
            self.assertLess(time.monotonic() - begin, 5)
            number = process.child.pid
        self.assertFalse(Path(f"/proc/{number}").exists())

    def test_what_a_process_started_ends_with_it(self):
        script = "sleep 30 & echo $!; wait"
        with Process("parent", ["sh", "-c", script], self.path / "log") as process:
            child = process.line(5)
        time.sleep(0.1)
        path = Path(f"/proc/{child}/stat")
        self.assertTrue(not path.exists() or ") Z " in path.read_text(encoding="utf-8"))

    def test_late_messages_of_all_programs_count(self):
        said = "softnic: late messages 1 of 50 device\nsoftnic: late messages 3 of 150 device\n"
        self.assertEqual(late_figures(said), {"late_percent": 2.0})
        self.assertEqual(late_figures("late messages 0 of 0 device"), {})

    def test_a_load_that_failed_altogether_is_a_problem(self):
        stage = {"mean": 0, "p50": 0, "p99": 0, "cov": 0}
        seen = {"requests": 5, "wrong": 0, "errors": {"peer_lost": 5}, "seconds": 1, "rate": 5,
                "first_error": "peer_lost", "cpu_user_us_per_request": 1, "cpu_kernel_us_per_request": 1, "rss_mib": 1,
                "inference_distribution_us": [], **{f"{name}_us": stage for name in ("total",) + results.STAGES}}
        self.assertEqual(figures_of(seen)["problem"], "peer_lost")


class CommandLine(unittest.TestCase):
    def test_mistakes_are_refused(self):
        for bad in (["F4"], ["--link", "fast"], ["--budget", "0"]):
            with self.assertRaises(SystemExit):
                experiments.parse(bad)

    def test_figures_are_named_in_any_way(self):
        self.assertEqual(experiments.parse(["F5,F6", "F5"]).figures, ["F5", "F6"])
        self.assertEqual(experiments.parse([]).figures, list(FIGURES))

    def test_the_doctor_says_what_is_usable(self):
        doctor = '{"schemes": [{"scheme": "tcp", "usable": true}, {"scheme": "gdr", "usable": true}, ' \
                 '{"scheme": "rdma", "usable": false}]}'
        self.assertEqual(probe.usable(doctor, ""), ("tcp",))
        self.assertEqual(probe.usable(doctor, "H200"), ("tcp", "gdr"))
        self.assertEqual(probe.usable("no JSON", ""), ("local", "tcp"))


if __name__ == "__main__":
    unittest.main()
