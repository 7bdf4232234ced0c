"""`perseid doctor`: checks every part of a deployment, reports faults and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from perseid.cli import output

if TYPE_CHECKING:
    from perseid.cli.doctor_checks import Finding

_TOTAL = "{problem} problems, {warning} warnings, {ok} ok"


def doctor(data: output.Data = None, as_json: output.Json = False) -> None:
    """Check brokers, topics, clocks, disks, transactions, coordinators and workers."""
    from dataclasses import asdict

    from perseid.cli.doctor_checks import exit_code
    from perseid.cli.doctor_look import look
    from perseid.embedded import deployment, locate

    folder = locate(data)
    found = list(look(folder, deployment(folder)))
    counts = {level: sum(f.level == level for f in found) for level in ("ok", "warning", "problem")}
    if as_json:
        output.document({"findings": [asdict(f) for f in found], **counts})
    else:
        output.lines(line for finding in found for line in _text(finding))
        output.lines(["", _TOTAL.format(**counts)])
    if exit_code(found):
        raise typer.Exit(1)


def _text(finding: Finding) -> list[str]:
    lines = [f"{finding.level:<8} {finding.check}: {finding.found}"]
    if finding.expected:
        lines.append(f"         expected {finding.expected}")
    if finding.next:
        lines.append(f"         next     {finding.next}")
    return lines
