from __future__ import annotations

import pytest

from perseid.errors.headline import LINE_MAX, headline

SPARK = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/encode.py", line 1, in column
    raise ArrowTypeError("no")
pyarrow.lib.ArrowTypeError: Expected bytes, got a 'decimal.Decimal' object

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/worker.py", line 7, in run
RuntimeError: column amount of the sink cannot be written
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SPARK, "RuntimeError: column amount of the sink cannot be written"),
        (SPARK.partition("\n\n")[0],
         "pyarrow.lib.ArrowTypeError: Expected bytes, got a 'decimal.Decimal' object"),
        ("\n  \nthe broker is away\nmore", "the broker is away"),
        ("Traceback (most recent call last):\n  File 'x'\nsomething", "Traceback (most recent call "
         "last):"),
        ("", "no reason given"),
        ("x" * 10_000, "x" * LINE_MAX),
    ],
)  # fmt: skip
def test_the_line_with_the_cause(text: str, line: str) -> None:
    assert headline(text) == line
