"""What a job with `placement: {spread: N}` above 1 may not have. Pure.

Sinks with `order: required` are accepted: a source partition is read whole by one fragment, and a
consumer takes the rows of each sender in their order, as it does from the tasks of one worker.
"""

from __future__ import annotations

from collections.abc import Iterator

from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.spread import spread_of

Refusal = tuple[tuple[str, ...], str]  # path in the file, and the message

_ANY = 1  # the number of a layout changes nothing in how a job is cut


def all_of(spec: JobSpec) -> Iterator[Refusal]:
    """The refusals of a spread job, none of another one."""
    spread = spec.placement.spread
    if spread == 1:
        return
    if spec.fault_tolerance.replicas:
        yield ("faultTolerance", "replicas", "budget"), (
            f"faultTolerance.replicas.budget: found {spec.fault_tolerance.replicas} with "
            f"`placement: {{spread: {spread}}}`, expected a job that one worker runs whole: "
            "replicas of a spread job are not built yet; write `budget: 0`, or `spread: 1`"
        )
    asked = f"with `placement: {{spread: {spread}}}`"
    for name, operator in spec.operators.items():
        if operator.sql is not None:
            yield ("operators", name, "sql"), (
                f"operators.{name}.sql: a job {asked} has no SQL operators, since Spark numbers "
                'the tasks of a query; write it in Python (`use: "module:Class"`), or `spread: 1`'
            )
        for port in operator.feedback:
            yield ("operators", name, "inputs", port), (
                f"operators.{name}.inputs.{port}: a job {asked} has no feedback, since its workers "
                "would wait for each other; remove the input, or write `spread: 1`"
            )
    found = spread_of(spec, build(spec, _ANY))
    if found is not None and len(found.shares) == 1:
        yield ("placement", "spread"), (
            f"placement.spread: found {spread}, but the job cannot be cut: it is one part, in "
            "which each operator has one partition; write `parallelism: "
            f"{spread}`, or `spread: 1`"
        )
