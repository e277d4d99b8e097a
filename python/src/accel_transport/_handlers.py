# SPDX-License-Identifier: Apache-2.0
"""Which kind of handler a function is."""

from __future__ import annotations

import asyncio
import inspect


def _call_of(handler: object) -> object:
    return getattr(handler, "__call__", None)  # noqa: B004


def is_generator(handler: object) -> bool:
    return inspect.isgeneratorfunction(handler) or inspect.isgeneratorfunction(_call_of(handler))


def is_async_generator(handler: object) -> bool:
    return inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(_call_of(handler))


def is_async(handler: object) -> bool:
    call = _call_of(handler)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call) or is_async_generator(handler)


def this_task_was_cancelled() -> bool:
    """Whether a CancelledError is of the current task, not of one for which it has waited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
