"""Which files an audit runs: those of the recorded revision, or those that the user names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.errors import BadInputError, DamagedFile, RefusedError
from perseid.jobs.environments import activating
from perseid.jobs.environments.installing import Environments
from perseid.jobs.environments.loading import load_all
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.trees import archive, fetch_archive, open_archive, sha256
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.replay.running import archives
from perseid.worker.process import environment

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import CheckpointPointers, Deployment, JobEntry, Plan


@dataclass(frozen=True, slots=True)
class Program:
    """The files of a revision, by the SHA-256 of their archive."""

    revision: str
    archive: str


@dataclass(frozen=True, slots=True)
class _Given:
    """An archive that is in no store."""

    content: bytes

    def read(self, _path: str) -> bytes:
        return self.content


def recorded(
    revision: str, entry: JobEntry, plan: Plan | None, pointers: CheckpointPointers | None = None
) -> Program | None:
    """The revision that the tokens name; None if neither entry, plan nor horizon has it."""
    known = [(entry.revision, entry.archive)]
    if plan is not None and plan.job_uuid == entry.uuid:
        known.append((plan.revision, plan.archive))
    if pointers is not None and pointers.job_uuid == entry.uuid:
        known += pointers.archives.items()
    return next((Program(name, sha) for name, sha in known if name == revision), None)


def named(text: str, job: str, known: Program | None, deployment: Deployment) -> Program:
    """What `--rev` names: the recorded revision, or the job's folder at REPO[@REV].

    `deployment`: as `running.apart` gives it; the files of a folder are put into its archives.
    """
    if known is not None and text in {known.revision, known.archive}:
        return known
    try:
        with job_folders.validated(job_folders.find(text)) as jobs:
            mine = [found.tree for found in jobs if found.spec.name == job]
    except BadInputError as error:
        raise RefusedError(f"--rev {text} cannot be audited: {error}") from error
    if not mine:
        raise RefusedError(
            f"--rev {text}: has no job {job}, expected its folder as `perseid jobs apply` takes it"
        )
    given = _Given(archive(mine[0].files))
    sha = sha256(given.content)
    if known is not None and sha == known.archive:
        return known
    fetch_archive(given, sha, archives(Path(deployment.state)))
    return Program(mine[0].revision, sha)


def read(program: Program, deployment: Deployment) -> JobSpec:
    """The job of a program, unpacked where its run will find it.

    RefusedError if its files are gone, or if they are no job for this version of perseid.
    """
    with _refused(program):
        return parse.load(_folder(program, deployment))


def refuse_unusable(program: Program, deployment: Deployment) -> None:
    """RefusedError if its packages cannot be installed here, or its classes not be imported."""
    with _refused(program), ExitStack() as held:
        folder = _folder(program, deployment)
        packages = held.enter_context(Environments.of(deployment).lease(folder))
        activating.use(folder, packages)
        load_all(parse.load(folder).operators, folder, allow_code=deployment.jobs_allow_code)


def surroundings(program: Program, deployment: Deployment) -> dict[str, str]:
    """The environment in which a program that was read runs here."""
    return dict(environment.of(archives(Path(deployment.state)) / program.archive))


def _folder(program: Program, deployment: Deployment) -> Path:
    return open_archive(deployment.store, program.archive, archives(Path(deployment.state)))


@contextmanager
def _refused(program: Program) -> Iterator[None]:
    try:
        yield
    except (BadInputError, DamagedFile) as error:
        raise RefusedError(
            f"revision {program.revision} cannot run here, so it cannot be audited: {error}"
        ) from error


def refuse_other_partitions(job: str, number: int, before: JobSpec, now: JobSpec) -> None:
    """RefusedError if outputs could not be compared by operator partition, as ledgers have them."""
    missing = _written(layouts.build(before, number)) ^ _written(layouts.build(now, number))
    if missing:
        raise RefusedError(
            f"the revision to audit does not write {job}'s outputs by the same operator partitions "
            f"as the recorded one: {', '.join(sorted(missing)[:5])}; an audit compares them one by "
            "one, so keep the operators before sinks and their parallelism"
        )


def _written(layout: Layout) -> set[str]:
    return {f"{task.label} (ledger {task.ledger})" for task in layout.ledger_tasks}
