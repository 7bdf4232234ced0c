"""What an audit is of, and whether that is the same when it resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.errors import RefusedError
from perseid.replay import programs
from perseid.replay.verdict import changes

if TYPE_CHECKING:
    from perseid.records import CheckpointPointer, Deployment, JobEntry
    from perseid.replay.programs import Program
    from perseid.replay.ranges import Range


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited. `recorded`: None if the files of that revision are gone."""

    span: Range
    audited: Program
    recorded: Program | None

    @property
    def own(self) -> bool:
        """Whether the audited files are the recorded ones."""
        return self.recorded is not None and self.audited.archive == self.recorded.archive


@dataclass(frozen=True, slots=True)
class Begun:
    """What a part of an audit has begun with. `kept`: the job's checkpoints."""

    subject: Subject
    kept: tuple[CheckpointPointer, ...]
    environment: dict[str, str]

    def refuse_changed(
        self, job: str, entry: JobEntry | None, revision: str | None, deployment: Deployment
    ) -> None:
        """RefusedError where an audit that was interrupted would resume with something else.

        `entry`: of the job now; `revision`: `--rev`; `deployment`: as `running.apart` gives it.
        """
        subject, audited = self.subject, self.subject.audited
        again = "delete its folder and begin the audit again"
        if entry is None or entry.uuid != subject.span.job_uuid:
            raise RefusedError(
                f"{job} was removed since its audit was interrupted, or removed and applied again; "
                f"{again}"
            )
        if revision is not None:
            named = programs.named(revision, job, subject.recorded, deployment)
            if named.archive != audited.archive:
                raise RefusedError(
                    f"--rev {revision}: its files have changed since the audit was "
                    f"interrupted; {again}"
                )
        programs.refuse_unusable(audited, deployment)
        found = changes(self.environment, programs.surroundings(audited, deployment))
        if found:
            changed = "; ".join(f"{name} {text}" for name, text in found.items())
            raise RefusedError(
                f"the environment has changed since the audit of {job} was interrupted: {changed}; "
                f"{again}"
            )
