"""Environments on this machine: one folder of packages per lock file, created atomically.

    <root>/<key>/site/...     the packages; the folder exists only when it is complete
    <root>/<key>.lock         locked exclusively to create or remove it, shared to use it
    <root>/.new-<key>-...     an incomplete one, of a running or a dead process

The key is made from the lock file, Python's version and perseid's own packages, so revisions and
jobs with the same lock share an environment. The kernel releases locks when a process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from perseid.errors import BadInputError, PerseidError, RetryableError
from perseid.jobs.environments import own
from perseid.jobs.environments.lockfile import LOCK_FILE, Locked, read
from perseid.jobs.model.problems import JobFileErrors
from perseid.records import Deployment, crashpoints
from perseid.state.durability.files import faults

_log = logging.getLogger(__name__)

COLLECT_S = 60.0  # an environment may still be in use when the last revision that needs it ends
INSTALL_S = 900.0  # hundreds of megabytes over a slow line
SITE = "site"
Install = Callable[[Path, Path], None]


def key_of(folder: Path) -> str | None:
    """The key of a job folder's environment; None for one without a lock file."""
    file = folder / LOCK_FILE
    if not file.is_file():
        return None
    tag = f"{sys.implementation.cache_tag}-{platform.machine()}"
    about = f"{tag} {sorted(own.packages().items())} ".encode()
    return f"{tag}-{hashlib.sha256(about + file.read_bytes()).hexdigest()[:32]}"


def needed(cache: Path, archives: Collection[str]) -> set[str]:
    """The keys of those revisions among `archives` that are unpacked in `cache`."""
    return {key for archive in archives if (key := key_of(cache / archive)) is not None}


def checked(folder: Path, label: str = LOCK_FILE) -> tuple[Locked, ...]:
    """Reads the packages of a job folder's lock file; JobFileErrors with all its mistakes."""
    locked, problems = read((folder / LOCK_FILE).read_bytes(), label)
    problems += tuple(own.conflicts(locked, own.packages(), label))
    if problems:
        raise JobFileErrors(problems)
    return locked


def pip(requirements: Path, target: Path) -> None:
    """Installs wheels with these hashes; pip's own configuration names the index.

    Raises BadInputError when a file is not the locked one, RetryableError when it was not received.
    """
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps",
        "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:",
        "--target", str(target), "--requirement", str(requirements),
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PIP_TARGET")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False,
            env=environment | {"PIP_USER": "no", "PIP_REQUIRE_VIRTUALENV": "no"},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RetryableError(f"pip did not end within {INSTALL_S:g} s") from None
    if done.returncode == 0:
        return
    errors = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line]
    why = (errors[-1] if errors else done.stderr.strip()[-300:])[:300]
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise BadInputError(
            f"{LOCK_FILE}: a package is not the one that was locked: {why}; find out why, then "
            "lock it again"
        )
    raise RetryableError(
        f"{LOCK_FILE}: pip could not install it: {why}. Only wheels are installed; the index is "
        "that of this process's environment (PIP_INDEX_URL, PIP_FIND_LINKS)"
    )


class Environments:
    """The environments below one folder, which several processes of this machine may share."""

    def __init__(self, root: Path, install: Install = pip) -> None:
        self.root, self._install = root, install

    @classmethod
    def of(cls, deployment: Deployment) -> Environments:
        """The environments that the workers of this machine share."""
        return cls(Path(deployment.state) / "environments")

    @contextmanager
    def lease(self, folder: Path) -> Iterator[Path | None]:
        """Yields the packages of a job folder, installed if needed; they stay during the `with`.

        None for a job without a lock file. Raises JobFileErrors, BadInputError and RetryableError.
        """
        key = key_of(folder)
        if key is None:
            yield None
            return
        while True:
            with self._locked(key, fcntl.LOCK_SH):
                if (self.root / key).is_dir():
                    yield self.root / key / SITE
                    return
            with self._locked(key, fcntl.LOCK_EX):
                if not (self.root / key).is_dir():
                    self._make(key, folder)

    def collect(self, needed: Collection[str]) -> list[str]:
        """Removes environments that are neither needed nor in use; returns their keys."""
        removed = []
        for path in sorted(self.root.glob("*.lock")) if self.root.is_dir() else ():
            key = path.name.removesuffix(".lock")
            if key in needed:
                continue
            try:
                with self._locked(key, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    for left in self.root.glob(f".new-{key}-*"):
                        shutil.rmtree(left, ignore_errors=True)
                    if (self.root / key).is_dir():
                        # Renamed first, so that the key's folder is always complete.
                        old = Path(tempfile.mkdtemp(prefix=f".new-{key}-", dir=self.root))
                        (self.root / key).rename(old / SITE)
                        shutil.rmtree(old, ignore_errors=True)
                        removed.append(key)
                    path.unlink(missing_ok=True)
            except BlockingIOError:
                continue
        return removed

    def _make(self, key: str, folder: Path) -> None:
        """Installs into a temporary folder, checks, renames. Only the rename makes it visible."""
        locked = own.to_install(checked(folder), own.packages())
        with faults("make an environment in", str(self.root)):
            fresh = Path(tempfile.mkdtemp(prefix=f".new-{key}-", dir=self.root))
        try:
            (fresh / SITE).mkdir()
            if locked:
                wanted = fresh / LOCK_FILE
                wanted.write_text("".join(f"{one}\n" for one in locked))
                self._install(wanted, fresh / SITE)
            crashpoints.reach("environment.installed", self.root.name)
            fresh.chmod(0o755)
            os.sync()  # else a power failure could keep the name but lose some files
            own.check_whole(list(metadata.distributions(path=[str(fresh / SITE)])), own.packages())
            own.check_modules(_top_levels(fresh / SITE))
            fresh.rename(self.root / key)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    @contextmanager
    def _locked(self, key: str, how: int) -> Iterator[None]:
        """Holds the lock of a key; locks again if the lock file was removed meanwhile."""
        with faults("make an environment in", str(self.root)):
            self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / f"{key}.lock"
        while True:
            with path.open("ab") as file:
                fcntl.flock(file, how)
                if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    yield
                    return


class Collector:
    """Periodically removes environments that no revision needs any more, in a thread."""

    def __init__(self, environments: Environments, cache: Path) -> None:
        self._environments, self._cache = environments, cache
        self._archives: frozenset[str] = frozenset()
        self._looked_s = float("-inf")

    def see(self, archives: Collection[str], now_s: float) -> None:
        """`archives` are those of all jobs, running and wanted."""
        wanted = frozenset(archives)
        if wanted == self._archives and now_s - self._looked_s < COLLECT_S:
            return
        self._archives, self._looked_s = wanted, now_s
        if self._environments.root.is_dir():
            threading.Thread(target=self._collect, args=(wanted,), daemon=True).start()

    def _collect(self, archives: frozenset[str]) -> None:
        try:
            for key in self._environments.collect(needed(self._cache, archives)):
                _log.info("environment %s is removed: no revision needs it", key)
        except (OSError, PerseidError) as error:
            _log.warning("environments are not cleared away now: %s", error)


def _top_levels(site: Path) -> dict[str, bool]:
    """The modules at the top of an environment, and whether each is a namespace package."""
    found = {}
    for path in site.iterdir():
        if path.is_dir() and path.name.isidentifier() and path.name != "bin":
            found[path.name] = not (path / "__init__.py").exists()
        elif path.suffix in (".py", ".so"):
            found[path.name.partition(".")[0]] = False
    return found
