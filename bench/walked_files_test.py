#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of walked_files.py and cpp_outline.py."""
import json
import tempfile
import unittest
from pathlib import Path

import walked_files
from cpp_outline import Tree
from walked_files import Stale, Walk

ROUND_TRIP = """
# A comment.
- the client
    channel::send
        {out}
- the server
    channel::send
        {out}
"""
SENDER = """
#include "core/link.hpp"
namespace accel {
void channel::send(int n) { helper(); path_->deliver(n); }
void helper() { first(); second(); }
}
"""
LINK = """
#pragma once
namespace accel {
struct link {
    struct nested {};
    enum class mode { open, closed };
    [[nodiscard]] bool ready() const noexcept { return ready_; }
    void deliver(int n) { check(n); write(n); }
    bool ready_{};
};
using alias = link;
}
"""


def tree_of(folder, **files):
    """A tree with these sources; `__` in a name is a slash, and `src/core` its folder unless it says include."""
    for name, text in files.items():
        path = Path(folder) / "src/core" / name.replace("__", "/").replace("_hpp", ".hpp").replace("_cpp", ".cpp")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (Path(folder) / "include").mkdir(exist_ok=True)
    return Tree(folder)


def functions_of(text):
    with tempfile.TemporaryDirectory() as folder:
        return tree_of(folder, a_cpp=text).functions


def types_of(text):
    with tempfile.TemporaryDirectory() as folder:
        return tree_of(folder, a_hpp=text).types_in("src/core/a.hpp")


class Outline(unittest.TestCase):
    def names(self, text):
        return [each.name for each in functions_of(text)]

    def test_finds_functions_in_namespaces_and_classes(self):
        text = ("namespace a::b { namespace { void f() {} } class c { public: int g() const { return 1; } }; }"
                "int a::b::c::h(int x) noexcept { return x; }")
        self.assertEqual(self.names(text), ["a::b::f", "a::b::c::g", "a::b::c::h"])

    def test_declarations_have_no_body(self):
        text = "void f(); struct s { s() = default; ~s(); int x{1}; int y = 2; }; int t[]{1, 2};"
        self.assertEqual(self.names(text), [])

    def test_a_constructor_ends_after_what_it_initialises(self):
        text = "struct s { s(int x) : a_{x}, b_(x), c_{f(x)} { g(); } int a_, b_, c_; void h() { i(); } };"
        self.assertEqual(self.names(text), ["s::s", "s::h"])
        self.assertTrue(functions_of(text)[0].names("f") and functions_of(text)[0].names("g"))

    def test_finds_templates_operators_and_destructors(self):
        text = ("template <class T, int N = (1 + 0)> T f(T x) { return x; }"
                "struct s { ~s() { end(); } s& operator=(s&&) { return *this; } };"
                "template <bool B> void s<B>::g() { h(); }")
        self.assertEqual(self.names(text), ["f", "s::~s", "s::operator=", "s::g"])

    def test_values_and_lambdas_are_no_functions(self):
        self.assertEqual(self.names("const auto f = [](int x) { return x; }; constexpr auto g = make({1}); "
                                    "void h(options o = {}) { go(); }"), ["h"])

    def test_braces_in_text_and_comments_do_not_count(self):
        text = """void f() { log("}{"); /* } */ put('{'); g(1'000); } // }\nvoid g() { h(R"(})"); }"""
        self.assertEqual(self.names(text), ["f", "g"])

    def test_reads_what_the_host_compiles(self):
        self.assertEqual(self.names("#if defined(__CUDA_ARCH__)\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n"
                                    "#ifdef OTHER\nvoid h() {}\n#else\nvoid i() {}\n#endif\n"
                                    "#define BODY(x) \\\n  void x() {\nvoid j() {}"), ["g", "h", "j"])

    def test_counts_statements(self):
        found = functions_of("int f() { return g(1); } int g() { for (int i = 0; i < 3; ++i) h(); return 1; }"
                             "void h() { static_assert(sizeof(int) == 4); x = 1; }")
        self.assertEqual([each.statements for each in found], [1, 2, 1])

    def test_knows_lines_and_parameters(self):
        found = functions_of("\n\nvoid\nf(int a,\n  int b)\n{ g(); }")[0]
        self.assertEqual((found.line, found.parameters), (3, "int a, int b"))

    def test_finds_types(self):
        found = types_of("namespace a { class b; struct alignas(8) c final : d<e> { enum f : int { x }; int y; };"
                         "template <class T> class g<T*> {}; using h = c; using std::i; enum class j : char {}; }")
        self.assertEqual([(each.kind, each.name, each.depth) for each in found],
                         [("struct", "a::c", 0), ("enum", "a::c::f", 1), ("class", "a::g", 0), ("using", "a::h", 0),
                          ("enum class", "a::j", 0)])


