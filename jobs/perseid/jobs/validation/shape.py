"""One block of a job file against its pydantic model: every mistake, with line and remedy."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from perseid.jobs.model.problems import listed, nearest, shown
from perseid.jobs.validation.yamlfile import Node

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]
Found = tuple[int, str]  # line and text


def check(model: type[M], node: Node, where: str) -> tuple[M | None, list[Found]]:
    """The block as a model, or None and its mistakes. `where` is its path, for messages."""
    if not isinstance(node.value, dict):
        text = f"{where or 'the file'}: found {shown(node.plain())}, expected a block of key: value"
        return None, [(node.line, f"{text}; write `{_block(model)}`")]
    plain = node.plain()
    try:
        return model.model_validate(plain), []
    except ValidationError as error:
        found: dict[tuple[int, Path], Found] = {}
        for detail in error.errors(include_url=False):
            path = _file_path(model, tuple(detail["loc"]), plain)
            line = node.line_of(path)
            text = _explain(model, detail, path, where, plain)
            found.setdefault((line, path), (line, text))
        return None, list(found.values())


def _explain(model: type[BaseModel], detail: Any, path: Path, where: str, plain: Any) -> str:
    name = ".".join(filter(None, [where, *(str(p)[:100] for p in path)]))
    kind = detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(model, path, name)
    field = _field(model, path)
    expected = (field.description if field else None) or "another value"
    example = field.examples[0] if field and field.examples else None
    write = f"; write `{path[-1]}: {example}`" if path and example is not None else ""
    if kind == "missing":
        return f"{name}: is missing, expected {expected}{write}"
    if kind == "value_error":
        expected = str(detail["ctx"]["error"])
    if kind == "literal_error" and isinstance(detail["input"], str):
        close = nearest(detail["input"], expected.replace(",", " ").replace(" or ", " ").split())
        write = f"; write `{path[-1]}: {close}`" if close else write
    if kind in {"int_type", "float_type", "bool_type"} and isinstance(detail["input"], str):
        write += " (without quotes)"
    if kind == "string_type" and isinstance(detail["input"], int | float):
        write = f'; write `{path[-1]}: "{detail["input"]}"` (in quotes)' if path else write
    return f"{name}: found {shown(_at(plain, path))}, expected {expected}{write}"


def _unknown_key(model: type[BaseModel], path: Path, name: str) -> str:
    holder = _model_at(model, path[:-1])
    known = list(_aliases(holder)) if holder else []
    close = nearest(str(path[-1]), known)
    remedy = f"write `{close}`" if close else "remove it"
    return f"{shown(name)[1:-1]}: found an unknown key, expected one of {listed(known)}; {remedy}"


def _block(model: type[BaseModel]) -> str:
    needed = [(a, f) for a, f in _aliases(model).items() if f.is_required()]
    shown_fields = needed or list(_aliases(model).items())[:1]
    return "{" + ", ".join(f"{a}: {f.examples[0] if f.examples else '...'}"
                           for a, f in shown_fields) + "}"  # fmt: skip


def _aliases(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {f.alias or name: f for name, f in model.model_fields.items()}


def _file_path(model: type[BaseModel], loc: Path, plain: Any) -> Path:
    """`loc` without what pydantic adds for unions, dictionary keys and the like."""
    path: list[str | int] = []
    value = plain
    for number, part in enumerate(loc):
        if isinstance(value, dict) and part in value:
            path.append(part)
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path.append(part)
            value = value[part]
        elif number == len(loc) - 1 and isinstance(value, dict):
            holder = _model_at(model, tuple(path))
            if holder is not None and part in _aliases(holder):
                path.append(part)  # missing
    return tuple(path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in {Union, types.UnionType}:
        for part in get_args(annotation):
            yield from _models(part)


def _field(model: type[BaseModel], path: Path) -> FieldInfo | None:
    """The deepest field on the path to `path`."""
    found: FieldInfo | None = None
    holder: type[BaseModel] | None = model
    for part in path:
        field = _aliases(holder).get(str(part)) if holder else None
        if field is None:
            break
        found = field
        holder = next(_models(field.annotation), None)
    return found


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    if not path:
        return model
    field = _field(model, path)
    return next(_models(field.annotation), None) if field else None


def _at(plain: Any, path: Path) -> Any:
    for part in path:
        plain = plain[part]
    return plain
