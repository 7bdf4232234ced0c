"""What the unit ring shares: the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from perseid.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command line that ends with `code`; its output, or with --json its document."""

    def run_(*arguments: str, code: int = 0) -> Any:
        found = main.run(list(arguments))
        out = capsys.readouterr()
        assert found == code, out
        return json.loads(out.out) if "--json" in arguments else out.out + out.err

    return run_
