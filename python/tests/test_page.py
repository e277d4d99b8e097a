# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import textwrap
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"


def test_programs_of_the_page_run() -> None:
    blocking, in_loop = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(blocking, names)
    assert list(names["np"].from_dlpack(names["answer"].tensor(0))) == [0, 2, 4, 6]  # type: ignore[attr-defined]
    exec("import asyncio\nasync def main():\n" + textwrap.indent(in_loop, "    ") + "    return answer\n", names)
    exec("answer = asyncio.run(main())", names)
    assert list(names["np"].from_dlpack(names["answer"].tensor(0))) == [0, 2, 4, 6]  # type: ignore[attr-defined]
