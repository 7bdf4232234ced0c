"""Makes a job's packages importable.

A Python worker of Spark belongs to one environment, which an environment variable names: it puts
the packages at the front of `sys.path` permanently (`adopt`). All other processes (the driver of a
worker, the command line) load classes of several jobs. There the packages can be imported only
while modules of the job are (`active`); afterwards they are removed from `sys.path` and
`sys.modules`. So two jobs may have two versions of a package, and perseid uses neither.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

VARIABLE = "PERSEID_JOB_ENVIRONMENT"  # of a Python worker: the packages of its jobs


@dataclass
class _Site:
    """The packages of one environment, and its imported modules."""

    path: str
    modules: dict[str, ModuleType] = field(default_factory=dict)


_sites: dict[Path, _Site] = {}  # by job folder
_known: dict[str, _Site] = {}  # by path: jobs with the same lock share modules as well
_turn = threading.RLock()
_active: list[_Site] = []  # of the thread that runs now


def use(folder: Path, site: Path | None) -> None:
    """From now on imports of the job in `folder` find the packages in `site`, None for none."""
    if site is None:
        _sites.pop(folder.resolve(), None)
    else:
        path = str(site)
        _sites[folder.resolve()] = _known.setdefault(path, _Site(path))


def adopt() -> None:
    """Puts the packages of this process at the front of `sys.path`, once."""
    path = os.environ.get(VARIABLE)
    if path and path not in sys.path:
        sys.path.insert(0, path)


@contextmanager
def active(root: Path) -> Iterator[None]:
    """Imports within find the packages of the job in `root`, a resolved folder."""
    site = _sites.get(root)
    if site is None:
        yield
        return
    with _turn:
        if site in _active:
            yield
            return
        _active.append(site)
        before = {name: sys.modules[name] for name in site.modules if name in sys.modules}
        sys.modules.update(site.modules)
        sys.path.insert(0, site.path)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(site.path)
            for name in [n for n, module in list(sys.modules.items()) if _is_of(module, site)]:
                site.modules[name] = sys.modules.pop(name)
            sys.modules.update(before)
            _active.pop()


def _is_of(module: ModuleType, site: _Site) -> bool:
    below = site.path + os.sep
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return file.startswith(below)
    try:  # a namespace package has no file
        return any(str(path).startswith(below) for path in getattr(module, "__path__", ()))
    except Exception:  # a module's author may set __path__ to anything
        return False
