"""The output of `jobs list` and `jobs show` about a job, as plain data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from perseid.errors.headline import headline
from perseid.jobs.model.layout import Layout
from perseid.jobs.operations import fragments
from perseid.jobs.validation.retention import duration
from perseid.records import WHOLE, CheckpointPointers, JobEntry, JobFailures, JobStatus, Plan

_NEXT = {
    "ReplayDataLost": "raise the topic's retention, then `perseid jobs start {job} --from scratch`",
    "TopicIdentityChanged": "`perseid jobs remove {job}`, then apply it again",
    "BadInputError": (
        "mend the job (or `errors: {{tolerance: all}}` to send such records to a dead-letter "
        "topic) and `perseid jobs apply` it again"
    ),
    "DamagedFile": "`perseid jobs start {job}` tries an older checkpoint",
    "RefusedError": "do what the message asks, then `perseid jobs start {job}`",
}


def summary(
    entry: JobEntry, status: JobStatus | None, plan: Plan | None, layout: Layout | None = None
) -> dict[str, Any]:
    """One line of `jobs list`; ignores the status and plan of an earlier job of the same name."""
    own = status if status is not None and status.job_uuid == entry.uuid else None
    ours = plan if plan is not None and plan.job_uuid == entry.uuid else None
    return {
        "name": entry.name,
        "state": own.state if own else "waiting",
        "desired": entry.desired,
        "revision": entry.revision,
        "generation": own.generation if own else 0,
        "owner": ours.owner if ours is not None else None,
        "fragments": fragments.listed(ours, layout),
        "applied_ms": entry.applied_ms,
    }


def details(
    entry: JobEntry,
    status: JobStatus | None,
    plan: Plan | None,
    pointers: CheckpointPointers | None,
    spec: Mapping[str, Any] | None,
    layout: Layout | None = None,
) -> dict[str, Any]:
    """The document of `jobs show --json`. `layout`: the plan's, as far as it is known."""
    own = status if status is not None and status.job_uuid == entry.uuid else None
    error = dict(own.error) if own and own.error else None
    if error is not None:
        error["next"] = error.get("next") or next_step(entry.name, str(error.get("kind", "")))
    return {
        **summary(entry, status, plan, layout),
        "uuid": entry.uuid,
        "archive": entry.archive,
        "running_revision": plan.revision if plan and plan.job_uuid == entry.uuid else None,
        "layout": plan.layout if plan and plan.job_uuid == entry.uuid else None,
        "gate": gate(entry, plan),
        "checkpoints": checkpoints(entry, pointers),
        "audit": audit(entry, pointers, spec),
        "error": error,
        "events": list(own.events) if own else [],
        "spec": dict(spec) if spec is not None else None,
    }


def gate(entry: JobEntry, plan: Plan | None) -> dict[str, Any] | None:
    """The gate of the applied revision, as ZooKeeper has it; None without one, or after it."""
    if plan is None or plan.job_uuid != entry.uuid or plan.archive == entry.archive:
        return None
    if not entry.gate:
        return None
    found = plan.gate_of(entry)
    run = found.run if found is not None else None
    reason = found.refused if found is not None else ""
    state = "refused" if reason else "comparing" if run is not None else "waiting"
    return {
        "revision": entry.revision, "state": state, "epochs": entry.gate, "equal": None,
        "worker": run.owner if run is not None else None, "reason": reason or None,
    }  # fmt: skip


def _gate_text(shown: Mapping[str, Any]) -> str:
    """The same as one line. `equal` is None without a leader that knows it."""
    known = shown["equal"] is not None
    equal = f", {shown['equal']} of {shown['epochs']} epochs equal" if known else ""
    where = f" on {shown['worker']}" if shown["worker"] else ""
    reason = f": {shown['reason']}" if shown["reason"] else ""
    return f"revision {shown['revision']} {shown['state']}{where}{equal}{reason}"


def refused(entry: JobEntry, plan: Plan | None) -> dict[str, Any] | None:
    """Why the gate of the applied revision has refused it; None unless it has."""
    gate = plan.gate_of(entry) if plan is not None else None
    if gate is None or not gate.refused:
        return None
    what_next = (
        f"correct the revision and `perseid jobs apply` it again with `--gate audit`; "
        f"`perseid jobs show {entry.name}` shows what runs"
    )
    return {"kind": "Refused by its gate", "text": gate.refused, "next": what_next}


def failing(found: JobFailures | None, now_ms: int) -> dict[str, Any] | None:
    """The repeated failure of a job, and its duration; None without one."""
    if found is None or not found.lasts:
        return None
    for_s = max(0, now_ms - found.since_ms) // 1000 if found.since_ms else 0
    return {"failures": found.count, "for_s": for_s, "text": headline(found.text)}


def failing_text(found: Mapping[str, Any]) -> str:
    """The same as one line."""
    return (
        f"fails again and again ({found['failures']} times in {found['for_s']} s): {found['text']}"
    )


def event_time_text(shown: Mapping[str, Any]) -> str:
    """The watermark and the late records; empty without any."""
    late, watermark_ms = shown.get("late_records") or 0, shown.get("watermark_ms")
    if not late:
        return ""
    text = f"{late} records were late"
    return text if watermark_ms is None else f"{text}, the watermark is {time_text(watermark_ms)}"


