"""Installs a job's packages temporarily, to check its code without running it.

They are installed into a folder of this process, which is deleted at its end. The workers'
environments are not used: the checking process may be on another machine, or lack the rights.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from perseid.jobs.environments import activating, installing, own_code
from perseid.jobs.environments.lockfile import LOCK_FILE


def prepare(folder: Path, label: str = LOCK_FILE, *, allow_code: bool = True) -> None:
    """Lets imports of the job in `folder` find its packages; does nothing without a lock file.

    Raises JobFileErrors, BadInputError or RetryableError, and RefusedError where no code may run.
    """
    if not (folder / LOCK_FILE).is_file():
        return
    if not allow_code:
        own_code.refuse_packages(label)
    installing.checked(folder, label)
    environments, held = _scratch()
    activating.use(folder, held.enter_context(environments.lease(folder)))


@cache
def _scratch() -> tuple[installing.Environments, ExitStack]:
    held = ExitStack()
    folder = held.enter_context(TemporaryDirectory(prefix="perseid-environments-"))
    return installing.Environments(Path(folder)), held
