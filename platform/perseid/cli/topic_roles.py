"""Which topics a job needs, and what for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec

Roles = dict[str, str]  # topic -> purpose


def of_jobs(data: Path | None) -> dict[str, Roles]:
    """For every applied job the topics that it reads, writes and keeps."""
    from perseid.embedded import deployment
    from perseid.jobs.model.trees import fetch_archive
    from perseid.jobs.validation import parse
    from perseid.registry.facade import Registry
    from perseid.state.durability.store import open_store

    found = deployment(data)
    registry = Registry.connect(found)
    try:
        entries = registry.jobs()
    finally:
        registry.close()
    store = open_store(found.store)
    with tempfile.TemporaryDirectory(prefix="perseid-topics-") as cache:
        return {
            name: of_spec(parse.load(fetch_archive(store, entry.archive, Path(cache))))
            for name, entry in entries.items()
        }


def of_spec(spec: JobSpec) -> Roles:
    """The topics of one job; a topic with several uses names them all."""
    from perseid.topics.control import control_topics

    uses = [(s.topic, f"source {name}") for name, s in spec.sources.items()]
    uses += [(s.topic, f"sink {name}") for name, s in spec.sinks.items()]
    if spec.may_have_letters and spec.errors.deadletter_topic is not None:
        uses.append((spec.errors.deadletter_topic, "records that could not be processed"))
    uses += [(t.name, t.why) for t in control_topics(spec.name, 1)]
    roles: Roles = {}
    for topic, why in uses:
        roles[topic] = f"{roles[topic]}, {why}" if topic in roles else why
    return roles