def time_text(time_ms: int) -> str:
    """In UTC; milliseconds where the calendar has no such time."""
    try:
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def checkpoints(entry: JobEntry, pointers: CheckpointPointers | None) -> list[dict[str, Any]]:
    """The complete checkpoints of the entry's own job, the newest first."""
    own = pointers.pointers if pointers and pointers.job_uuid == entry.uuid else ()
    return [asdict(pointer) | {"needs": list(pointer.needs)} for pointer in own]


def audit(
    entry: JobEntry, pointers: CheckpointPointers | None, spec: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The horizon of the applied revision and the checkpoints with which audits may begin.

    None without a horizon. `from_epoch` and `from_ms`: of the oldest one.
    """
    horizon_s = (spec or {}).get("audit", {}).get("horizon_s")
    if horizon_s is None:
        return None
    own = pointers.every if pointers and pointers.job_uuid == entry.uuid else ()
    oldest = own[-1] if own else None
    return {
        "horizon_s": horizon_s, "checkpoints": len(own),
        "from_epoch": oldest.epoch if oldest is not None else None,
        "from_ms": oldest.time_ms if oldest is not None else None,
    }  # fmt: skip


def _audit_text(shown: Mapping[str, Any]) -> str:
    """The same as one line."""
    horizon = f"horizon {duration(round(shown['horizon_s'] * 1000))}"
    if shown["from_epoch"] is None:
        return f"{horizon}, no checkpoint yet"
    return (
        f"{horizon}, {shown['checkpoints']} checkpoints from epoch {shown['from_epoch']} "
        f"({time_text(shown['from_ms'])}) on"
    )


def next_step(job: str, kind: str) -> str:
    """The command to type after the job failed with an error of this kind."""
    otherwise = "`perseid logs {job}` has the traceback; `perseid jobs start {job}` tries again"
    return _NEXT.get(kind, otherwise).format(job=job)


def owners_text(shown: Mapping[str, Any]) -> str | None:
    """The owner of a job, which is its primary's, or those of its fragments in their order."""
    owner: str | None = shown["owner"]
    if not _several(shown):
        return owner
    return ", ".join(f"{one['name']}: {one['owner'] or 'none'}" for one in shown["fragments"])


def as_text(shown: Mapping[str, Any]) -> list[str]:
    """The document as lines of text."""
    lines = [
        f"{shown['name']}: {shown['state']}" + _wanted(shown),
        f"  revision    {shown['revision']}" + _switching(shown),
        f"  generation  {shown['generation']}" + _owner(shown),
    ]
    lines += [f"  fragment    {fragments.text(one)}" for one in shown["fragments"]]
    lines += [f"  gate        {_gate_text(shown['gate'])}"] if shown.get("gate") else []
    for saved in shown["checkpoints"]:
        lines.append(f"  checkpoint  epoch {saved['epoch']}, {saved['bytes']} bytes")
    lines += [f"  audit       {_audit_text(shown['audit'])}"] if shown.get("audit") else []
    spec = shown["spec"] or {}
    for kind, word in (("sources", "reads"), ("sinks", "writes")):
        for name, block in spec.get(kind, {}).items():
            lines.append(f"  {word:<11} {block['topic']} ({block['format']}) as {name}")
    if shown.get("watermark_ms") is not None:
        lines.append(f"  watermark   {time_text(shown['watermark_ms'])}")
    if shown.get("late_records"):
        lines.append(f"  late        {shown['late_records']} records")
    if shown.get("buffers"):
        lines.append(f"  buffers     {_buffers(shown['buffers'])}")
    for held in shown.get("stalled_input", ()):
        lines.append(
            f"  held back   {held['topic']}[{held['partition']}] at offset {held['offset']} for "
            f"{held['for_s']} s, by an open transaction: `perseid txn list {shown['name']}`"
        )
    lines += [f"  event       {event}" for event in shown["events"]]
    if shown["error"] is not None:
        error = shown["error"]
        lines += [f"  error       {error.get('kind')}: {error.get('text')}",
                  f"  next        {error['next']}"]  # fmt: skip
    elif shown.get("failing"):
        lines += [
            f"  failing     {failing_text(shown['failing'])}",
            f"  next        `perseid logs {shown['name']}` has it in full; it is tried again",
        ]
    elif shown["state"] == "stopped":
        lines.append(f"  next        `perseid jobs start {shown['name']}`")
    return lines


def _buffers(found: Mapping[str, Any]) -> str:
    held = ", ".join(f"{reader} {size}" for reader, size in found["bytes"].items())
    return f"{held or 'empty'}; at most {found['bytes_max']} bytes each"


def _wanted(shown: Mapping[str, Any]) -> str:
    return "" if shown["desired"] == shown["state"] else f" (wanted: {shown['desired']})"


def _owner(shown: Mapping[str, Any]) -> str:
    """The primary's owner; a job of several fragments has one for each."""
    return "" if _several(shown) else f", owner {shown['owner'] or 'none'}"


def _several(shown: Mapping[str, Any]) -> bool:
    """Whether the job is several fragments. One that is whole may be listed with its replica."""
    return any(one["name"] != WHOLE for one in shown["fragments"])


def _switching(shown: Mapping[str, Any]) -> str:
    running = shown["running_revision"]
    return "" if running in {None, shown["revision"]} else f" (still running: {running})"
