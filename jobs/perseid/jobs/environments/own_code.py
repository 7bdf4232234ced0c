"""What a deployment that runs no code of jobs refuses (`jobs_allow_code: false`).

`jobs apply` refuses it, and so do workers: the settings of the user who applied the job may differ
from theirs.
"""

from __future__ import annotations

from pathlib import Path

from perseid.errors import RefusedError
from perseid.jobs.environments.lockfile import LOCK_FILE
from perseid.jobs.library.catalogue import NAMES
from perseid.jobs.model.problems import listed
from perseid.jobs.model.spec import JobSpec


def refuse(spec: JobSpec, folder: Path) -> None:
    """Raises RefusedError when the job in `folder` has operators or packages of its own."""
    for operator in spec.operators.values():
        if operator.use is not None:
            refuse_class(operator.use)
    if (folder / LOCK_FILE).is_file():
        refuse_packages(LOCK_FILE)


def refuse_class(use: str) -> None:
    """`use`: MODULE:CLASS, or library:NAME, which may run."""
    if use.partition(":")[0] != "library":
        raise RefusedError(
            f"{use}: this deployment runs no code of jobs (jobs_allow_code is false); use "
            f"`library:` operators ({listed(NAMES)})"
        )


def refuse_packages(label: str) -> None:
    """`label`: the lock file's name in the message."""
    raise RefusedError(
        f"{label}: this deployment runs no code of jobs (jobs_allow_code is false), so it "
        f"installs none either; remove {LOCK_FILE}"
    )
