"""Which of `schema`, `registry` and `register` a source or sink of a format may and must have."""

from __future__ import annotations

from collections.abc import Iterator

from perseid.jobs.validation import document as doc

Path = tuple[str, ...]
Finding = tuple[Path, str]


def source(path: Path, block: doc.Source) -> Iterator[Finding]:
    yield from _registry(path, block)
    yield from _schema(path, block, allowed=block.format == "avro")


def sink(path: Path, block: doc.Sink) -> Iterator[Finding]:
    yield from _registry(path, block)
    yield from _schema(path, block, allowed=block.format == "avro" or block.registry is not None)
    if block.register_ is not None and (block.registry is None or block.schema_ is None):
        yield (*path, "register"), (
            f"{'.'.join(path)}.register: decides what to do with a schema of one's own in a schema "
            "registry; write `registry: NAME` and `schema: schema.avsc` too, or remove it"
        )


def _registry(path: Path, block: doc.Source | doc.Sink) -> Iterator[Finding]:
    if block.registry is not None and block.format not in {"avro", "json"}:
        yield (*path, "registry"), (
            f"{'.'.join(path)}.registry: only avro and json have schemas in a registry, the format "
            f"is {block.format}; remove the line, or write `format: avro`"
        )


def _schema(path: Path, block: doc.Source | doc.Sink, *, allowed: bool) -> Iterator[Finding]:
    where = ".".join(path)
    if block.format == "avro" and block.schema_ is None and block.registry is None:
        yield (*path, "schema"), (
            f"{where}.schema: is missing, expected the path of an Avro schema next to job.yaml; "
            "write `schema: schema.avsc`"
        )
    if block.schema_ is not None and not allowed:
        yield (*path, "schema"), (
            f"{where}.schema: only avro has a schema, the format is {block.format}; remove the "
            "line, or write `format: avro`"
        )
