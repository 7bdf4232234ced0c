"""Which revisions can be compared with the running one before a job switches to them. Pure.

A gate runs the tokens of the running revision with the code of the other, and compares what each
operator partition has put out. So both have the same sources, operator partitions and sinks; what
may differ is the code, the state (`migrate`) and settings that leave those alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.operations.change import incompatibilities, needs_new_layout
from perseid.records import JobEntry, JobStatus, Plan

WITHOUT = "apply it without `--gate`"


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
    if max(old.placement.spread, new.placement.spread) > 1:
        yield f"has `placement: {{spread: N}}`, and only whole jobs are compared; {WITHOUT}"
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
