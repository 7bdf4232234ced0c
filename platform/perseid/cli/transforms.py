"""Functions of the user that correct dead letters: `module:function` or `FILE.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from perseid.cli.dead_letters import Letter
from perseid.errors import PermanentError, UsageError

Transform = Callable[[Letter], Any]


def load(text: str) -> Transform:
    """The function that `text` names; UsageError when there is none."""
    module, _, name = text.rpartition(":")
    if not module or not name.isidentifier():
        raise UsageError(
            f"--transform {text[:80]!r}: expected FILE.py:FUNCTION or MODULE:FUNCTION, such as "
            "fix.py:corrected"
        )
    if module.endswith(".py") and not Path(module).is_file():
        raise UsageError(f"--transform {text}: there is no file {module}")
    try:
        loaded = _from_file(Path(module)) if module.endswith(".py") else _from_path(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything on import
        raise UsageError(
            f"--transform {text}: {module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found: Transform | None = getattr(loaded, name, None)
    if found is None or not callable(found):
        raise UsageError(
            f"--transform {text}: {module} has no function {name}; write `def {name}(letter): "
            "return letter.value`"
        )
    return found


def _from_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_perseid_transform_{file.stem}", file)
    assert spec is not None and spec.loader is not None, "a file that ends with .py has a loader"
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # dataclasses look their own module up
    spec.loader.exec_module(loaded)
    return loaded


def _from_path(module: str) -> ModuleType:
    """Installed, or in the present folder, which comes first as with `python -m`."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(here)


def corrected(function: Transform, name: str, letter: Letter) -> bytes | None:
    """The result of `function` for the letter's value, None to leave it out.

    PermanentError names the letter when it raises or returns something else.
    """
    try:
        found = function(letter)
    except Exception as error:
        raise PermanentError(
            f"{letter}: transform {name} raised {type(error).__name__}: {error}"
        ) from error
    if found is None or isinstance(found, bytes):
        return found
    raise PermanentError(
        f"{letter}: transform {name} returned {type(found).__name__}, expected bytes, or None to "
        "leave the letter out"
    )