class Walks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tree = tree_of(self.folder.name, sender_cpp=SENDER, link_hpp=LINK)

    def steps(self, part, trip=ROUND_TRIP):
        folder = Path(self.folder.name)
        (folder / "round_trip.walk").write_text(trip)
        (folder / "tcp.walk").write_text("[out]\n" + part)
        return walked_files.checked_steps("tcp", self.tree, folder)

    def refused(self, part, message, trip=ROUND_TRIP):
        with self.assertRaisesRegex(Stale, message):
            self.steps(part, trip)

    def test_a_call_into_another_file_and_back_is_two_changes(self):
        walk = Walk(self.steps("    link::deliver\n"))
        self.assertEqual(walk.files, ["src/core/link.hpp", "src/core/sender.cpp"])
        self.assertEqual(walk.changes, 2)

    def test_each_function_is_read_once_or_at_each_call(self):
        steps = self.steps("    link::deliver\n")
        self.assertEqual([Walk(steps).changes, Walk(steps, anew=True).changes], [2, 4])

    def test_a_known_function_is_read_on_where_it_leads_to_a_new_one(self):
        trip = "- a\n    channel::send\n- b\n    channel::send\n        link::deliver\n"
        self.assertEqual(Walk(self.steps("", trip)).changes, 2)

    def test_calls_in_one_file_are_no_changes(self):
        self.assertEqual(Walk(self.steps("    helper\n")).changes, 0)

    def test_the_application_has_no_file(self):
        walk = Walk(self.steps("    - its handler\n        link::deliver\n", "channel::send\n    {out}\n"))
        self.assertEqual((walk.changes, len(walk.functions)), (2, 2))

    def test_the_table_has_each_file_and_section(self):
        table = walked_files.table_of(Walk(self.steps("    link::deliver\n")))
        self.assertIn("| 0 | `core/sender.cpp` | `channel::send` |\n| 1 | `core/link.hpp` | `link::deliver` |\n"
                      "| 2 | `core/sender.cpp` | back in `channel::send` |\n| | | **the server** |\n"
                      "| 2 | `core/sender.cpp` | `channel::send` again |", table)

    def test_refuses_what_the_sources_do_not_have(self):
        self.refused("    link::retract\n", r"tcp.walk:2: no function 'link::retract' with a body")
        self.refused("    link:: deliver\n", "is not a step")

    def test_refuses_a_name_that_two_files_define(self):
        self.tree = tree_of(self.folder.name, other_cpp="namespace accel { void link::deliver(long) { a(); b(); } }")
        self.refused("    link::deliver\n", r"src/core/link.hpp:8, .*src/core/other.cpp:1.*; write more of its name")
        self.assertEqual(Walk(self.steps("    link::deliver in core/link.hpp\n")).changes, 2)
        self.assertEqual(Walk(self.steps("    link::deliver(int n)\n")).files[0], "src/core/link.hpp")

    def test_refuses_a_call_that_its_caller_does_not_make(self):
        self.refused("    helper\n        link::deliver\n", "helper does not name 'deliver'")

    def test_refuses_accessors(self):
        self.refused("    link::deliver\n", "single statement in a header", "link::ready\n")

    def test_refuses_wrong_indentation_and_unknown_parts(self):
        self.refused("   link::deliver\n", "tcp.walk:2: indent by 4")
        self.refused("    link::deliver\n", "indented by more than one call", "channel::send\n        helper\n")
        self.refused("    link::deliver\n", r"no part \[in\]", "channel::send\n    {in}\n")

    def test_two_parts_may_share_their_steps(self):
        steps = self.steps("[in]\n    link::deliver\n", "- all\n    channel::send\n        {in}\n        {out}\n")
        self.assertEqual([each.label for each in Walk(steps).functions], ["channel::send"] + ["link::deliver"] * 2)


class Counts(unittest.TestCase):
    def test_types_come_with_includes_of_includes_but_nested_ones_and_aliases_do_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            poller = '#include "core/link.hpp"\nnamespace accel { class poller {}; }'
            tree = tree_of(folder, link_hpp=LINK, poller_hpp=poller, other_hpp="class other {};",
                           part__use_cpp='#include "core/poller.hpp"\nclass local {};')
            self.assertEqual(walked_files.types_to_know(tree, "src/core/part/"),
                             {"src/core/link.hpp": ["accel::link"], "src/core/poller.hpp": ["accel::poller"]})
            with self.assertRaisesRegex(Stale, "there are no sources"):
                walked_files.types_to_know(tree, "src/core/party")

    def test_keys_are_counted_through_macros(self):
        macros = {"ACCEL_OPTION": " ACCEL_OPTION_OF(a, b)", "ALL": " ACCEL_OPTION_OF(o, x), ACCEL_OPTION_OF(o, y)"}
        self.assertEqual(walked_files.entries_in("ACCEL_OPTION(o, a), ALL(o), ACCEL_OPTION_OF(o, .v, b),", macros), 4)

    def test_the_kernel_of_the_operating_system_is_no_gpu(self):
        for text in ("the kernel's sockets", "kernel_now()", "accel_transport"):
            self.assertIsNone(walked_files.GPU_NAMES.search(text), text)
        for text in ("for kernels", "kernel_host.hpp", "CUDA", "on a GPU", "accelerator.hpp"):
            self.assertIsNotNone(walked_files.GPU_NAMES.search(text), text)


class ThisTree(unittest.TestCase):
    """The lists are those of the sources beside them."""

    def test_the_lists_fit_the_sources(self):
        tree = Tree(walked_files.TOP)
        told = json.loads(walked_files.as_json(tree))
        self.assertTrue(all(number > 0 for number in told["figures"].values()), told["figures"])
        for steps in told["steps"].values():
            self.assertTrue(all((walked_files.TOP / step["file"]).is_file() for step in steps))

    def test_every_source_is_understood(self):
        unbalanced = [file for file, outline in Tree(walked_files.TOP).outlines.items() if outline.scopes]
        self.assertEqual(unbalanced, [])


if __name__ == "__main__":
    unittest.main()
