# SPDX-License-Identifier: Apache-2.0
"""What became of random mutants: by house and file, with a sentence for each that no test noticed."""
import tomllib
from pathlib import Path

from mutation.operators import SENTENCES

EQUIVALENT = "tests/equivalent_mutants.toml"
FIELDS = {"file", "line", "old", "new", "why"}
ORDER = ("noticed", "survived", "no test runs it", "not run", "equivalent")


def load_equivalent(path):
    """What a person has marked, and sentences about what is wrong there."""
    if not Path(path).is_file():
        return {}, []
    entries = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("equivalent", [])
    problems = [f"{EQUIVALENT}: an entry has not the fields {', '.join(sorted(FIELDS))}: {entry}"
                for entry in entries if set(entry) != FIELDS or not entry["why"].endswith(".")]
    return {key_of(entry): entry["why"] for entry in entries if not problems}, problems


def key_of(entry):
    """Not the number of the line, which moves."""
    return entry["file"], entry["line"], entry["old"], entry["new"]


def check_equivalent(top):
    """Sentences about entries that fit no line any more."""
    marked, problems = load_equivalent(Path(top) / EQUIVALENT)
    for file, line, old, _new in marked:
        path = Path(top) / file
        lines = [each.strip() for each in path.read_text(encoding="utf-8").split("\n")] if path.is_file() else []
        if line not in lines:
            problems.append(f"{EQUIVALENT}: {file} has no line '{line}'")
    return problems


def reason(mutant, marked):
    """Why nobody can notice it; nothing if no person has said so."""
    return marked.get((mutant.file, mutant.shown, mutant.old, mutant.new), "")


def row_of(mutant, result, marked):
    """A mutant with its result."""
    outcome = (result or {}).get("outcome", "not run")
    if reason(mutant, marked) and outcome != "noticed":
        outcome = "equivalent"
    return {**(result or {}), "number": mutant.number, "house": mutant.house, "file": mutant.file,
            "line": mutant.line, "operator": mutant.operator, "old": mutant.old, "new": mutant.new,
            "shown": mutant.shown, "outcome": outcome, "why": reason(mutant, marked)}


def count(rows, by):
    """How many of each outcome, for each value of this field."""
    counts = {}
    for row in rows:
        of = counts.setdefault(row[by], dict.fromkeys(ORDER, 0))
        of[row["outcome"]] += 1
    return counts


def share(counts):
    """Percent noticed of those that ran and are not equivalent."""
    ran = counts["noticed"] + counts["survived"] + counts["no test runs it"]
    return f"{100 * counts['noticed'] / ran:.0f} %" if ran else "-"


def table(rows, by):
    counts = count(rows, by)
    width = max(map(len, [by, *counts]))
    yield f"{by:{width}}  " + "  ".join(f"{each:>{len(each)}}" for each in ORDER) + "  share"
    for name, of in sorted(counts.items()):
        yield f"{name:{width}}  " + "  ".join(f"{of[each]:>{len(each)}}" for each in ORDER) + f"  {share(of):>5}"


def sentence(row):
    """Of a mutant that nobody noticed."""
    if row["outcome"] == "no test runs it":
        return f"{SENTENCES[row['operator']]} No test runs this line."
    ran = f"the {row['tests']} tests that run" if row["ran"] == row["tests"] else \
        f"{row['ran']} of {row['tests']} tests (its time was up) that run"
    return f"{SENTENCES[row['operator']]} None of {ran} this line fails."


def survivors(rows):
    for row in rows:
        if row["outcome"] in {"survived", "no test runs it"}:
            yield f"{row['file']}:{row['line']}  {row['operator']}  (mutant {row['number']})"
            yield f"    {row['shown']}"
            yield f"    {row['old']}  ->  {row['new'] or '(nothing)'}"
            yield f"    {sentence(row)}"


def text(rows):
    parts = [table(rows, "house"), table(rows, "file"), survivors(rows)]
    return "\n\n".join("\n".join(part) for part in parts)
