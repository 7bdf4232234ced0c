"""A job's classes, imported and checked against the job: the part of validation that runs code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.errors import PerseidError, RefusedError
from perseid.jobs.environments import checking
from perseid.jobs.environments.loading import load, load_all
from perseid.jobs.environments.lockfile import LOCK_FILE
from perseid.jobs.model.problems import JobFileErrors, Problem, listed, nearest, shown
from perseid.jobs.model.spec import MAIN, JobSpec, output_of, producer
from perseid.jobs.model.trees import JOB_FILE
from perseid.jobs.operator import outputs_of
from perseid.jobs.validation import key_types, yamlfile

if TYPE_CHECKING:
    from perseid.jobs.operator import Operator
    from perseid.jobs.repository.job_folders import Validated

Found = tuple[tuple[str, ...], str]
Classes = dict[str, "type[Operator]"]


def load_jobs(jobs: Sequence[Validated], *, allow_code: bool = True) -> dict[str, Classes]:
    """The classes of several jobs by job name, or JobFileErrors with the mistakes of all."""
    loaded: dict[str, Classes] = {}
    problems: list[Problem] = []
    for job in jobs:
        label = f"{job.tree.name}/{JOB_FILE}"
        try:
            checking.prepare(
                job.folder, f"{job.tree.name}/{LOCK_FILE}", allow_code=allow_code
            )
            loaded[job.spec.name] = load_checked(
                job.spec, job.folder, label, allow_code=allow_code
            )
        except JobFileErrors as error:
            problems += error.problems
    if problems:
        raise JobFileErrors(problems)
    return loaded


def load_checked(
    spec: JobSpec, folder: Path, label: str = JOB_FILE, *, allow_code: bool = True
) -> dict[str, type[Operator]]:
    """The classes of all Python operators by name, or JobFileErrors with every mistake."""
    classes: dict[str, type[Operator]] = {}
    found: list[Found] = []
    for name, operator in spec.operators.items():
        if operator.use is None:
            continue
        try:
            classes[name] = load(operator, folder, allow_code=allow_code)
            found += _state(name, classes[name], spec)
            found += _combiner(name, classes[name], spec)
            found += _epoch_end(name, classes[name], spec)
            found += _timers(name, classes[name], spec)
            found += _watermark(name, classes[name], spec)
        except RefusedError:
            raise
        except PerseidError as error:
            found.append((("operators", name, "use"), f"operators.{name}.use: {error}"))
    found += _outputs(spec, classes)
    found += key_types.check(spec, classes)
    if found:
        root = yamlfile.read((folder / JOB_FILE).read_text(encoding="utf-8"))
        raise JobFileErrors(Problem(label, root.line_of(path), text) for path, text in found)
    return classes


def unions(spec: JobSpec, folder: Path, *, allow_code: bool = True) -> frozenset[str]:
    """The operators of several inputs that process each input by itself, as their classes declare.

    Only classes of several inputs are loaded: a SQL operator has one, and the library's are joins.
    """
    several = {
        name: operator for name, operator in spec.operators.items()
        if operator.use is not None and len(operator.forward) > 1
    }  # fmt: skip
    if several:
        checking.prepare(folder, allow_code=allow_code)
    classes = load_all(several, folder, allow_code=allow_code)
    return frozenset(name for name, found in classes.items() if not found.needs_all_inputs)


def _state(name: str, found: type[Operator], spec: JobSpec) -> Iterator[Found]:
    from perseid.state import schema_of

    if not spec.operators[name].key and schema_of(found):
        yield ("operators", name), (
            f"operators.{name}: {found.__name__} keeps state ({listed(schema_of(found))}), which "
            "needs a key; write `key: COLUMN`"
        )


def _combiner(name: str, found: type[Operator], spec: JobSpec) -> Iterator[Found]:
    from perseid.jobs.operator import combines

    if combines(found) and len(spec.operators[name].inputs) > 1:
        yield ("operators", name), (
            f"operators.{name}: {found.__name__} has several inputs and a method combine, which "
            "would not know whose rows it gets; remove combine, or put an operator before one input"
        )


def _epoch_end(name: str, found: type[Operator], spec: JobSpec) -> Iterator[Found]:
    from perseid.jobs.operator import ends_epochs

    if not spec.operators[name].key and ends_epochs(found):
        yield ("operators", name), (
            f"operators.{name}: {found.__name__} has a method on_epoch_end, which needs a key: "
            "without one an operator is called for splits and not for partitions; write "
            "`key: COLUMN`, or remove on_epoch_end"
        )


def _timers(name: str, found: type[Operator], spec: JobSpec) -> Iterator[Found]:
    from perseid.jobs.operator import takes_timers
    from perseid.state import Timers
    from perseid.state.primitives.primitive import declared

    timers = {n: p for n, p in declared(found).items() if isinstance(p, Timers)}
    if bool(timers) != takes_timers(found):
        has, lacks = "a method on_timer", "Timers; write `timers = Timers(key=pa.string())`"
        if timers:
            has, lacks = f"Timers ({listed(timers)})", "method on_timer(self, due, out); add it"
        yield ("operators", name), f"operators.{name}: {found.__name__} has {has} and no {lacks}"
    for timer, primitive in timers.items():
        if primitive.time == "event" and not spec.event_times:
            yield ("operators", name), (
                f"operators.{name}: {found.__name__}.{timer} waits for event time, and no source "
                "has one, so it would never be due; write `eventTime: {column: COLUMN}` in a "
                'source, or `Timers(..., time="token")`'
            )


def _watermark(name: str, found: type[Operator], spec: JobSpec) -> Iterator[Found]:
    if found.needs_watermark and not spec.event_times:
        yield ("operators", name), (
            f"operators.{name}: {found.__name__} waits for event time, and no source has one, so "
            "it would never emit anything; write `eventTime: {column: COLUMN}` in a source"
        )


def _outputs(spec: JobSpec, classes: Classes) -> Iterator[Found]:
    """Checks that what is read of a Python operator is among its declared outputs and columns."""
    read: set[str] = set()
    for name, operator in spec.operators.items():
        for input_, stream in operator.inputs.items():
            place = ("input",) if list(operator.inputs) == ["input"] else ("inputs", input_)
            yield from _exists(("operators", name, *place), stream, classes)
            needed = operator.sql is not None or len(operator.inputs) > 1
            if needed and _is_undeclared(stream, classes):
                yield ("operators", name), (
                    f"operators.{name}: reads {stream}, but {classes[stream].__name__} does not "
                    "declare its columns, which an epoch without rows of it cannot show; write "
                    '`output = pa.schema([("column", pa.string())])` in the class'
                )
            yield from _columns(("operators", name, "key"), operator.key, stream, classes)
            read.add(stream)
    for name, sink in spec.sinks.items():
        yield from _exists(("sinks", name, "input"), sink.input, classes)
        key = (sink.key,) if sink.key else ()
        yield from _columns(("sinks", name, "key"), key, sink.input, classes)
        read.add(sink.input)
    for node, found in classes.items():
        for output in found.outputs:
            if f"{node}.{output}" not in read:
                yield ("operators", node), (
                    f"operators.{node}: nothing reads the output {output!r} of {found.__name__}; "
                    f"write `input: {node}.{output}` in an operator or sink, or remove it from "
                    "the class"
                )


def _exists(path: tuple[str, ...], stream: str, classes: Classes) -> Iterator[Found]:
    node, dot, output = stream.partition(".")
    if not dot or node not in classes or output in classes[node].outputs:
        return
    known = [f"{node}.{name}" for name in classes[node].outputs]
    close = nearest(stream, known)
    write = close if close and output != MAIN else node
    yield path, (
        f"{'.'.join(path)}: found {shown(stream)}, which {classes[node].__name__} does not "
        f"declare, expected {node} or one of its outputs ({listed(known)}); write `{write}`"
    )


def _is_undeclared(stream: str, classes: Classes) -> bool:
    return stream in classes and classes[stream].output is None


def _columns(
    path: tuple[str, ...], key: tuple[str, ...], stream: str, classes: Classes
) -> Iterator[Found]:
    node = producer(stream)
    output = outputs_of(classes[node]).get(output_of(stream)) if node in classes else None
    if output is None:
        return
    for column in key:
        if column not in output.names:
            close = nearest(column, output.names)
            write = f"write `{close}`" if close else "choose one of them"
            yield path, (
                f"{'.'.join(path)}: found {shown(column)}, expected a column that {stream} "
                f"declares ({listed(output.names)}); {write}"
            )
