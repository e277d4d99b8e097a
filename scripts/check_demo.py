#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what `./run demo --json FILE` wrote: check_demo.py FILE [--softnic]. Every usable scheme answered everything,
well enough; run on softnic, the schemes that need an RDMA device as well, and they say that it is emulated."""
import json
import sys

FIELDS = {"scheme", "input", "memory", "clients", "requests", "correct", "p50_us", "p99_us", "rate_per_s", "stages_us"}
ALWAYS_USABLE = {"local", "shm", "zmq", "tcp"}
ON_SOFTNIC = {"rdma"}
LEAST_CORRECT = 0.97


def offences(report, on_softnic):
    seen = set()
    for row in report["results"]:
        name = f"{row['scheme']} {row['input']}"
        seen.add((row["scheme"], row["input"]))
        if FIELDS - row.keys():
            yield f"{name}: without {', '.join(sorted(FIELDS - row.keys()))}"
            continue
        if row["correct"] < LEAST_CORRECT * row["requests"] or row["requests"] < 1000:
            yield f"{name}: {row['correct']} right of {row['requests']}"
        if row["memory"] != report["memory"]:
            yield f"{name}: on {row['memory']}, not {report['memory']}"
        if not 0 < row["p50_us"] <= row["p99_us"]:
            yield f"{name}: p50 {row['p50_us']} us, p99 {row['p99_us']} us"
        if row["scheme"] == "gdr" and row["stages_us"]["copy"] != 0:
            yield f"{name}: {row['stages_us']['copy']} us of copies, where there are none"
    needed = ALWAYS_USABLE | (ON_SOFTNIC if on_softnic else set())
    if on_softnic and report["memory"] != "host":
        needed = needed | {"gdr"}
    for scheme in needed:
        for kind in ("raw", "tensor"):
            if (scheme, kind) not in seen:
                yield f"{scheme} {kind}: not served"
    for row in report["served"]:
        if on_softnic and row["scheme"] in ON_SOFTNIC and "emulated" not in row["reason"]:
            yield f"{row['scheme']}: does not say that its device is emulated"
    for row in report["unavailable"]:
        if not row["reason"]:
            yield f"{row['scheme']}: unavailable without a reason"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        found = list(offences(json.load(file), "--softnic" in sys.argv[2:]))
    print("\n".join(found) if found else "the report is complete")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
