#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a reader of the library goes through: files along a round trip, types to know, and the like.

    walked_files.py                  prints all figures
    walked_files.py --table tcp      the round trip over tcp, or rdma, as a table in Markdown
    walked_files.py --types FOLDER   how many types one has to know to change FOLDER; with --list their names
    walked_files.py --json           the figures for programs, and every step with its file

It reads sources: nothing is built or run. bench/transport/crossed_files.sh counts lines that run instead.

Steps. bench/walks/round_trip.walk lists the functions that run in one round trip, in order, indented by depth of call;
tcp.walk and rdma.walk have the parts that differ. People write the lists by reading the code:
  - A step is a function of the library with a body. A single statement in a header that leads to no other step
    (`slots()`, `has_room()`) is not a step: its declaration says it all.
  - A function in its caller's file that leads to no other file may be left out: it changes no figure.
  - Branches that are not taken are left out, and so is the last look of a loop. The application, the operating system
    and the standard library have no files here.
A step is a name, as long as it has to be to be the only one: `channel_core::poll`. `name(text)` is the overload whose
parameters contain the text, `name in FILE` the definition in that file. `- text` is outside the library. `{part}`
stands for the steps after `[part]` in the transport's list. It is an error if a step is not found or found in two
files, if its caller does not name it, or if it is not a step: read the code, and write that part of the list anew.

Files: those that define steps; a header and its source are two files.
Changes of file: from one step to the next in another file. A return to the caller's file is a change, too: a call into
another file and back is two. Between two calls of the application the reader stays in the last file. Each function is
read once: the reader does not go to one that is called again, unless it now leads to one that is new. A second figure
is for a reader who goes there at each call.

Types: classes, structs, unions and enumerations at the scope of a namespace, in all headers of the project that the
folder's files include, themselves or through others; the folder's own headers as well. Nested types and aliases are not
counted, and a template counts once. Public types are those in the umbrella's headers, without namespaces `detail`.
"""
import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from cpp_outline import Tree

TOP = Path(__file__).resolve().parent.parent
WALKS = Path(__file__).resolve().parent / "walks"
TRANSPORTS = ("tcp", "rdma")
INDENT = 4
REWRITE = "read the code, and write this part of the list anew"

STEP = re.compile(r"(?P<name>[\w:~]+)(?:\((?P<parameters>.*)\))?(?:\s+in\s+(?P<file>\S+))?")
UMBRELLA = "include/accel_transport/accel_transport.hpp"
# What names GPUs or CUDA kernels, in code and comments. In the core "the kernel" is the operating system's; "kernels",
# and names that begin so, are those of CUDA.
GPU_NAMES = re.compile(r"gpu|cuda|accelerator|kernels"
                       r"|kernel_(?:backend|client|connection|engine|host|options|reports|service|sums)", re.I)
OPTION_ENTRY = re.compile(r"\bACCEL_OPTION(?:_OF)?\(")
OPTION_KEYS = re.compile(r"std::array (\w+)_keys\{\n(.*?)\n\};", re.S)
MACRO = re.compile(r"#define (\w+)\([^)]*\)((?:[^\n]*\\\n)*[^\n]*)")


class Stale(Exception):
    """A list does not fit the sources."""


@dataclass
class Step:
    """A line of a list, and the steps that it leads to."""
    text: str
    place: str  # of the line
    depth: int
    found: list = field(default_factory=list)  # its definition; several: overloads
    steps: list = field(default_factory=list)

    @property
    def outside(self):
        return self.text.startswith("- ")

    @property
    def definition(self):
        return self.found[0]

    @property
    def file(self):
        return self.definition.file

    @property
    def label(self):
        return STEP.fullmatch(self.text)["name"]

    @property
    def short_name(self):
        return self.label.split("::")[-1]

    @property
    def all(self):
        return [self] + [each for step in self.steps for each in step.all]


# Reading lists.

def lines_of(path):
    """Yields the place, depth and text of each line that says something."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        depth, rest = divmod(len(line) - len(line.lstrip()), INDENT)
        if rest:
            raise Stale(f"{path.name}:{number}: indent by {INDENT} for each call")
        yield f"{path.name}:{number}", depth, text


def parts_in(path):
    """The parts of a transport's list by name: (place, depth, text) of their lines."""
    parts, names, begun = {}, [], False
    for place, depth, text in lines_of(path):
        if depth == 0 and text.startswith("["):
            names = [] if begun else names
            names.append(text[1:-1])
            parts[text[1:-1]] = []
        elif not names:
            raise Stale(f"{place}: '{text}' is in no part; begin one with [its name]")
        for name in names if depth else ():
            parts[name].append((place, depth - 1, text))
        begun = depth > 0
    return parts


def with_parts(lines, parts):
    """The lines with the parts in place of their names."""
    for place, depth, text in lines:
        if not text.startswith("{"):
            yield place, depth, text
            continue
        if text[1:-1] not in parts:
            raise Stale(f"{place}: the transport's list has no part [{text[1:-1]}]")
        yield from ((where, depth + more, step) for where, more, step in parts[text[1:-1]])


