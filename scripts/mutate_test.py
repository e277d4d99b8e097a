#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a list of mutants is found, and what becomes of a mutant is judged right."""
import subprocess
import tempfile
import unittest
from pathlib import Path

import mutants
import mutate

GOOD = {"id": "core.first", "file": "a.cpp", "old": "a < b", "new": "a <= b", "breaks": "One too many is taken.",
        "test": r"^unit_tests\.some\.test$"}


def toml_of(**changes):
    fields = {**GOOD, **changes}
    return "[[mutant]]\n" + "".join(f"{name} = '{value}'\n" for name, value in fields.items() if value is not None)


def problems_of(*entries, source="return a < b;\n"):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.cpp").write_text(source, encoding="utf-8")
        Path(folder, "core.toml").write_text("\n".join(entries), encoding="utf-8")
        found, problems = mutants.load(folder)
        return problems + mutants.check(found, folder)


class TheList(unittest.TestCase):
    def assert_problem(self, word, *entries, **world):
        found = problems_of(*entries, **world)
        self.assertEqual(1, len(found), found)
        self.assertIn(word, found[0])

    def test_good_mutant_is_taken(self):
        self.assertEqual([], problems_of(toml_of()))
        self.assertEqual([], problems_of(toml_of(test=None, explained="Nobody can notice it.")))

    def test_text_has_to_stand_in_the_file_once(self):
        self.assert_problem("0 times", toml_of(), source="return b < a;\n")
        self.assert_problem("2 times", toml_of(), source="return a < b && a < b;\n")
        self.assert_problem("no file", toml_of(file="b.cpp"))

    def test_fields_are_checked(self):
        self.assert_problem("lacks the fields: breaks", toml_of(breaks=None))
        self.assert_problem("unknown fields: notes", toml_of(notes="x"))
        self.assert_problem("changes nothing", toml_of(new="a < b"))
        self.assert_problem("sentence", toml_of(breaks="One too many"))
        self.assert_problem("no test", toml_of(test=None))
        self.assert_problem("regular expression", toml_of(test=r"^unit_tests\.("))
        self.assert_problem("no target", toml_of(test="^nothing_known$"))
        self.assert_problem("twice", toml_of(), toml_of())
        self.assert_problem("core.toml", "[[mutant]\n")

    def test_targets_follow_from_the_test(self):
        self.assertEqual(("unit_tests", "kernels_unit_tests"), mutants.targets_of(r"^unit_tests\.some\.test$"))
        self.assertEqual(("replay_channel",), mutants.targets_of(r"^fuzz\.replay\.channel$"))
        self.assertEqual(("softnic_replay_wqe",), mutants.targets_of(r"^softnic\.replay\.wqe$"))
        self.assertEqual(("conformance_tests",), mutants.targets_of(r"^conformance\.tcp\.sizes$"))
        self.assertIn("softnic_cli", mutants.targets_of(r"^conformance\.rdma\.sizes$"))
        self.assertEqual(("replay_uri", "unit_tests", "kernels_unit_tests"),
                         mutants.targets_of(r"^fuzz\.replay\.uri$|^unit_tests\.uri\."))

    def test_patterns_select_mutants(self):
        some = [mutants.Mutant(**GOOD, list="transport/core.toml")]
        for pattern in ("core.first", "core", "core.toml", "a.cpp", "core.*", "transport", "transport/*"):
            self.assertEqual(some, mutants.select(some, [pattern]), pattern)
        self.assertEqual([], mutants.select(some, ["tcp"]))
        self.assertEqual(some, mutants.select(some, []))


class Verdicts(unittest.TestCase):
    def verdict(self, outcome, explained=""):
        mutant = mutants.Mutant(**GOOD, explained=explained)
        return mutate.verdict(mutant, outcome and {"outcome": outcome})

    def test_explanation_is_for_survivors_only(self):
        self.assertEqual("survived", self.verdict("survived"))
        self.assertEqual("explained", self.verdict("survived", "It is equivalent."))
        self.assertEqual("noticed", self.verdict("noticed", "It is equivalent."))
        self.assertEqual("did not build", self.verdict("did not build", "It is equivalent."))
        self.assertEqual("not run", self.verdict(None))

    def test_nine_of_ten_have_to_be_noticed(self):
        self.assertTrue(mutate.is_good({"noticed": 9, "explained": 1}, everything=True))
        self.assertFalse(mutate.is_good({"noticed": 8, "explained": 1}, everything=True))
        self.assertTrue(mutate.is_good({"noticed": 8, "explained": 1}, everything=False))
        self.assertFalse(mutate.is_good({"noticed": 99, "survived": 1}, everything=True))
        self.assertFalse(mutate.is_good({"noticed": 99, "did not build": 1}, everything=False))

    def test_result_is_good_as_long_as_mutant_and_lines_around_it_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "a.cpp")
            source.write_text("return a < b;\n", encoding="utf-8")
            mutant = mutants.Mutant(**GOOD)
            results = {mutant.id: {"outcome": "noticed", "print": mutant.print_of(folder)}}
            self.assertIsNotNone(mutate.known_result(mutant, results, folder))
            source.write_text("return a < b;\n" + "\n" * mutants.LINES_AROUND + "far away", encoding="utf-8")
            far = {mutant.id: {"outcome": "noticed", "print": mutant.print_of(folder)}}
            source.write_text("return a < b;\n" + "\n" * mutants.LINES_AROUND + "\nfarther away", encoding="utf-8")
            self.assertIsNotNone(mutate.known_result(mutant, far, folder))
            source.write_text("return a < b;  // now\n", encoding="utf-8")
            self.assertIsNone(mutate.known_result(mutant, results, folder))

    def test_results_come_back_a_line_for_each(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "results.json")
            results = {"b": {"outcome": "noticed", "by": 'a "name"'}, "a": {"outcome": "survived", "by": ""}}
            self.assertEqual({}, mutate.read_results(path))
            mutate.write_results(path, results)
            self.assertEqual(results, mutate.read_results(path))
            self.assertEqual(["{", '"a"', '"b"', "}"], [line.split(":")[0] for line in path.read_text().splitlines()])


