"""Inputs of the form `{from: OPERATOR, feedback: {delay: 1}}`: rows of the previous epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perseid.jobs.model.problems import nearest, shown
from perseid.jobs.model.spec import producer
from perseid.jobs.validation import document as doc

FORM = "{from: OPERATOR, feedback: {delay: 1}}"  # or OPERATOR.OUTPUT
Finding = tuple[tuple[str, ...], str]


def edges(operator: doc.Operator) -> dict[str, str]:
    """The well-formed feedback inputs by name, with their origin."""
    return {
        name: value["from"]
        for name, value in (operator.inputs or {}).items()
        if isinstance(value, dict) and isinstance(value.get("from"), str)
    }


def check(
    path: tuple[str, ...], operator: doc.Operator, operators: Mapping[str, doc.Operator | None]
) -> Iterator[Finding]:
    """The mistakes in the feedback inputs of the operator at `path`."""
    where = ".".join(path)
    for name, value in (operator.inputs or {}).items():
        if isinstance(value, dict):
            yield from _form((*path, "inputs", name), value)
            yield from _origin((*path, "inputs", name), value.get("from"), operators)
    found = edges(operator)
    if not found:
        return
    if not operator.key:
        yield path, f"{where}: an operator with a feedback input needs a key; write `key: COLUMN`"
    if len(found) == len(operator.inputs or {}):
        yield (*path, "inputs"), (
            f"{where}.inputs: all are feedback, so no row would ever come first, expected an input "
            "of the same epoch too; write `NAME: SOURCE`"
        )


def _form(path: tuple[str, ...], value: Mapping[str, Any]) -> Iterator[Finding]:
    where = ".".join(shown(p)[1:-1] for p in path)
    if not isinstance(value.get("from"), str):
        yield path, (
            f"{where}.from: found {shown(value.get('from'))}, expected the name of an operator; "
            f"write `{FORM}`"
        )
    for key in value.keys() - {"from", "feedback"}:
        close = nearest(str(key), ["from", "feedback"])
        yield path, (
            f"{where}.{shown(key)[1:-1]}: found an unknown key, expected from, feedback; "
            f"{f'write `{close}`' if close else 'remove it'}"
        )
    edge = value.get("feedback")
    delay = edge.get("delay") if isinstance(edge, dict) else None
    if not isinstance(edge, dict) or delay is None:
        yield path, (
            f"{where}: found a feedback edge without a delay, which would wait for rows that its "
            "own epoch has yet to make, expected {delay: 1}; write `feedback: {delay: 1}`"
        )
    elif delay is True or delay != 1 or edge.keys() != {"delay"}:
        yield path, (
            f"{where}.feedback: found {shown(edge)}, expected {{delay: 1}}, the epoch before; "
            "write `feedback: {delay: 1}`"
        )


def _origin(
    path: tuple[str, ...], origin: object, operators: Mapping[str, doc.Operator | None]
) -> Iterator[Finding]:
    if not isinstance(origin, str):
        return
    where = ".".join(shown(p)[1:-1] for p in path)
    if producer(origin) not in operators:
        close = nearest(producer(origin), operators)
        yield path, (
            f"{where}.from: found {shown(origin)}, expected the name of an operator; "
            f"write `{close or next(iter(operators))}`"
        )
        return
    node = producer(origin)
    operator = operators[node]
    if operator is not None and not operator.key:
        yield path, (
            f"{where}.from: {shown(node)} has no key, and only the output of an operator with a "
            "key is kept until the next epoch; write a `key: COLUMN` there, or take another"
        )
