"""`--resume FILE`: a run in pieces. Tests that have passed on this commit are not run again.

FILE begins with the commit; a line for each passed test follows. It is refused on another commit or
with uncommitted changes, because its results would be for other code.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_FILE = pytest.StashKey[Path]()
_COMMIT = "commit "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("perseid").addoption(
        "--resume", default=None, metavar="FILE", help="leave out what has passed according to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    given: str | None = config.getoption("--resume")
    if given is not None:
        path = Path(given)
        open_for(path, commit_of(config.rootpath))
        config.stash[_FILE] = path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.stash.get(_FILE, None)
    if path is None:
        return
    passed = set(path.read_text().splitlines()[1:])
    done = [item for item in items if item.nodeid in passed]
    config.hook.pytest_deselected(items=done)
    items[:] = [item for item in items if item.nodeid not in passed]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> object:
    """Records a test when setup, call and teardown have passed."""
    failed = item.session.testsfailed
    ran = yield
    path = item.config.stash.get(_FILE, None)
    if path is not None and item.session.testsfailed == failed:
        with path.open("a") as file:  # a short line in one write: several pytests share it
            file.write(f"{item.nodeid}\n")
    return ran


def commit_of(root: Path) -> str:
    """Returns the commit of the tree in `root`; raises pytest.UsageError when files differ."""
    if changed := _git(root, "status", "--porcelain"):
        raise pytest.UsageError(
            f"--resume: uncommitted changes in {root}: commit them first, so that what has passed "
            f"is known to be of one commit:\n{changed}"
        )
    return _git(root, "rev-parse", "HEAD")


def open_for(path: Path, commit: str) -> None:
    """Begins the file; raises pytest.UsageError when it is of another commit."""
    if not path.is_file() or not path.read_text():
        path.write_text(f"{_COMMIT}{commit}\n")
        return
    noted = path.read_text().splitlines()[0].removeprefix(_COMMIT)
    if noted != commit:
        raise pytest.UsageError(
            f"--resume: {path} is of commit {noted[:12]}, this is {commit[:12]}: name a new file, "
            "or check that commit out"
        )


def _git(root: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()
