"""The changes between two revisions of a job, and whether its state can be kept.

Pure. State is kept only when all of it keeps its meaning and is used: the same keyed operators with
the same key, and the same primitives or a `migrate` for other ones. Under another parallelism, only
state is kept that can be redistributed by that key, or by the operator itself. All else may change
freely: SQL, code, stateless operators, sinks, settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Any

from perseid.jobs.model.layout import is_keyed, upstream
from perseid.jobs.model.problems import listed, shown
from perseid.jobs.model.spec import JobSpec, OperatorSpec, SinkSpec, pinned_file, producer
from perseid.jobs.model.trees import JOB_FILE
from perseid.jobs.operator import Operator, migrates, rescales

Classes = Mapping[str, type[Operator]]
LIBRARY = "library"
SINKS_PINNED = pinned_file("sink", "").removesuffix(".json")


def difference(old: JobSpec | None, new: JobSpec | None) -> list[str]:
    """One line per change, `+` new, `-` gone, `~` other; empty when the specs are equal."""
    before = _flat(old.model_dump()) if old else {}
    after = _flat(new.model_dump()) if new else {}
    lines = []
    for path in [*before, *(p for p in after if p not in before)]:
        if path not in after:
            lines.append(f"- {path}: {shown(before[path])}")
        elif path not in before:
            lines.append(f"+ {path}: {shown(after[path])}")
        elif before[path] != after[path]:
            lines.append(f"~ {path}: {shown(before[path])} -> {shown(after[path])}")
    return lines


def file_difference(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    """A unified diff of the files of two revisions, job.yaml included."""
    import difflib

    lines: list[str] = []
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            before = old.get(path, b"").decode("utf-8", "replace").splitlines()
            after = new.get(path, b"").decode("utf-8", "replace").splitlines()
            lines += difflib.unified_diff(
                before, after, path if path in old else "/dev/null",
                path if path in new else "/dev/null", lineterm="",
            )  # fmt: skip
    return lines


def state_schemas(spec: JobSpec, classes: Classes) -> dict[str, dict[str, Any]]:
    """The schema of each keyed operator's state, as JSON; equal means interchangeable."""
    from perseid.state import schema_of

    return {
        name: {
            "key": list(operator.key),
            "primitives": schema_of(classes[name]),
        }
        for name, operator in spec.operators.items() if is_keyed(operator)
    }  # fmt: skip


def disagreements(
    old: JobSpec, old_classes: Classes, new: JobSpec, new_classes: Classes
) -> list[str]:
    """Why the new revision cannot continue with the old one's state; empty when it can."""
    return [*_sources(old, new), *_partitions(old, new, new_classes),
            *_states(state_schemas(old, old_classes), state_schemas(new, new_classes),
                     {name for name, kind in new_classes.items() if migrates(kind)})]  # fmt: skip


def resized(old: JobSpec, new: JobSpec) -> list[str]:
    """The keyed operators whose state is redistributed, as in "counts 1 -> 3"."""
    return [f"{name} {sizes}" for name, sizes in _sizes(old, new).items()]


def _sizes(old: JobSpec, new: JobSpec) -> dict[str, str]:
    return {
        name: f"{old.operators[name].parallelism} -> {operator.parallelism}"
        for name, operator in new.operators.items()
        if is_keyed(operator) and name in old.operators
        and old.operators[name].parallelism != operator.parallelism
    }  # fmt: skip


def needs_new_layout(old: JobSpec, new: JobSpec) -> bool:
    """Whether operators, keys, parallelism, a sink's input or `placement.spread` changed.

    See architecture.md, Layout.
    The levels of operators count too: they decide which task an operator partition is.
    """
    return old.placement.spread != new.placement.spread or _layout(old) != _layout(new)


def incompatibilities(old: JobSpec, new: JobSpec) -> list[str]:
    """Why an epoch that ran in part under the old revision cannot be ended under the new one.

    Empty when the same tasks write the same sinks. `upstream_fingerprint` covers their input.
    """
    found = [f"sink {name} is not the same"
             for name in sorted(old.sinks.keys() | new.sinks.keys())
             if _written(old.sinks.get(name)) != _written(new.sinks.get(name))]  # fmt: skip
    if _layout(old) != _layout(new):
        found.append("operators, their inputs, keys or parallelism are others")
    if old.placement.spread != new.placement.spread:
        found.append("`placement.spread` is not the same")
    return found


def _written(sink: SinkSpec | None) -> SinkSpec | None:
    return sink.model_copy(update={"partitions": None}) if sink is not None else None


def code(files: Mapping[str, bytes]) -> str:
    """A digest of all files but job.yaml."""
    shown = [(path, sha256(files[path]).hexdigest()) for path in sorted(files) if path != JOB_FILE]
    return sha256(json.dumps(shown).encode()).hexdigest()


def only_loosens(old: JobSpec, new: JobSpec) -> bool:
    """Whether `new`, with the same code, gives the same results wherever `old` did not fail.

    True when only limits, times and sizes differ, or when records are refused that stopped the job.
    """
    if incompatibilities(old, new) or _computed(old) != _computed(new):
        return False
    stricter = old.errors.tolerance == "all" != new.errors.tolerance
    return not stricter and all(
        operator.errors in ("stop", new.operators[name].errors)
        for name, operator in old.operators.items()
    )


def _computed(spec: JobSpec) -> dict[str, Any]:
    """The spec without timing, batch sizes and failure limits."""
    settings = {"audit": True, "errors": True, "epoch": True, "fault_tolerance": True}
    each = {"__all__": {"errors", "memory_bytes"}}
    bound = {"buffer_bytes": True}
    return spec.model_dump(exclude={**settings, "operators": each, "placement": bound})


