# SPDX-License-Identifier: Apache-2.0
"""Checks the reports that check.sh made: check_json.py FOLDER"""
import json
import sys
import xml.etree.ElementTree
from pathlib import Path

STAGES = {"request", "queue", "copy", "preprocessing", "inference", "response"}


def check_demo(demo, usable, unavailable):
    assert demo.keys() == {"results", "unavailable"}, demo.keys()
    runs = [(r["scheme"], r["input"]) for r in demo["results"]]
    assert sorted(runs) == sorted((s, i) for s in usable for i in ("raw", "tensor")), runs
    assert {u["scheme"] for u in demo["unavailable"]} == unavailable
    for row in demo["results"]:
        assert row.keys() == {"scheme", "input", "clients", "requests", "correct", "p50_us", "p99_us", "rate_per_s",
                              "stages_us", "cpu_us_per_request"}, row.keys()
        assert row["clients"] == 4 and row["requests"] == 1000 and row["correct"] >= 970, row
        assert row["stages_us"].keys() == STAGES, row
        assert 0 < row["p50_us"] <= row["p99_us"] and row["rate_per_s"] > 0 and row["cpu_us_per_request"] > 0, row
        assert row["stages_us"]["inference"] > 0, row
        assert (row["stages_us"]["preprocessing"] > 0) == (row["input"] == "raw"), row


def check_perf(perf):
    for row in perf["results"]:
        assert row.keys() >= {"scheme", "size_bytes", "depth", "count", "p50_us", "p99_us", "rate_per_s",
                              "gbytes_per_s", "cpu_us_per_op"}, row.keys()
        assert row["count"] == 500 and 0 < row["p50_us"] <= row["p99_us"] <= row["max_us"], row
    sizes = [(r["scheme"], r["size_bytes"]) for r in perf["results"]]
    assert sizes == [(s, b) for s in ("local", "tcp", "zmq") for b in (64, 4096)], sizes


def main():
    folder = Path(sys.argv[1])
    demo, perf, doctor = (json.loads((folder / f"{name}.json").read_text()) for name in ("demo", "perf", "doctor"))
    usable = {s["scheme"] for s in doctor["schemes"] if s["usable"]}
    assert {"local", "tcp", "zmq"} <= usable, usable
    check_demo(demo, usable, {s["scheme"] for s in doctor["schemes"]} - usable)
    check_perf(perf)
    xml.etree.ElementTree.parse(folder / "demo.svg")
    print(f"{len(demo['results'])} runs of the demo and {len(perf['results'])} of accel_perf are as they should be")


if __name__ == "__main__":
    main()
