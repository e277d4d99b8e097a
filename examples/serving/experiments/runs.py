# SPDX-License-Identifier: Apache-2.0
"""`run.json` of a folder of results: when, where and how its rows were measured."""
import json
from dataclasses import dataclass

from matrix import Machine
from results import Malformed


@dataclass(frozen=True)
class Run:
    """`id` is the column `run` of its rows."""
    id: str
    date: str
    command: str
    quick: bool
    machine: Machine

    def document(self):
        return {"id": self.id, "date": self.date, "command": self.command, "quick": self.quick,
                "machine": self.machine.document()}

    @staticmethod
    def of(document):
        return Run(document["id"], document["date"], document["command"], bool(document["quick"]),
                   Machine.of(document["machine"]))


class Runs:
    """In their order."""
    def __init__(self, folder):
        self.path = folder / "run.json"
        self.all = []
        if self.path.exists():
            try:
                self.all = [Run.of(each) for each in json.loads(self.path.read_text(encoding="utf-8"))["runs"]]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise Malformed(f"{self.path.name}: not what the experiments write: give another folder with --out") \
                    from error

    def add(self, date, command, quick, machine):
        run = Run(str(len(self.all) + 1), date, command, quick, machine)
        self.all.append(run)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({"runs": [each.document() for each in self.all]}, indent=1) + "\n",
                           encoding="utf-8")
        partial.replace(self.path)
        return run

    def of_rows(self, rows):
        """The runs that these rows come from, in their order."""
        wanted = {row["run"] for row in rows}
        return [run for run in self.all if run.id in wanted]
