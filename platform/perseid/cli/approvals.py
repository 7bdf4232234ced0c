"""The gate that `perseid jobs apply` is asked for, with the report of approved differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.cli import output, report_files
from perseid.errors import UsageError

if TYPE_CHECKING:
    from perseid.jobs.operations.gated import Approval, Gating


def gating(gate: str, epochs: int, report: Path | None, keys: Sequence[Path]) -> Gating:
    """What the options ask for. Raises UsageError, and what is wrong with the report."""
    from perseid.jobs.operations.gated import Gating

    if gate not in {"", "audit"}:
        raise UsageError(f"--gate {gate[:40]!r}: expected audit, which compares the outputs")
    if report is not None and not gate:
        raise UsageError("--approve: expected --gate audit too, which compares the outputs")
    if keys and report is None:
        raise UsageError("--key: expected --approve FILE too, the report that it verifies")
    if not gate:
        return Gating()
    return Gating(epochs, _approval(report, keys) if report is not None else None)


def _approval(file: Path, keys: Sequence[Path]) -> Approval:
    from perseid.jobs.operations.gated import Approval
    from perseid.replay import approving
    from perseid.replay.reports import from_json

    found, signature = report_files.report_of(file, keys)
    report = from_json(found)
    causes = approving.causes_of(report)
    output.note(
        f"{report.job}: approved as in {file} ({signature}), an audit of epochs "
        f"{report.first_epoch} to {report.last_epoch} with revision {report.audited}:"
    )
    for cause in causes:
        output.note(f"  operator {cause.operator}: {approving.text(cause.kind, cause.fields)}")
    return Approval(report.job, report.job_uuid, report.archive, causes)
