"""The line of an error's text that states the cause. Pure.

Spark's text about a failed task begins with its own internals; the cause is the last line of a
Python traceback.
"""

from __future__ import annotations

import re

LINE_MAX = 500  # characters; the whole text is in the logs
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)\b(?!: *$)")


def headline(text: str) -> str:
    r"""Of a Python traceback the line with the exception, else the first non-empty line.

    >>> headline("PythonException: of:\nTraceback (most recent call last):\nArrowTypeError: no")
    'ArrowTypeError: no'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    begins = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    raised = [line for line in lines[begins[-1] + 1 :] if _RAISED.match(line)] if begins else []
    return (raised or lines)[0][:LINE_MAX]
