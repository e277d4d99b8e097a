#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random mutants: what operators find in a source, that one build has all of them, and what tests say of each."""
import json
import os
import select
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from mutation import draw, lines, plan, report, schema, suites, trial
from mutation.operators import Changes, enumerators_in
from mutation.statements import Source

COMPILER = os.environ.get("CXX", "c++")
PROGRAM = """// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <vector>

enum class status { ok, gone };
constexpr int twice(int n) { return n * 2; }
static_assert(twice(2) == 4);
int less(int a, int b) { return a - b; }
void wake_up(int& to) { to += 100; }

status run(int n, bool wanted) {
    std::vector<int> seen;
    int sum = less(n, 3);  // a comment
    for (int i = 0; i < n; ++i) {
        if (i > 2 && wanted)
            sum += i;
        else
            --sum;
        const auto add = [&sum](int by) { sum = sum + by; };
        add(5);
    }
    wake_up(sum);
    if (sum < 0) {
        seen.clear();  // not run
        const int none = 0;  // not run
        return none == 0 ? status::ok : status::gone;  // not run
    }
    seen.push_back(sum);
    seen.push_back(sum != 0 ? 1 : 2);
    for (const int each : seen) std::printf("%d ", each);
    std::printf("%d ", twice(n));
    return sum < 90 ? status::gone : status::ok;
}

int main() {
    std::printf("%d\\n", static_cast<int>(run(4, true)));
}
"""


def changes_of(text):
    return Changes(Source("a.cpp", text), enumerators_in(text))


def edits_of(text, *operators):
    """(old, new) of the edits by these operators, or of all."""
    return [(text[each.start:each.end], each.new) for each in changes_of(text).edits
            if each.operator in operators or (not operators and each.kind != "built")]


def mutants_of(text):
    return [draw.Mutant(number, "a.cpp", 1, each.operator, each.start, each.end, draw.flat(each.new), each.span,
                        each.kind, text[each.start:each.end], "")
            for number, each in enumerate(changes_of(text).edits, 1) if each.kind != "built"]


def body(statements):
    return "void f(int a, int b) {\n" + statements + "\n}\n"


class Operators(unittest.TestCase):
    def test_each_finds_what_it_changes(self):
        for statement, operator, edit in (
                ("g(a == b);", "comparison", ("==", "!=")),
                ("while (a < b) g();", "boundary", ("<", "<=")),
                ("const int c = a + b;", "arithmetic", ("+", "-")),
                ("g(std::min(a, b));", "arithmetic", ("min", "max")),
                ("g(a && b);", "logic", ("&&", "||")),
                ("g(!a);", "logic", ("!", "")),
                ("if (a && b) g();", "condition forced", ("a", "true")),
                ("g(a ? 1 : 2);", "condition forced", ("a", "false")),
                ("a = b;", "statement left out", ("a = b;", "{}")),
                ("g(a);", "call left out", ("g(a);", "{}")),
                ("ready_.notify_one();", "fence or wake-up removed", ("ready_.notify_one();", "{}")),
                ("g(a, b);", "argument replaced", ("a, b", "b, a")),
                ("a = 1;\n b = 2;", "lines swapped", ("a = 1;\n b = 2;", "b = 2; a = 1;")),
                ("g(true);", "status replaced", ("true", "false")),
                ("g(8);", "number", ("8", "9"))):
            self.assertIn(edit, edits_of(body(statement), operator), statement)

    def test_status_becomes_another_of_its_enumeration(self):
        text = "enum class status { ok, gone = 3 };\n" + body("g(status::ok);")
        self.assertEqual([("ok", "gone")], edits_of(text, "status replaced"))

    def test_declarations_are_never_left_out(self):
        for statement in ("const std::lock_guard lock(mutex_);", "foo bar(a);", "std::vector<int> c(b);",
                          "int c = f();", "auto [c, d] = f();", "foo* c = f();", "a::b<c>::d e{f()};"):
            self.assertEqual([], edits_of(body(statement), "statement left out", "call left out"), statement)

    def test_what_the_compiler_evaluates_has_none(self):
        for statement in ("if constexpr (1 < 2) {}", "constexpr int c = 1 + 2;", "static_assert(1 < 2);",
                          "using c = d<1 + 2>;", "#define X 1 + 2"):
            self.assertEqual([], edits_of(body(statement)), statement)
        self.assertEqual([], edits_of("constexpr int limit = 1 + 2;\n"))

    def test_loops_are_not_made_endless(self):
        self.assertEqual([("a < b", "false")], edits_of(body("for (; a < b;) g();"), "condition forced"))

    def test_constants_need_a_build_each(self):
        text = "constexpr int most = 8;\nstruct a { bool b{true}; int c = d<3>(); enum { e }; };\n"
        found = [(text[each.start:each.end], each.new) for each in changes_of(text).edits if each.kind == "built"]
        self.assertEqual({("8", "9"), ("8", "7"), ("8", "0"), ("true", "false")}, set(found))

    def test_templates_are_no_comparisons(self):
        self.assertEqual([], edits_of(body("std::vector<std::pair<int, int>> c;"), "comparison", "argument replaced"))

    def test_lambda_has_statements_of_its_own(self):
        spans = {text[slice(*each.span)] for text in [body("g([&] { a = b + 1; });")]
                 for each in changes_of(text).edits if each.operator == "arithmetic"}
        self.assertEqual({"a = b + 1;"}, spans)