class FakeBench:
    """Notices everything, and remembers what it tried."""

    def __init__(self):
        self.top = Path()
        self.tried = []

    def try_one(self, mutant):
        self.tried.append(mutant.id)
        if mutant.id == "core.broken":
            raise OSError("the disk is full")
        return "noticed", "some_test"


class FakeMutant:
    def __init__(self, name):
        self.id = self.file = name

    def needed_targets(self):
        return ("unit_tests",)

    def print_of(self, _top):
        return "x"


class Beside(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.journal = mutate.Journal(5, {}, Path(folder, "results.json"))

    def enterContext(self, manager):  # of Python 3.11
        self.addCleanup(manager.__exit__, None, None, None)
        return manager.__enter__()

    def test_without_a_mutant_ctest_gets_expressions_that_it_can_compile(self):
        class Recorder:
            seen = []

            def test(self, expression, _name, until_failure):
                self.seen.append(expression)
                return (["some"], []) if not until_failure else ([], [])

        due = mutate.mutant_list.load(mutate.LISTS)[0]
        mutate.check_clean(Recorder(), [each for each in due if each.test])
        self.assertLessEqual(max(each.count("(") for each in Recorder.seen), 31)
        self.assertEqual({each.test for each in due if each.test} - set("|".join(Recorder.seen).split("|")),
                         {each.test for each in due if "|" in each.test})

    def test_each_mutant_is_in_one_share(self):
        due = [FakeMutant(f"core.{number}") for number in range(5)]
        found = mutate.shares(due, 2)
        self.assertEqual([2, 3], [len(share) for share in found])
        self.assertEqual([each.id for each in due], [each.id for share in found for each in share])

    def test_each_result_is_kept(self):
        due = [FakeMutant(f"core.{number}") for number in range(5)]
        benches = [FakeBench(), FakeBench()]
        mutate.run_beside(benches, due, self.journal)
        self.assertEqual(["core.0", "core.1"], benches[0].tried)
        self.assertEqual({each.id for each in due}, mutate.read_results(self.journal.path).keys())

    def test_an_exception_of_one_bench_is_raised_after_the_others_end(self):
        due = [FakeMutant("core.broken"), FakeMutant("core.other")]
        with self.assertRaises(OSError):
            mutate.run_beside([FakeBench(), FakeBench()], due, self.journal)
        self.assertEqual({"core.other"}, mutate.read_results(self.journal.path).keys())


class TheCopy(unittest.TestCase):
    def test_report_names_who_ran_and_who_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "report.xml")
            path.write_text('<testsuite><testcase name="a" status="run"/><testcase name="b" status="fail"/>'
                            '<testcase name="c" status="notrun"/></testsuite>', encoding="utf-8")
            self.assertEqual((["a", "b"], ["b"]), mutate.read_report(path))

    def test_only_changed_files_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "a"), Path(folder, "tree", "a")
            source.write_text("one", encoding="utf-8")
            mutate.copy_file(source, target)
            written = target.stat().st_mtime_ns
            mutate.copy_file(source, target)
            self.assertEqual(written, target.stat().st_mtime_ns)
            target.write_text("a mutant that was left", encoding="utf-8")
            mutate.copy_file(source, target)
            self.assertEqual("one", target.read_text(encoding="utf-8"))

    def test_files_of_somebody_else_are_left_once_they_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            top, tree = Path(folder, "top"), Path(folder, "tree")
            top.mkdir()
            subprocess.run(["git", "init", "-q"], cwd=top, check=True)
            (top / "a").write_text("one", encoding="utf-8")
            mutate.copy_tree(top, tree, {"a", "b"})
            self.assertEqual("one", (tree / "a").read_text(encoding="utf-8"))
            for name in ("a", "b", "c"):
                (tree / name).write_text("changed", encoding="utf-8")
            mutate.copy_tree(top, tree, {"a", "b"})
            self.assertEqual({"a": "changed", "b": "changed"},
                             {path.name: path.read_text(encoding="utf-8") for path in tree.iterdir()})

    def test_command_that_does_not_end_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            self.assertIsNone(mutate.run(["sleep", "60"], log, 0.1, folder))
            self.assertEqual(0, mutate.run(["true"], log, 10, folder))


if __name__ == "__main__":
    unittest.main()