def upstream_fingerprint(spec: JobSpec, files: Mapping[str, bytes]) -> str:
    """A digest of everything that determines the rows of keyed operators and their partitions.

    That is: sources and their schema files, SQL, and operators without a key before a keyed one. If
    one of those is Python, all files count except job.yaml and those of keyed operators that no
    other counted file names.
    """
    ahead = _ahead(spec)
    code = {path for o in ahead.values() for path in _files_of(o)}
    keyed = {path for o in spec.operators.values() if is_keyed(o) for path in _files_of(o)}
    read = {s.schema_file for s in spec.sources.values()}
    mine = {path for path in files if path in read}
    if code:
        mine |= {p for p in files if p not in keyed - code and not p.startswith(SINKS_PINNED)}
        mine = _with_named(mine, keyed, files) - {JOB_FILE}
    shown = [
        {n: s.model_dump(mode="json", exclude={"start"}) for n, s in sorted(spec.sources.items())},
        {n: o.model_dump(mode="json", exclude={"errors"}) for n, o in sorted(ahead.items())},
        [(path, sha256(files[path]).hexdigest()) for path in sorted(mine)],
    ]
    return sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _ahead(spec: JobSpec) -> dict[str, OperatorSpec]:
    """The operators without a key that lead to a keyed one, or that write dead letters.

    Rows that one of these refuses are committed as dead letters by one task and skipped by the
    others.
    """
    keyed = filter(is_keyed, spec.operators.values())
    names = [producer(stream) for o in keyed for stream in o.inputs.values()]
    names += [name for name, o in spec.operators.items() if o.errors == "bisect"]
    return upstream(spec, names, keyed=False)


def _files_of(operator: OperatorSpec) -> list[str]:
    """Where its class may be; none for the library and for SQL."""
    module, _, _ = (operator.use or "").partition(":")
    path = module.replace(".", "/")
    return [f"{path}.py", f"{path}/__init__.py"] if module not in ("", LIBRARY) else []


def _with_named(
    mine: Collection[str], others: AbstractSet[str], files: Mapping[str, bytes]
) -> set[str]:
    """Adds those of `others` whose module a Python file among them names, and so may import."""
    found = set(mine)
    while True:
        texts = [files[path] for path in found if path.endswith(".py")]
        named = {
            path for path in others - found
            if path in files and any(_module_of(path) in text for text in texts)
        }  # fmt: skip
        if not named:
            return found
        found |= named


def _module_of(path: str) -> bytes:
    return path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2].encode()


def _layout(spec: JobSpec) -> list[Any]:
    from perseid.jobs.model.layout import build

    tasks = [(t.operator, t.partition, t.level, t.stateful, t.ledger) for t in build(spec, 0).tasks]
    operators = [
        (n, o.inputs, o.feedback, o.key, o.parallelism, o.sql is None)
        for n, o in spec.operators.items()
    ]
    return [sorted(tasks), sorted(operators, key=lambda o: o[0])]


def _sources(old: JobSpec, new: JobSpec) -> Iterator[str]:
    for name in old.sources.keys() & new.sources.keys():
        before, after = old.sources[name].topic, new.sources[name].topic
        if before != after:
            yield (
                f"source {name} reads {after} instead of {before}, whose offsets it would "
                "continue with; give the source of the other topic another name"
            )


def _partitions(old: JobSpec, new: JobSpec, classes: Classes) -> Iterator[str]:
    """State that cannot be redistributed over another number of partitions."""
    from perseid.state.primitives.primitive import keyless

    for name, sizes in _sizes(old, new).items():
        kind, operator = classes[name], new.operators[name]
        lost = keyless(kind, operator.key)
        if lost and not rescales(kind):
            yield (
                f"operator {name}: parallelism {sizes}, but {listed(lost)} of "
                f"{kind.__name__} cannot be redistributed by the key {', '.join(operator.key)}; "
                f"keep `parallelism: {old.operators[name].parallelism}`, or add a method "
                f"rescale(self, old) to {kind.__name__} that returns its new state"
            )


def _states(
    old: Mapping[str, Any], new: Mapping[str, Any], migrating: Collection[str]
) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"operator {name}: is gone, and its state would be lost"
        elif name not in old:
            yield f"operator {name}: is new and keyed, but the checkpoint has no state for it"
        else:
            yield from _state(name, old[name], new[name], migrates=name in migrating)


def _state(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], *, migrates: bool
) -> Iterator[str]:
    if old["key"] != new["key"]:
        yield f"operator {name}: key {', '.join(old['key'])} -> {', '.join(new['key'])}"
    yield from _primitives(name, old["primitives"], new["primitives"], migrates=migrates)


def _primitives(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any], *, migrates: bool
) -> Iterator[str]:
    """With a `migrate` a primitive may have other columns; its keys determine its partition."""
    if migrates:
        both = old.keys() & new.keys()
        old, new = ({n: {"key": p[n].get("key")} for n in both} for p in (old, new))
    before, after = _flat(old), _flat(new)
    different = [p for p in sorted(before.keys() | after.keys()) if before.get(p) != after.get(p)]
    for path in different:
        yield (
            f"operator {name}: state {path}: {before.get(path, 'absent')} -> "
            f"{after.get(path, 'absent')}"
        )
    if different and not migrates:
        yield (
            f"operator {name}: to keep the state, add a method migrate(self, old) to its class, "
            "which makes the new rows of the old ones (jobs/CHANGING_JOBS.md)"
        )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Flattens nested mappings to dotted paths; leaves out empty mappings and unset values."""
    if not isinstance(value, Mapping):
        return {} if value is None or value in ((), [], "") else {path: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{path}.{key}" if path else str(key))
    return found
