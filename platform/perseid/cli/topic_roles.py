"""Which topics a job needs, and what for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec

Roles = dict[str, str]  # topic -> purpose


def of_jobs(data: Path | None) -> dict[str, Roles]:
    """For every applied job the topics that it reads, writes and keeps."""
    from perseid.cli.jobs import connected
    from perseid.jobs.operations import applying

    with connected(data) as cluster, TemporaryDirectory(prefix="perseid-topics-") as cache:
        return {
            name: of_spec(applying.revision(cluster, entry.archive, Path(cache)).spec)
            for name, entry in cluster.registry.jobs().items()
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