def read_walk(transport, folder=WALKS):
    """The first steps of a transport's round trip."""
    root = Step("- all", "", -1)
    path = [root]
    for place, depth, text in with_parts(lines_of(folder / "round_trip.walk"), parts_in(folder / f"{transport}.walk")):
        if depth >= len(path):
            raise Stale(f"{place}: '{text}' is indented by more than one call")
        del path[depth + 1:]
        step = Step(text, place, depth)
        path[-1].steps.append(step)
        path.append(step)
    return root.steps


# Comparing them with the sources.

class Finder:
    """Definitions by their names."""

    def __init__(self, tree):
        self.by_name = {}
        for each in tree.functions:
            self.by_name.setdefault(each.name.split("::")[-1], []).append(each)

    def definitions(self, step):
        """The definition that a step names; several are overloads in one file."""
        named = STEP.fullmatch(step.text)
        if not named:
            raise Stale(f"{step.place}: '{step.text}' is not a step: name, name(parameters) or name in FILE")
        found = [each for each in self.by_name.get(step.short_name, []) if self.fits(each, named)]
        if not found:
            raise Stale(f"{step.place}: no function '{step.text}' with a body was found; {REWRITE}")
        if len({each.file for each in found}) > 1:
            places = ", ".join(f"{each.name} in {each.file}:{each.line}" for each in found)
            raise Stale(f"{step.place}: '{step.text}' may be {places}; write more of its name, or 'NAME in FILE'")
        return found

    @staticmethod
    def fits(function, named):
        file = f"/{named['file']}" if named["file"] else ""
        return (f"::{function.name}".endswith(f"::{named['name']}") and f"/{function.file}".endswith(file)
                and (named["parameters"] or "") in function.parameters)


def check(step, caller, finder):
    """Finds what the steps from here on name, and compares each with its caller."""
    if not step.outside:
        step.found = finder.definitions(step)
        if caller and not any(each.names(step.short_name) for each in caller.found):
            raise Stale(f"{step.place}: {caller.label} does not name '{step.short_name}'; {REWRITE}")
    for each in step.steps:
        check(each, None if step.outside else step, finder)
    if not step.outside and not step.steps and is_obvious(step.found):
        raise Stale(f"{step.place}: '{step.text}' is a single statement in a header that leads to no other step; take "
                    "it out of the list")


def is_obvious(found):
    return all(each.statements <= 1 and Path(each.file).suffix in (".hpp", ".cuh") for each in found)


# Walking.

@dataclass
class Stay:
    """What is read in one file before the reader goes to another, or the walk comes to its next section."""
    file: str
    number: int  # of the change of file that led here
    captions: list
    back_in: str
    read: list = field(default_factory=list)


class Walk:
    """A round trip as a reader's stays in files, one after another. `anew`: a function is read at each call."""

    def __init__(self, first_steps, anew=False):
        self.steps, self.anew = first_steps, anew
        self.stays, self.captions, self.known = [], [], set()
        for step in first_steps:
            self.follow(step)

    def follow(self, step):
        if step.outside:
            self.captions.append(step.text[2:])
        elif self.knows(step):
            return self.stay_in(self.stays[-1].file).read.append(f"`{step.label}` again")
        else:
            self.known.add(step.definition)
            self.stay_in(step.file).read.append(f"`{step.label}`")
        for each in step.steps:
            self.follow(each)
            if not step.outside:
                self.stay_in(step.file, step.label)

    def knows(self, step):
        """Whether all that the call leads to has been read."""
        return not self.anew and all(each.outside or each.definition in self.known for each in step.all)

    def stay_in(self, file, back_in=""):
        moves = not self.stays or self.stays[-1].file != file
        if moves or self.captions:
            number = self.changes + moves if self.stays else 0
            self.stays.append(Stay(file, number, self.captions, back_in))
            self.captions = []
        return self.stays[-1]

    @property
    def functions(self):
        return [each for step in self.steps for each in step.all if not each.outside]

    @property
    def files(self):
        return sorted({each.file for each in self.stays})

    @property
    def changes(self):
        return self.stays[-1].number


def checked_steps(transport, tree, folder=WALKS):
    """The first steps of a round trip that is as the sources have it."""
    steps = read_walk(transport, folder)
    finder = Finder(tree)
    for step in steps:
        check(step, None, finder)
    return steps


def short_file(file):
    return re.sub(r"^(src|include/accel_transport)/", "", file)


def table_of(walk):
    """The walk in Markdown, a line for each stay in a file."""
    rows = ["| change | file | what is read there |", "| ---: | --- | --- |"]
    for stay in walk.stays:
        rows += [f"| | | **{caption}** |" for caption in stay.captions]
        read = [f"back in `{stay.back_in}`"] * bool(stay.back_in) + list(dict.fromkeys(stay.read))
        rows.append(f"| {stay.number} | `{short_file(stay.file)}` | {', '.join(read)} |")
    return "\n".join(rows)


