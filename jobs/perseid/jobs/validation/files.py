"""Checks the files that a job file names: schemas that parse, modules that exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from perseid.jobs.model import avro_types
from perseid.jobs.model.problems import listed, nearest, shown
from perseid.jobs.model.trees import inside
from perseid.jobs.validation import document as doc
from perseid.jobs.validation import event_time
from perseid.jobs.validation.checks import Draft, Finding

SCHEMA_BYTES_MAX = 256 * 1024


def all_of(draft: Draft, folder: Path) -> Iterator[Finding]:
    for kind, section in (("sources", draft.sources), ("sinks", draft.sinks)):
        for name, block in section.items():
            if block is not None and block.schema_ is not None and block.format in _MISTAKES:
                yield from _schema((kind, name, "schema"), block.schema_, block.format, folder)
    for name, source in draft.sources.items():
        if source is not None and source.format == "avro":
            yield from _avro_source(("sources", name), source, folder)
    for name, operator in draft.operators.items():
        if operator is not None and operator.use is not None:
            yield from _module(("operators", name, "use"), operator.use, folder)


def _schema(path: tuple[str, ...], name: str, format_: str, folder: Path) -> Iterator[Finding]:
    where = ".".join(path)
    file = inside(folder, name)
    if file is None:
        present = [p.name for ending in ("avsc", "json") for p in folder.glob(f"*.{ending}")]
        close = nearest(name, present)
        write = f"write `{close}`" if close else "add the file"
        yield path, f"{where}: found {shown(name)}, expected a file next to job.yaml; {write}"
        return
    if file.stat().st_size > SCHEMA_BYTES_MAX:
        yield path, f"{where}: {name} is larger than {SCHEMA_BYTES_MAX} bytes; make it smaller"
        return
    what, mistake = _MISTAKES[format_]
    wrong = mistake(file)
    if wrong is not None:
        yield path, f"{where}: {name} is no {what} ({wrong}); mend {name}"


def _avro_source(path: tuple[str, ...], source: doc.Source, folder: Path) -> Iterator[Finding]:
    file = inside(folder, source.schema_ or "")
    if file is None or avro_mistake(file) is not None:
        return
    schema = json.loads(file.read_bytes())
    text = avro_types.refusal(schema)
    if text is not None:
        remedy = avro_types.remedy(source.schema_ or "", registry=source.registry is not None)
        yield (*path, "schema"), f"{'.'.join(path)}.schema: {source.schema_} {text}; {remedy}"
    if source.eventTime is not None:
        columns = event_time.avro_columns(schema)
        yield from event_time.check(path, source.eventTime.column, columns)


def avro_mistake(file: Path) -> str | None:
    """Why the file is no Avro record schema, or None."""
    import fastavro

    try:
        raw = json.loads(file.read_bytes())
        fastavro.parse_schema(raw)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return (str(error).splitlines() or [type(error).__name__])[0][:120]
    except Exception as error:  # fastavro's schema errors share no base class but Exception
        return f"{type(error).__name__}: {error}"[:160]
    if not isinstance(raw, dict) or raw.get("type") != "record":
        return "its type is not record"
    return None


def json_mistake(file: Path) -> str | None:
    """Why the file is no JSON Schema of an object, or None."""
    try:
        raw = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        return (str(error) or type(error).__name__)[:120]
    if not isinstance(raw, dict) or raw.get("type") != "object":
        return "its type is not object"
    return None


_MISTAKES = {
    "avro": ("Avro schema of a record", avro_mistake),
    "json": ("JSON Schema of an object", json_mistake),
}


def _module(path: tuple[str, ...], use: str, folder: Path) -> Iterator[Finding]:
    module, name = use.split(":")
    where = ".".join(path)
    if module == "library":
        from perseid.jobs.library.catalogue import NAMES

        if name not in NAMES:
            close = nearest(name, NAMES)
            write = f"write `library:{close}`" if close else f"it has {listed(NAMES)}"
            yield path, f"{where}: found {shown(use)}, which the library does not have; {write}"
        return
    relative = module.replace(".", "/")
    if inside(folder, f"{relative}.py") or inside(folder, f"{relative}/__init__.py"):
        return
    present = [p.stem for p in folder.glob("*.py")]
    close = nearest(module, present)
    write = f"write `{close}:{name}`" if close else f"add {relative}.py with class {name}"
    yield path, (
        f"{where}: found {shown(use)}, expected a module next to job.yaml ({listed(present)}); "
        f"{write}"
    )