class OneBuild(unittest.TestCase):
    """All that an operator finds in a program is compiled into it, and chosen by the environment."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = Path(self.folder.name)
        schema.write_file(self.tree / schema.PLACE, schema.HEADER.read_text(encoding="utf-8"))

    def compiled(self, text):
        (self.tree / "a.cpp").write_text(text, encoding="utf-8")
        done = subprocess.run([COMPILER, "-std=c++20", "-w", "-o", "a", "a.cpp"], cwd=self.tree,
                              capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def said(self, **environment):
        return subprocess.run([self.tree / "a"], env={**os.environ, **environment}, capture_output=True, text=True,
                              timeout=60, check=False).stdout

    def apart(self, mutants):
        """The mutants in lots of which none touches another."""
        lots = []
        for each in mutants:
            lot = next((lot for lot in lots if not any(each.overlaps(other) for other in lot)), None)
            if lot is None:
                lots.append(lot := [])
            lot.append(each)
        return lots

    def test_chosen_mutant_is_what_a_person_would_have_written(self):
        mutants = [each for each in mutants_of(PROGRAM) if each.operator in {"comparison", "call left out", "row",
                                                                            "fence or wake-up removed"}]
        self.assertEqual("", self.compiled(PROGRAM))
        clean = self.said()
        for lot in self.apart(mutants):
            self.assertEqual("", self.compiled(schema.written("a.cpp", PROGRAM, lot)))
            self.assertEqual(clean, self.said())
            several = {each.number: self.said(ACCEL_MUTANT=str(each.number)) for each in lot}
            for each in lot:
                self.assertEqual("", self.compiled(schema.applied(PROGRAM, each)))
                self.assertEqual(self.said(), several[each.number], each)

    def test_process_marks_what_it_reaches(self):
        mutants = [each for each in mutants_of(PROGRAM) if each.operator == "comparison"]
        reached = self.tree / "reached"
        for lot in self.apart(mutants):
            self.assertEqual("", self.compiled(schema.written("a.cpp", PROGRAM, lot)))
            reached.write_bytes(bytes(1000))
            self.said(ACCEL_MUTANTS_REACHED=str(reached))
            self.assertEqual({each.number for each in lot if "not run" not in PROGRAM[each.start:].split("\n")[0]},
                             {number for number, byte in enumerate(reached.read_bytes()) if byte})

    def test_marks_tell_which_lines_run(self):
        marks = lines.marks_in("a.cpp", PROGRAM, 1)
        self.assertEqual("", self.compiled(lines.marked("a.cpp", PROGRAM, marks)))
        reached = self.tree / "reached"
        reached.write_bytes(bytes(len(marks) + 1))
        self.said(ACCEL_MUTANTS_REACHED=str(reached))
        found = lines.not_run(marks, {number for number, byte in enumerate(reached.read_bytes()) if byte})
        all_lines, missing = found["a.cpp"]
        wanted = [number for number, line in enumerate(PROGRAM.split("\n"), 1) if "not run" in line]
        self.assertEqual(wanted, sorted(missing))
        self.assertGreater(len(all_lines), 15)
        self.assertEqual("3-5 9", lines.ranges({9, 3, 4, 5}))

    def test_complaint_finds_the_mutant_in_its_line(self):
        bad = draw.Mutant(7, "a.cpp", 15, "number", PROGRAM.index("n, 3"), PROGRAM.index("n, 3") + 1, "nobody",
                          (PROGRAM.index("less(n"), PROGRAM.index(";  // a comment")), "value", "n", "")
        good = next(each for each in mutants_of(PROGRAM) if each.operator == "call left out")
        said = self.compiled(schema.written("a.cpp", PROGRAM, [bad, good]))
        (self.tree / "a.cpp").write_text(PROGRAM, encoding="utf-8")
        sources = schema.Sources(self.tree, self.tree)
        self.assertEqual(bad, schema.to_blame(said, [good, bad], sources, self.tree))
        self.assertIsNone(schema.to_blame("b.cpp:15:1: error: other", [good, bad], sources, self.tree))


class Drawing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name in ("src/core/a.cpp", "tools/softnic/src/b.cpp", "examples/serving/doors/tests/c.cpp"):
            schema.write_file(Path(self.folder.name, name), PROGRAM)

    def drawn(self, seed, count=8, folders=()):
        drawer, found = draw.Drawer(self.folder.name, folders, seed), []
        while len(found) < count:
            found.append(drawer.next(len(found) + 1, found))
        return found

    def test_seed_decides(self):
        self.assertEqual(self.drawn(1), self.drawn(1))
        self.assertNotEqual(self.drawn(1), self.drawn(2))

    def test_mutants_lie_apart_and_in_the_folders(self):
        found = self.drawn(3)
        self.assertFalse([1 for one in found for other in found if one != other and one.overlaps(other)])
        self.assertEqual({"src/core/a.cpp"}, {each.file for each in self.drawn(3, 5, ["src/core"])})
        self.assertEqual({"src/core/a.cpp", "tools/softnic/src/b.cpp"}, {each.file for each in self.drawn(3, 12)})

    def test_where_there_are_no_more_it_says_so(self):
        drawer, found = draw.Drawer(self.folder.name, ["src/core"], 1), []
        draw.PATIENCE, patience = 3000, draw.PATIENCE
        self.addCleanup(setattr, draw, "PATIENCE", patience)
        while mutant := drawer.next(len(found) + 1, found):
            found.append(mutant)
        self.assertGreater(len(found), 5)

    def test_row_of_json_is_the_mutant(self):
        one = self.drawn(1, 1)[0]
        self.assertEqual(one, draw.from_row(json.loads(json.dumps(one.as_row()))))


class FakeBench:
    """A copy of the tree with one source, whose build is what the test says."""

    def __init__(self, tree, text):
        self.tree = self.build_folder = self.logs = Path(tree)
        self.jobs = 2
        schema.write_file(self.tree / "src/core/a.cpp", text)
        entry = {"file": str(self.tree / "src/core/a.cpp"), "directory": str(self.tree),
                 "command": f"{COMPILER} -std=c++20 -o a.o -c src/core/a.cpp"}
        (self.tree / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")


class Building(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.top = Path(self.folder.name, "top")
        schema.write_file(self.top / "src/core/a.cpp", PROGRAM)

    def planned(self, count):
        return plan.Plan(self.top, self.top / "plan.json", [], 5, count)

    def builder(self, mutants):
        bench = FakeBench(Path(self.folder.name, "tree"), PROGRAM)
        return plan.Builder(mutants, schema.Sources(self.top, bench.tree), bench, lambda _: None)

    def test_mutants_of_a_plan_compile(self):
        mutants = self.planned(12)
        made = self.builder(mutants)
        made.failures = lambda _targets: []
        made.make(["all"])
        self.assertEqual("", made.compilers.complaints(made.bench.tree / "src/core/a.cpp"))
        self.assertIn("accel_mutant(", (made.bench.tree / "src/core/a.cpp").read_text(encoding="utf-8"))
        self.assertEqual(mutants.mutants, self.planned(12).mutants, "the next run has the same")

    def test_mutant_that_the_build_complains_of_is_drawn_anew(self):
        mutants = self.planned(4)
        made, said = self.builder(mutants), []

        def failures(_targets):
            said.append(mutants.mutants[0])
            line = made.sources.lines_of(said[0])[0]
            return [f"FAILED: a.o\nsrc/core/a.cpp:{line}:1: error: not so"] if len(said) == 1 else []

        made.failures = failures
        made.make(["all"])
        self.assertNotIn(said[0], mutants.mutants)
        self.assertEqual(4, len(mutants.mutants))

    def test_build_that_fails_without_a_reason_is_an_error(self):
        made = self.builder(self.planned(2))
        made.failures = lambda _targets: ["FAILED: b\nno space left"]
        with self.assertRaises(plan.CannotBuild):
            made.make(["all"])

    def test_header_is_compiled_in_a_source_that_includes_it(self):
        made = self.builder(self.planned(1))
        tree = made.bench.tree
        schema.write_file(tree / "src/core/a.cpp", '#include "core/b.hpp"\n')
        schema.write_file(tree / "src/core/b.hpp", '#include "core/c.hpp"\n')
        schema.write_file(tree / "src/core/c.hpp", "int c;\n")
        compilers = plan.Compilers(tree, tree)
        self.assertEqual(tree / "src/core/a.cpp", compilers.source_for("src/core/c.hpp"))
        self.assertIsNone(compilers.source_for("src/core/d.hpp"))


def suite(code, name="some.test", **of):
    return suites.Suite(name, [sys.executable, "-c", code], **of)


class FakeRun:
    def __init__(self, which, outcome):
        self.suite, self.outcome = which, outcome

    def __call__(self):
        return suites.Ended(self.outcome)


class Tests(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = Path(self.folder.name)

    def tried(self, *some):
        return trial.Trial(self.place, 5, 2)(list(some))

    def test_ended_test_is_judged_as_by_ctest(self):
        for outcome, status, said, of in (
                ("passed", 0, "", {}), ("failed", 1, "", {}), ("failed", -11, "", {}),
                ("skipped", 77, "", {"skip_code": 77}), ("skipped", 0, "there is no GPU", {"skips": ("no GPU",)}),
                ("passed", 1, "HELLO", {"passes": ("HEL+O",)}), ("passed", 0, "a\nb", {"passes": ("a.b",)}),
                ("failed", 0, "", {"passes": ("HEL+O",)}),
                ("failed", 0, "leak", {"fails": ("leak",)}), ("passed", 1, "", {"has_to_fail": True}),
                ("failed", 0, "", {"has_to_fail": True})):
            self.assertEqual(outcome, suites.judge(suite("", **of), status, said), (status, said, of))

    def test_properties_of_ctest_are_read(self):
        test = {"name": "a", "command": ["b"], "properties": [
            {"name": "ENVIRONMENT", "value": ["X=1=2"]}, {"name": "LABELS", "value": ["unit", "transport"]},
            {"name": "TIMEOUT", "value": 7.0}, {"name": "PROCESSORS", "value": 2},
            {"name": "PASS_REGULAR_EXPRESSION", "value": ["x"]}, {"name": "WORKING_DIRECTORY", "value": "/"}]}
        self.assertEqual(suites.Suite("a", ["b"], ("unit", "transport"), "/", {"X": "1=2"}, 7, 2, passes=("x",)),
                         suites.suite_of(test))

    def test_test_that_fails_with_the_mutant_notices_it(self):
        bad = suite("import os, sys; sys.exit(os.environ['ACCEL_MUTANT'] == '5')", "bad")
        row = self.tried(suite("pass"), bad)
        self.assertEqual(("noticed", "bad", "failed"), (row["outcome"], row["by"], row["how"]))

    def test_test_that_fails_by_chance_does_not(self):
        once = self.place / "once"
        chance = suite(f"import os, sys; there = os.path.exists({str(once)!r}); open({str(once)!r}, 'w'); "
                       "sys.exit(not there)")
        self.assertEqual("survived", self.tried(chance, suite("pass", "other"))["outcome"])
        fails_without_too = suite("raise SystemExit(1)", "busy")
        self.assertEqual("survived", self.tried(fails_without_too)["outcome"])

    def test_test_that_hangs_notices_it(self):
        class Scripted(trial.Trial):
            def run_of(self, suite, number):
                return FakeRun(suite, "hangs" if number == 5 else suite.name)

        for without, outcome in (("passed", "noticed"), ("hangs", "survived")):
            row = Scripted(self.place, 5, 2)([suite("", without)])
            self.assertEqual(outcome, row["outcome"])

    def test_run_that_takes_too_long_is_ended(self):
        run = suites.Run(suite("import time; time.sleep(600)"), {}, self.place / "log", 0.1)
        self.assertEqual("hangs", run().outcome)

    def test_what_ends_the_program_ends_its_tests(self):
        started = self.place / "started"
        os.mkfifo(started)
        code = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
        script = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                  "from mutation import suites\n"
                  "import signal\n"
                  "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
                  f"test = suites.Suite('a', [sys.executable, '-c', {code!r}])\n"
                  f"run = suites.Run(test, {{}}, {str(self.place / 'log')!r}, 600)\n"
                  "suites.Pool(1).run([run], lambda *_: False)\n")
        program = subprocess.Popen([sys.executable, "-c", script])
        test = os.pidfd_open(int(started.read_text()))
        self.addCleanup(os.close, test)
        program.terminate()
        self.assertTrue(select.select([test], [], [], 60)[0])
        self.assertEqual(1, program.wait(60))

    def test_processes_that_a_test_leaves_are_ended(self):
        left = self.place / "left"
        code = (f"import subprocess, sys; p = subprocess.Popen(['sleep', '600'], start_new_session=True); "
                f"open({str(left)!r}, 'w').write(str(p.pid))")
        self.assertEqual("survived", self.tried(suite(code))["outcome"])
        try:
            process = os.pidfd_open(int(left.read_text()))
        except ProcessLookupError:
            return
        self.addCleanup(os.close, process)
        self.assertTrue(select.select([process], [], [], 60)[0])

    def test_mutant_that_no_test_reaches_is_a_result_of_its_own(self):
        self.assertEqual("no test runs it", self.tried()["outcome"])

    def test_after_its_time_no_more_tests_run(self):
        trial.CPU_S, most = 0, trial.CPU_S
        self.addCleanup(setattr, trial, "CPU_S", most)
        self.assertEqual(("survived", 0), (self.tried(suite("pass"))["outcome"], self.tried(suite("pass"))["ran"]))

    def test_record_knows_who_reaches_what(self):
        write = "import os; f = open(os.environ['ACCEL_MUTANTS_REACHED'], 'r+b'); f.seek(2); f.write(b'x')"
        some = [suite(write, "two"), suite("pass", "none"), suite("raise SystemExit(1)", "bad")]
        some += [suite("pass", f"other_{number}") for number in range(8)]
        record = trial.Record(self.place, 2, lambda _: None)
        record.make(some, [1, 2], "key")
        self.assertEqual(["two"], [each.name for each in record.reaching(some, 2)])
        self.assertEqual([], record.reaching(some, 1))
        self.assertEqual("failed", record.tests["bad"]["outcome"])
        again = trial.Record(self.place, 2, lambda _: None)
        again.load("key")
        self.assertTrue(again.knows(some[0]))
        self.assertFalse(again.knows(some[2]), "it failed, so it is tried again")
        some[0].print = "another program"
        self.assertFalse(again.knows(some[0]))
        again.load("another")
        self.assertEqual({}, again.tests)

    def test_where_too_many_tests_fail_without_a_mutant_it_says_so(self):
        some = [suite("raise SystemExit(1)", "bad"), suite("pass", "good")]
        with self.assertRaisesRegex(trial.Unusable, "1 of 2 tests fail without a mutant, bad for one"):
            trial.Record(self.place, 2, lambda _: None).make(some, [1], "key")

    def test_tests_with_a_lock_in_common_run_one_after_another(self):
        code = (f"import os; f = os.open({str(self.place / 'held')!r}, os.O_CREAT | os.O_EXCL); "
                f"[0 for _ in range(10**6)]; os.unlink({str(self.place / 'held')!r})")
        for of in ({"locks": frozenset(["nic"])}, {"alone": True}, {"processors": 9}):
            runs = [suites.Run(suite(code, **of), {}, self.place / f"{number}.log", 60) for number in range(4)]
            outcomes = []
            suites.Pool(4).run(runs, lambda _run, ended: outcomes.append(ended.outcome))
            self.assertEqual(["passed"] * 4, outcomes, of)


MARKED = """[[equivalent]]
file = "a.cpp"
line = "g(a < b);"
old = "<"
new = "<="
why = "a is never b."
"""


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = Path(self.folder.name)
        self.mutant = draw.Mutant(1, "src/a.cpp", 9, "boundary", 0, 1, "<=", (0, 1), "statement", "<", "g(a < b);")

    def marked(self, text=MARKED):
        path = self.place / report.EQUIVALENT
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("a.cpp", "src/a.cpp"), encoding="utf-8")
        return report.load_equivalent(path)

    def result(self, outcome):
        return {"outcome": outcome, "by": "", "how": "", "tests": 3, "ran": 3, "cpu_s": 1}

    def test_equivalent_mutant_is_known_by_its_line_and_change(self):
        marked, problems = self.marked()
        self.assertEqual([], problems)
        self.assertEqual("equivalent", report.row_of(self.mutant, self.result("survived"), marked)["outcome"])
        self.assertEqual("noticed", report.row_of(self.mutant, self.result("noticed"), marked)["outcome"])
        other = draw.Mutant(**{**self.mutant.as_row(), "shown": "h(a < b);"})
        self.assertEqual("survived", report.row_of(other, self.result("survived"), marked)["outcome"])

    def test_entry_that_fits_no_line_is_told_of(self):
        self.marked()
        self.assertIn("no line", report.check_equivalent(self.place)[0])
        schema.write_file(self.place / "src/a.cpp", "void f() {\n    g(a < b);\n}\n")
        self.assertEqual([], report.check_equivalent(self.place))
        self.marked(MARKED.replace("why", "because"))
        self.assertIn("fields", report.check_equivalent(self.place)[0])

    def test_report_has_counts_and_survivors(self):
        rows = [report.row_of(self.mutant, each and self.result(each), {})
                for each in ("noticed", "noticed", "survived", "no test runs it", None)]
        said = report.text(rows)
        self.assertIn("50 %", said)
        self.assertIn("src/a.cpp:9  boundary", said)
        self.assertIn("None of the 3 tests that run this line fails.", said)
        self.assertIn("No test runs this line.", said)


if __name__ == "__main__":
    unittest.main()
