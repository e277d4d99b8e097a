#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the rules of layering that a compiler does not: who may include what, and what no file may contain.

    check_sources.py [FOLDER]     prints one line for each offence; exit status 1 if there was any
"""
import re
import sys
from pathlib import Path

from add_spdx import lacks_licence

CODE = {".hpp", ".cpp", ".cuh", ".cu"}
TEXT = CODE | {".h", ".def", ".py", ".sh", ".cmake", ".txt", ".md", ".json", ".in", ".yml", ".supp", ".map", ""}
NOT_OURS = {".git", ".deps", "build", "__pycache__", ".hypothesis"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"[a-z_0-9]+")
CUDA = re.compile(r"cuda|cooperative_groups|cub/|thrust/|nv/")
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
PUBLIC_TYPE = re.compile(r"(class|struct|enum class)\b[^;]*\{")
TEST_NAME = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)", re.MULTILINE)
SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]*")
MAX_COLUMNS = 120
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|home|root)/\w")


def is_of_kernels(name):
    """Whether an include names a header of the kernels' house."""
    return re.match(r"(bench/)?kernels/|accel_transport/(device/|gpu_)", name) is not None


def house_of(path):
    """The house that a source, a test or a benchmark belongs to; None: it is around them (tools, small examples)."""
    parts = path.parts
    if parts[0] in {"tests", "bench"} and parts[1] in {"transport", "kernels", "serving"}:
        return parts[1]
    if parts[:2] == ("tools", "softnic"):
        return "softnic"
    if parts[:2] in {("examples", "serving"), ("examples", "torch")}:
        return "serving"
    if parts[0] == "python":
        return "python"
    if parts[:2] == ("src", "kernels") or (parts[0] == "include" and is_of_kernels("/".join(parts[1:]))):
        return "kernels"
    return "transport" if parts[0] in {"src", "include"} else None


def device_header(path):
    """The header by which tests ask softnic for faults, and benchmarks drive it; its functions are weak."""
    return "softnic/softnic.h" if path.parts[0] in {"tests", "bench"} else None


def wall_offence(path, name):
    """Transport uses no other house; kernels use transport; softnic uses none; serving and the Python module use
    public headers. The same holds for a house's tests and benchmarks, which may also include softnic's header."""
    house = house_of(path)
    if house == "transport" and is_of_kernels(name):
        return "the transport knows nothing of kernels"
    if house == "transport" and name.startswith("digits/"):
        return "the transport knows no models"
    if house == "softnic" and re.match("accel_transport/|core/|backends/|verbs/|kernels/", name):
        return "softnic uses nothing of the library"
    if house == "serving" and re.match("core/|backends/|verbs/|cuda/|kernels/", name):
        return "serving stands on the public headers alone"
    if house == "python" and re.match("core/|backends/|verbs/|cuda/|kernels/|staging/", name):
        return "the Python module stands on the public headers alone"
    above = re.match("(bench/)?serving/|softnic/", name) and name != device_header(path)
    if house in {"transport", "kernels"} and above:
        return "the library knows neither softnic nor what serves with it"
    return None


def include_offence(path, bracket, name):
    """Why `path` (relative to the top) may not include `name`, or None."""
    parts = path.parts
    public = parts[0] == "include"
    own_backend = parts[2] if parts[:2] == ("src", "backends") else None

    if public and not name.startswith("accel_transport/"):
        device_header = path.suffix == ".cuh" and CUDA.match(name)
        of_asio = path.name == "asio.hpp" and re.match(r"(boost/)?asio/", name)
        if bracket == '"' or not (STANDARD.fullmatch(name) or device_header or of_asio):
            return "a public header includes only <accel_transport/...> and the standard library"
    if name == "accel_transport/coro/asio.hpp" and public:
        return "no other public header includes this one: most programs have no Asio"
    if name.startswith("accel_transport/") and bracket == '"':
        return "public headers are included with angle brackets"
    bare_subject = parts[0] == "bench" and path.name.startswith(("bare_verbs", "verbs_"))
    of_verbs = parts[:2] in {("src", "verbs"), ("tools", "softnic")} or parts[:3] == ("src", "kernels", "queues")
    in_front_of_it = path.as_posix() == "tests/transport/faults/failing_libraries.cpp"
    if name.startswith("infiniband/") and not bare_subject and not of_verbs and not in_front_of_it:
        return "only src/verbs and src/kernels/queues include libibverbs"
    if name.startswith("spdlog/") and path.as_posix() != "src/core/log_stderr.cpp":
        return "only src/core/log_stderr.cpp includes spdlog; lines are logged by core/log.hpp"
    if path.suffix == ".hpp" and CUDA.match(name):
        return "a .hpp never includes CUDA; a .cuh may"
    if parts[0] == "src" and CUDA.match(name) and bracket == "<" and parts[1] not in {"cuda", "kernels"}:
        return "only src/cuda and src/kernels include CUDA"
    if name.startswith("backends/") and parts[0] in {"src", "include"}:
        if own_backend is None and path.as_posix() != "src/core/registry.cpp":
            return "only src/core/registry.cpp names backends"
        if own_backend is not None and name.split("/")[1] != own_backend:
            return "backends never include each other"
    if offence := wall_offence(path, name):
        return offence
    if parts[0] == "examples" and re.match("core/|backends/|verbs/|kernels/", name):
        return "examples stand on the public headers alone"
    if path.name.endswith("datapath.cpp") and re.match("mutex$|shared_mutex$|core/log.hpp$", name):
        return "a data path neither locks nor logs"
    return None


def too_long(path, line):
    """A row of a Markdown table, a string of JSON and an address cannot be broken; fuzzing corpora are bytes."""
    if len(line) <= MAX_COLUMNS or path.suffix == ".json" or (path.suffix == ".md" and line.startswith("|")):
        return False
    if "corpus" in path.parts:
        return False
    return "://" not in line


def names_of_tests(path, text):
    """Yields the line of each test whose suite or name is not in snake_case."""
    for test in TEST_NAME.finditer(text) if path.suffix in CODE else ():
        if not all(SNAKE_CASE.fullmatch(name) for name in test.groups()):
            yield text.count("\n", 0, test.start()) + 1


def offences_in(path, text):
    for number in names_of_tests(path, text):
        yield number, "names of a test and its suite are in snake_case"
    if lacks_licence(path, text):
        yield 1, "a source file begins with the SPDX line; scripts/add_spdx.py adds it"
    if path.suffix in {".hpp", ".cuh"} and "#pragma once" not in text:
        yield 1, "a header begins with #pragma once"
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if path.parts[0] == "include" and PUBLIC_TYPE.match(line) and not before.startswith("///"):
            yield number, "a public type has a /// comment"
        if not line.startswith("template"):
            before = line
        include = INCLUDE.match(line) if path.suffix in CODE else None
        if include and (reason := include_offence(path, *include.groups())):
            yield number, f"{reason}: {include.group(2)}"
        if too_long(path, line):
            yield number, f"a line of more than {MAX_COLUMNS} columns"
        if LEFTOVER.search(line):
            yield number, "a leftover: do it, or write an issue"
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"


def offences(top):
    for file in sorted(top.rglob("*")):
        path = file.relative_to(top)
        if NOT_OURS & set(path.parts) or file.suffix not in TEXT or not file.is_file():
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, reason in offences_in(path, text):
            yield f"{path}:{number}: {reason}"


def main():
    top = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(offences(top))
    print("\n".join(found) if found else "no offence")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
