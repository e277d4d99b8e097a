# SPDX-License-Identifier: Apache-2.0
"""Writes mutants into the sources, so that one build has them all and the environment chooses one."""
import os
import re
from pathlib import Path

from mutation.draw import flat

HEADER = Path(__file__).with_name("accel_mutant.hpp")
PLACE = "tests/mutants/accel_mutant.hpp"  # in the copy of the tree
FORMS = {
    "statement": "{{ if ({chosen}) {new} else {old} }}",
    "row": "{{ if ({chosen}) {{ {new} }} else {{ {old} }} }}",
    "value": "({chosen} ? ({new}) : ({old}))",
    "condition": "({chosen} ? bool({new}) : bool({old}))",
    "loop": "({chosen} ? bool({new}) : bool({old}))",
    "built": "{new}",
    "step": "({chosen} ? void({new}) : void({old}))",
}


def changed(text, mutant):
    """What a mutant makes of its part of the source."""
    begin, end = mutant.span
    return flat(text[begin:mutant.start]) + mutant.new + flat(text[mutant.end:end])


def applied(text, mutant):
    """The source with this mutant alone, as somebody would have written it."""
    return text[:mutant.start] + mutant.new + text[mutant.end:]


def written(file, text, mutants):
    """The source with all these mutants. Lines stay where they are, also for the compiler."""
    for each in sorted(mutants, key=lambda mutant: -mutant.span[0]):
        begin, end = each.span
        both = FORMS[each.kind].format(chosen=f"accel_mutant({each.number})", new=changed(text, each),
                                       old=text[begin:end])
        text = text[:begin] + both + text[end:]
    header = os.path.relpath(PLACE, Path(file).parent)
    return f'#include "{header}"\n#line 1\n{text}' if mutants else text


def write_file(path, text):
    """Only a file that differs is written, so that only that is built again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Sources:
    """The sources of the copy, which get mutants from the checkout's."""

    def __init__(self, top, tree):
        self.top, self.tree = Path(top), Path(tree)
        write_file(self.tree / PLACE, HEADER.read_text(encoding="utf-8"))

    def text(self, file):
        return (self.top / file).read_text(encoding="utf-8")

    def write(self, file, mutants):
        write_file(self.tree / file, written(file, self.text(file), [each for each in mutants if each.file == file]))

    def lines_of(self, mutant):
        """The first and the last line of its region."""
        text = self.text(mutant.file)
        return text.count("\n", 0, mutant.span[0]) + 1, text.count("\n", 0, mutant.span[1]) + 1


PLACES = re.compile(r"(?:^|from |In file included from )([\w./+-]+\.(?:hpp|cpp|cuh|cu)):(\d+)(?::\d+)?"
                    r"(?P<error>: (?:fatal )?error)?", re.M)


def to_blame(output, mutants, sources, folder):
    """The mutant that a compiler complains of: that in the line of the first error, else in a line that it names."""
    places = [(place_of(found[1], sources.tree, folder), int(found[2]), bool(found["error"]))
              for found in PLACES.finditer(output)]
    for only_errors in (True, False):
        for file, line, is_error in places:
            if only_errors and not is_error:
                continue
            for each in mutants:
                first, last = sources.lines_of(each) if each.file == file else (0, -1)
                if first <= line <= last:
                    return each
    return None


def place_of(name, tree, folder):
    """A path in a compiler's output, from the top of the tree."""
    path = Path(os.path.normpath(Path(folder) / name))
    return str(path.relative_to(tree)) if path.is_relative_to(tree) else str(path)
