"""The rules between the blocks of a job file: names, inputs, cycles, keys, topics.

Pure: each check yields (path in the file, message). A block that is malformed in itself is None in
the draft: its name is known, and it gets no further messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perseid.jobs.library.catalogue import STATELESS
from perseid.jobs.model.layout import DEAD_LETTERS
from perseid.jobs.model.problems import listed, nearest, shown
from perseid.jobs.model.spec import COLUMN_TYPES, producer
from perseid.jobs.validation import document as doc
from perseid.jobs.validation import event_time, feedback, formats

Path = tuple[str, ...]
Finding = tuple[Path, str]

_SQL_BEGINS = re.compile(r"(?:[\s(]|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)  # its first word
_MEMORY_LEAST = 1 << 10  # no state fits into less: certainly a mistake
INPUT_NAME = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")
_MEANT = {
    "str": "string", "text": "string", "int": "int64", "integer": "int64", "long": "int64",
    "bigint": "int64", "int32": "int64", "float": "float64", "double": "float64",
    "boolean": "bool", "bytes": "binary", "datetime": "timestamp", "date": "timestamp",
}  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """The blocks of a job file, each well-formed or None. `errors` is None when it is malformed.

    `reads` has the path of every input, of malformed blocks too, with the name that is read.
    """

    name: str
    sources: dict[str, doc.Source | None]
    operators: dict[str, doc.Operator | None]
    sinks: dict[str, doc.Sink | None]
    errors: doc.Errors | None
    reads: dict[Path, str]


def all_of(draft: Draft) -> Iterator[Finding]:
    yield from _names(draft)
    for path, target in draft.reads.items():
        yield from _exists(path, target, draft)
    for name, source in draft.sources.items():
        if source is not None:
            yield from _source(("sources", name), source)
    for name, operator in draft.operators.items():
        if operator is not None:
            yield from _operator(("operators", name), operator, draft)
    for name, sink in draft.sinks.items():
        if sink is not None:
            yield from _sink(("sinks", name), sink, draft)
    yield from _cycles(draft)
    yield from _topics(draft)
    yield from _unread(draft)


def inputs_of(operator: doc.Operator) -> dict[str, str]:
    """Input names with what they read, feedback too; malformed values are left out."""
    if operator.input is not None:
        return {"input": operator.input}
    plain = {k: v for k, v in (operator.inputs or {}).items() if isinstance(v, str)}
    found = plain | feedback.edges(operator)
    return {name: found[name] for name in operator.inputs or {} if name in found}


def _names(draft: Draft) -> Iterator[Finding]:
    for kind, block in (("sources", draft.sources), ("operators", draft.operators),
                        ("sinks", draft.sinks)):  # fmt: skip
        for name in block:
            if not re.fullmatch(doc.NAME, name):
                better = re.sub(r"[^a-z0-9]+", "-", name[:63].lower()).strip("-0123456789")
                yield (kind, name), (
                    f"{kind}: found the name {shown(name)}, expected {doc.NAME_EXPECTED}; "
                    f"write `{better or kind[:-1]}`"
                )
            if name == DEAD_LETTERS and kind != "sinks":
                yield (kind, name), (
                    f"{kind}.{name}: the name {DEAD_LETTERS} is perseid's own; "
                    "choose another name"
                )
    for name in draft.operators.keys() & draft.sources.keys():
        yield ("operators", name), (
            f"operators.{shown(name)[1:-1]}: a source has the same name, expected one name for "
            "one thing; rename the source or the operator"
        )


def _source(path: Path, source: doc.Source) -> Iterator[Finding]:
    where = ".".join(path)
    if source.format == "json" and not source.columns:
        yield (*path, "columns"), (
            f"{where}.columns: is missing, expected the columns of the json records; "
            "write `columns: {user: string, ms: int64}`"
        )
    if source.format != "json" and source.columns is not None:
        yield (*path, "columns"), (
            f"{where}.columns: only json sources declare columns, {source.format} has "
            f"{'those of its schema' if source.format == 'avro' else '`value`'}; remove the line"
        )
    for column, kind in (source.columns or {}).items():
        if not re.fullmatch(doc.COLUMN, column):
            yield (*path, "columns", column), (
                f"{where}.columns: found the name {shown(column)}, expected letters, digits and "
                "'_'; rename the column"
            )
        if kind not in COLUMN_TYPES:
            close = _MEANT.get(kind.lower()) or nearest(kind, COLUMN_TYPES) or "string"
            yield (*path, "columns", column), (
                f"{where}.columns.{shown(column)[1:-1]}: found {shown(kind)}, expected one of "
                f"{', '.join(COLUMN_TYPES)}; write `{close}`"
            )
    yield from formats.source(path, source)
    if source.eventTime is not None and source.format != "avro":
        yield from event_time.check(path, source.eventTime.column, source.columns or {})


def _operator(path: Path, operator: doc.Operator, draft: Draft) -> Iterator[Finding]:
    where = ".".join(path)
    yield from _inputs(path, operator, draft)
    if (operator.sql is None) == (operator.use is None):
        found = "neither" if operator.sql is None else "both"
        yield path, (
            f"{where}: found {found} of sql and use, expected one of them; write "
            '`sql: "SELECT ... FROM input"` or `use: "module:Class"`'
        )
    inputs = (operator.inputs or {}).keys() | ({"input"} if operator.input else set())
    if operator.sql is not None:
        begun = _SQL_BEGINS.match(operator.sql)
        if begun is None or begun[1].upper() not in {"SELECT", "WITH"}:
            yield (*path, "sql"), (
                f"{where}.sql: found {shown(operator.sql)}, expected a query and no command; write "
                '`sql: "SELECT ... FROM input"`'
            )
        if operator.key:
            yield (*path, "key"), (
                f"{where}.key: a SQL operator works row by row and has no key; remove the line, "
                'or write `use: "module:Class"` instead of sql'
            )
        if len(inputs) > 1:
            yield (*path, "inputs"), (
                f"{where}.inputs: a SQL operator has one input, found {len(inputs)}; write "
                '`input: NAME`, or join with `use: "module:Class"` and a key'
            )
        if operator.with_:
            yield (*path, "with"), (
                f"{where}.with: a SQL operator has no parameters; write the values into its sql"
            )
    elif operator.use is not None and not operator.key:
        if len(inputs) > 1:
            yield path, (
                f"{where}: an operator of several inputs needs a key that all of them have; "
                "write `key: COLUMN`"
            )
        if operator.use.startswith("library:") and operator.use[8:] not in STATELESS:
            yield path, f"{where}.key: {operator.use} needs a key; write `key: COLUMN`"
    yield from _keys(path, operator, draft)
    yield from _memory(path, operator)


def _memory(path: Path, operator: doc.Operator) -> Iterator[Finding]:
    if operator.memory is None:
        return
    where = f"{'.'.join(path)}.memory"
    if not operator.key:
        yield (*path, "memory"), (
            f"{where}: limits state, and an operator without a key holds none; remove the line"
        )
    elif operator.memory < _MEMORY_LEAST:
        yield (*path, "memory"), (
            f"{where}: found {operator.memory} bytes, expected 1KiB or more for all partitions; "
            'write `memory: "512MiB"`'
        )


def _inputs(path: Path, operator: doc.Operator, draft: Draft) -> Iterator[Finding]:
    where = ".".join(path)
    if (operator.input is None) == (operator.inputs is None):
        found = "neither" if operator.input is None else "both"
        yield path, (
            f"{where}: found {found} of input and inputs, expected one of them; "
            "write `input: NAME` or `inputs: {left: NAME, right: NAME}`"
        )
    if operator.inputs is not None and not operator.inputs:
        yield (*path, "inputs"), f"{where}.inputs: is empty; write `input: NAME`"
    for name, target in (operator.inputs or {}).items():
        if not INPUT_NAME.fullmatch(name):
            yield (*path, "inputs", name), (
                f"{where}.inputs: found the name {shown(name)}, expected a-z, 0-9 and '_'; "
                "rename the input"
            )
        if not isinstance(target, str | dict):
            yield (*path, "inputs", name), (
                f"{where}.inputs.{shown(name)[1:-1]}: found {shown(target)}, expected the name of "
                f"a source or operator; write one of {listed([*draft.sources, *draft.operators])}"
            )
    yield from feedback.check(path, operator, draft.operators)


def _exists(path: Path, target: str, draft: Draft) -> Iterator[Finding]:
    known = [*draft.sources, *draft.operators]
    if target in known:
        return
    where = ".".join(shown(p)[1:-1] for p in path)
    node = producer(target)
    if node in known:
        yield from _has_outputs(path, target, draft)
        return
    if target in draft.sinks:
        sink = draft.sinks[target]
        write = f"; write `{sink.input}`, which it reads" if sink else ""
        yield path, f"{where}: {shown(target)} is a sink, which has no output{write}"
        return
    close = nearest(node, known)
    meant = target.replace(node, close or "", 1)
    write = f"write `{meant}`" if close else f"write one of {listed(known)}"
    yield path, (
        f"{where}: found {shown(target)}, expected the name of a source or operator; {write}"
    )


def _has_outputs(path: Path, target: str, draft: Draft) -> Iterator[Finding]:
    """Loading a class determines its outputs (`perseid.jobs.operations.classes`)."""
    node, operator = producer(target), draft.operators.get(producer(target))
    if node in draft.operators and (operator is None or operator.sql is None):
        return
    what = "a SQL operator" if node in draft.operators else "a source"
    yield path, (
        f"{'.'.join(shown(p)[1:-1] for p in path)}: found {shown(target)}, but {node} is {what}, "
        f"which has one output; write `{node}`"
    )


def _known_columns(name: str, draft: Draft) -> list[str] | None:
    source = draft.sources.get(name)
    if source is None or source.format == "avro":
        return None
    if source.format == "json":
        return list(source.columns) if source.columns else None
    return ["value"]


def _keys(path: Path, operator: doc.Operator, draft: Draft) -> Iterator[Finding]:
    for target in dict.fromkeys(inputs_of(operator).values()):
        yield from _has_columns((*path, "key"), operator.key or (), target, draft)


def _has_columns(
    path: Path, columns: tuple[str, ...], target: str, draft: Draft
) -> Iterator[Finding]:
    known = _known_columns(target, draft)
    for column in columns:
        if known is not None and column not in known:
            close = nearest(column, known)
            write = f"write `{close}`" if close else "choose one of them"
            yield path, (
                f"{'.'.join(path)}: found {shown(column)}, expected a column of {target} "
                f"({listed(known)}); {write}"
            )


def _sink(path: Path, sink: doc.Sink, draft: Draft) -> Iterator[Finding]:
    where = ".".join(path)
    yield from formats.sink(path, sink)
    yield from _has_columns((*path, "key"), (sink.key,) if sink.key else (), sink.input, draft)
    if sink.order == "free":
        return
    operator = draft.operators.get(producer(sink.input))
    if operator is not None and operator.key and operator.key != (sink.key,):
        found = f"found {shown(sink.key)}" if sink.key else "is missing"
        one = f"`key: {operator.key[0]}`" if len(operator.key) == 1 else "one column as both keys"
        yield (*path, "key"), (
            f"{where}.key: {found}, expected the key of {sink.input} "
            f"({', '.join(operator.key)}), else the order of a key's records is lost; write {one}, "
            "or `order: free` if their order does not matter"
        )
    if operator is None or not operator.key:
        yield from _same_key(path, sink, draft)


def _same_key(path: Path, sink: doc.Sink, draft: Draft) -> Iterator[Finding]:
    """Rows of a stateless input are assigned to writers by one key, so its sinks must share it."""
    for name, other in draft.sinks.items():
        if name == path[1]:
            return
        if other and other.input == sink.input and other.order != "free" and other.key != sink.key:
            yield (*path, "key"), (
                f"{'.'.join(path)}.key: found {shown(sink.key)}, expected {shown(other.key)} as in "
                f"sinks.{name}, which has the same stateless input; write the same key, or "
                "`order: free` if their order does not matter"
            )
            return


def _cycles(draft: Draft) -> Iterator[Finding]:
    reads: dict[str, list[str]] = {name: [] for name in draft.operators}
    for (kind, name, *_), target in draft.reads.items():
        if kind == "operators" and producer(target) in draft.operators:
            reads[name].append(producer(target))
    done: set[str] = set()
    for start in reads:
        trail: list[str] = []
        node: str | None = start
        while node is not None and node not in done:
            if node in trail:
                cycle = [*trail[trail.index(node):], node]
                yield ("operators", node), (
                    f"operators.{node}: the operators {' <- '.join(cycle)} read each other, "
                    "expected no cycle; let one of them read a source, or the epoch before: "
                    f"`{feedback.FORM}`"
                )
                break
            trail.append(node)
            node = _next(node, reads, done)
        done.update(trail)


def _next(node: str, reads: dict[str, list[str]], done: set[str]) -> str | None:
    """An operator above `node` from which a cycle can still be reached, else None."""
    open_ = [i for i in reads.get(node, []) if i not in done]
    return next((i for i in open_ if _reaches_itself(i, reads)), None)


def _reaches_itself(start: str, reads: dict[str, list[str]]) -> bool:
    seen: set[str] = set()
    todo = list(reads.get(start, []))
    while todo:
        node = todo.pop()
        if node == start:
            return True
        if node not in seen:
            seen.add(node)
            todo.extend(reads.get(node, []))
    return False


def _topics(draft: Draft) -> Iterator[Finding]:
    writers: dict[str, Path] = {}
    written = [(("sinks", n), s.topic) for n, s in draft.sinks.items() if s is not None]
    dlq = draft.errors.deadletterqueue if draft.errors else None
    if dlq is not None:
        written.append((("errors", "deadletterqueue"), dlq.topic))
    read = {s.topic: n for n, s in draft.sources.items() if s is not None}
    own = f"perseid.{draft.name}.dlq"
    for path, topic in written:
        where = ".".join(path)
        if topic in writers:
            yield (*path, "topic"), (
                f"{where}.topic: {shown(topic)} is written by {'.'.join(writers[topic])} too, "
                "expected a topic of its own; write another topic"
            )
        writers.setdefault(topic, path)
        if topic in read:
            yield (*path, "topic"), (
                f"{where}.topic: {shown(topic)} is what sources.{read[topic]} reads, so the job "
                "would read its own output without end; write another topic"
            )
        if topic.startswith("perseid.") and topic != own:
            yield (*path, "topic"), (
                f"{where}.topic: found {shown(topic)}, but names that begin with 'perseid.' are "
                f"perseid's own; write `{topic[8:] or 'output'}`"
            )


def _unread(draft: Draft) -> Iterator[Finding]:
    read = set(map(producer, draft.reads.values()))
    for name in draft.sources:
        if name not in read:
            yield ("sources", name), (
                f"sources.{shown(name)[1:-1]}: nothing reads it; write `input: {name[:60]}` in an "
                "operator or sink, or remove it"
            )
    for name, operator in draft.operators.items():
        if name not in read and operator is not None and not operator.key:
            yield ("operators", name), (
                f"operators.{shown(name)[1:-1]}: nothing reads it and it keeps no state; write "
                f"`input: {name[:60]}` in an operator or sink, or remove it"
            )