# Types, and what else is counted.

def reached_from(tree, files):
    """These files and the headers of the project that they include, themselves or through others."""
    reached, rest = set(files), list(files)
    while rest:
        new = set(tree.includes_of(rest.pop())) - reached
        reached |= new
        rest += new
    return reached


def types_by_header(tree, files):
    """The names of the types that each header defines at the scope of a namespace."""
    names = {}
    for file in sorted(files):
        found = {each.name for each in tree.types_in(file) if each.depth == 0 and each.kind != "using"}
        if found and Path(file).suffix in (".hpp", ".cuh"):
            names[file] = sorted(found)
    return names


def types_to_know(tree, folder):
    prefix = folder.rstrip("/") + "/"
    own = [file for file in tree.files if file.startswith(prefix)]
    if not own:
        raise Stale(f"{folder}: there are no sources; name a folder from the top of the tree, such as src/backends/tcp")
    return types_by_header(tree, reached_from(tree, own))


def amount(names):
    return len({each for header in names.values() for each in header})


def public_headers(tree):
    """The headers that the umbrella includes, itself or through others."""
    if UMBRELLA not in tree.files:
        raise Stale(f"{UMBRELLA} is not there; name the header that includes all others in UMBRELLA")
    return reached_from(tree, [UMBRELLA]) - {UMBRELLA}


def public_types(tree):
    """Those of a user: names of `detail` namespaces are not promised."""
    names = types_by_header(tree, public_headers(tree))
    return {file: kept for file, each in names.items() if (kept := [name for name in each if "::detail::" not in name])}


def sources_that_name_gpus(tree):
    return [file for file in tree.files if file.startswith("src/core/") and GPU_NAMES.search(tree.text(file))]


def entries_in(text, macros):
    """How many options a list of keys names, itself and by macros."""
    by_macros = sum(len(OPTION_ENTRY.findall(macros[name])) for name in re.findall(r"\w+", text)
                    if name in macros and not OPTION_ENTRY.match(f"{name}("))
    return by_macros + len(OPTION_ENTRY.findall(text))


def option_keys(tree):
    """How many keys the URIs of each end have: {"channel": …, "server": …}."""
    counted = {}
    for file in tree.files:
        text = tree.text(file)
        for name, keys in OPTION_KEYS.findall(text):
            counted[name] = entries_in(keys, dict(MACRO.findall(text)))
    if not counted:
        raise Stale("no list `std::array …_keys` of the keys of URIs was found; name it in OPTION_KEYS")
    return counted


def figures(tree, folder=WALKS):
    """All figures, by what they count."""
    found = {}
    for transport in TRANSPORTS:
        steps = checked_steps(transport, tree, folder)
        found[f"files that a round trip over {transport} walks through"] = len(Walk(steps).files)
        found[f"changes of file on the way over {transport}"] = Walk(steps).changes
        found[f"the same over {transport}, reading a function at each call"] = Walk(steps, anew=True).changes
    found["types to know for a change of src/backends/tcp"] = amount(types_to_know(tree, "src/backends/tcp"))
    found["sources of src/core that name GPUs or CUDA kernels"] = len(sources_that_name_gpus(tree))
    found["sources of src/core"] = sum(file.startswith("src/core/") for file in tree.files)
    found["lines of include and src"] = sum(tree.text(file).count("\n") for file in tree.files)
    found["public headers that the umbrella includes"] = len(public_headers(tree))
    found["public types in them"] = amount(public_types(tree))
    found |= {f"keys of {name} URIs": count for name, count in option_keys(tree).items()}
    return found


# Printing.

def as_json(tree, folder=WALKS):
    walks = {transport: Walk(checked_steps(transport, tree, folder)) for transport in TRANSPORTS}
    return json.dumps({"figures": figures(tree, folder),
                       "files": {transport: walk.files for transport, walk in walks.items()},
                       "steps": {transport: steps_of(walk) for transport, walk in walks.items()}}, indent=1)


def steps_of(walk):
    return [{"function": each.definition.name, "file": each.file, "line": each.definition.line, "depth": each.depth}
            for each in walk.functions]


def print_types(tree, folder, with_names):
    names = types_to_know(tree, folder)
    for file, each in names.items() if with_names else ():
        print(f"{short_file(file)}: {', '.join(name.removeprefix('accel::') for name in each)}")
    print(f"{amount(names)} types in {len(names)} headers")


def print_figures(tree):
    for name, number in figures(tree).items():
        print(f"{number:>7,}  {name}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TRANSPORTS)
    parser.add_argument("--types", metavar="FOLDER")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    tree = Tree(TOP)
    try:
        if options.table:
            print(table_of(Walk(checked_steps(options.table, tree))))
        elif options.types:
            print_types(tree, options.types, options.list)
        else:
            print(as_json(tree)) if options.json else print_figures(tree)
    except Stale as error:
        print(f"walked_files: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
