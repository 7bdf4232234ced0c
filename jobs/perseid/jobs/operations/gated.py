"""Which revisions can be compared with the running one before a job switches to them. Pure.

A gate runs the tokens of the running revision with the code of the other, and compares what each
operator partition has put out. So both have the same sources, operator partitions and sinks; what
may differ is the code, the state (`migrate`), settings that leave those alone, and the number
of fragments: a gate runs the whole job as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.operations.change import incompatibilities, needs_new_layout
from perseid.records import ApprovedCause, JobEntry, JobStatus, Plan

WITHOUT = "apply it without `--gate`"


@dataclass(frozen=True, slots=True)
class Approval:
    """Differences of a revision that a user has approved, as an audit has found them.

    `job_uuid` and `archive`: of the job and of the revision that were audited.
    """

    job: str
    job_uuid: str
    archive: str
    causes: tuple[ApprovedCause, ...]


@dataclass(frozen=True, slots=True)
class Gating:
    """A gate as a user asks for it: so many `epochs` have to be equal; 0: there is none."""

    epochs: int = 0
    approval: Approval | None = None

    def approved(self, job: str) -> tuple[ApprovedCause, ...]:
        mine = self.approval is not None and self.approval.job == job
        return self.approval.causes if self.approval is not None and mine else ()


def unknown(approval: Approval | None, jobs: Collection[str]) -> Iterator[str]:
    """Why the report approves nothing of what is applied."""
    if approval is not None and approval.job not in jobs:
        yield (
            f"the approved report is of job {approval.job}, which is not applied here: expected "
            f"one of {', '.join(sorted(jobs))}"
        )


def approval_refusals(
    approval: Approval, entry: JobEntry | None, archive: str
) -> Iterator[str]:
    """Why the report of an audit approves nothing of the revision with that archive."""
    again = "audit this revision with `perseid replay JOB --rev REPO --report FOLDER`"
    if entry is not None and approval.job_uuid != entry.uuid:
        yield f"the approved report is of an earlier job of that name; {again}"
    elif approval.archive != archive:
        yield (
            f"the approved report is of another revision (archive {approval.archive[:12] or '?'}, "
            f"and this one is {archive[:12]}); {again}"
        )


def refusals(
    entry: JobEntry | None, status: JobStatus | None, plan: Plan | None, old: JobSpec | None,
    new: JobSpec,
) -> Iterator[str]:  # fmt: skip
    """Why `new` cannot be compared. `old`: of the running revision, None without a plan."""
    ours = entry is not None and plan is not None and plan.job_uuid == entry.uuid
    if entry is None or not ours or old is None:
        yield f"has no running revision to be compared with; {WITHOUT}"
        return
    state = status.state if status is not None and status.job_uuid == entry.uuid else ""
    if entry.desired != "running" or state == "failed":
        yield f"is {state or entry.desired}, so nothing can be compared; {WITHOUT}, or start it"
        return
    found = list(_differences(old, new))
    if not found and not build(new, 1).ledger_tasks:
        found = ["it puts out nothing that could be compared"]
    if found:
        listed = "".join(f"\n  {line}" for line in found)
        yield f"cannot be compared with the running revision; {WITHOUT}:{listed}"


def _differences(old: JobSpec, new: JobSpec) -> Iterator[str]:
    before, now = set(old.written_topics), set(new.written_topics)
    yield from (f"topic {topic} is added" for topic in sorted(now - before))
    yield from (f"topic {topic} is dropped" for topic in sorted(before - now))
    if needs_new_layout(old, new) and before == now:
        yield from incompatibilities(old, new)
    reads = {name: source.topic for name, source in old.sources.items()}
    if reads != {name: source.topic for name, source in new.sources.items()}:
        yield "it has other sources"


def written(old: dict[str, bool] | None, new: dict[str, bool]) -> dict[str, bool] | None:
    """The topics of both revisions, of which either may write; `old` None: not known."""
    if old is None:
        return None
    both = {t: old[t] and new[t] for t in old.keys() & new.keys()}
    return {**old, **new, **both}
