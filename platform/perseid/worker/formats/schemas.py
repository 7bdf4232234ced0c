"""The schema registries that this process uses, and its cache of their answers."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from perseid.errors import PermanentError
from perseid.topics.schema_registry import (
    KINDS,
    HttpSchemaRegistry,
    Schema,
    SchemaRegistry,
    subject_of,
)
from perseid.worker.formats.wire_format import KnownSchemas

if TYPE_CHECKING:
    from perseid.jobs.model.spec import SinkSpec
    from perseid.records import Deployment

Address = tuple[str, str]  # name and URL


def address(deployment: Deployment, name: str) -> Address:
    """Name and URL of the registry `name` of a job file; PermanentError if it is not listed."""
    url = deployment.schema_registries.get(name)
    if url is None:
        raise PermanentError(
            f"schema registry {name!r} is not on this deployment's list (it has "
            f"{', '.join(sorted(deployment.schema_registries)) or 'none'}); set "
            f"PERSEID_SCHEMA_REGISTRIES={name}=URL for its workers and start the job again"
        )
    return name, url


@cache
def known(where: Address) -> KnownSchemas:
    """A registry's schemas by id, shared by all sources of all jobs of this process."""
    return KnownSchemas(_registry(where))


def sink_id(deployment: Deployment, sink: SinkSpec, schema: str) -> int:
    """The id under which `perseid jobs apply` has found the sink's schema registered."""
    assert sink.registry is not None, "only sinks with a registry have ids"
    where = address(deployment, sink.registry)
    return _id(where, subject_of(sink.topic), Schema(KINDS[sink.format], schema))


@lru_cache(maxsize=1024)
def _id(where: Address, subject: str, schema: Schema) -> int:
    found = _registry(where).id_of(subject, schema)
    if found is None:
        raise PermanentError(
            f"the sink's schema is not registered under subject {subject} of schema registry "
            f"{where[0]}: it was removed; apply the job again"
        )
    return found


@cache
def _registry(where: Address) -> SchemaRegistry:
    return HttpSchemaRegistry(*where)
