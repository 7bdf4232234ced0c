"""Which topics a job needs, and what for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseid.jobs.model.spec import JobSpec
    from perseid.records import JobEntry, Plan

Roles = dict[str, str]  # topic -> purpose


def of_jobs(data: Path | None) -> dict[str, Roles]:
    """For every applied job the topics that it reads, writes and keeps."""
    from perseid.cli.jobs import connected
    from perseid.jobs.operations import applying

    with connected(data) as cluster, TemporaryDirectory(prefix="perseid-topics-") as cache:
        return {
            name: of_spec(
                applying.revision(cluster, entry.archive, Path(cache)).spec,
                layout_in_force(entry, cluster.registry.plan(name)),
            )
            for name, entry in cluster.registry.jobs().items()
        }


def layout_in_force(entry: JobEntry, plan: Plan | None) -> int | None:
    """The number of the layout in which the entry's revision runs; None while it does not."""
    ours = plan is not None and (plan.job_uuid, plan.archive) == (entry.uuid, entry.archive)
    return plan.layout if plan is not None and ours else None


def of_spec(spec: JobSpec, layout: int | None = None) -> Roles:
    """The topics of one job; a topic with several uses names them all.

    `layout`: the number of the one in force, of which a spread job has buffer topics.
    """
    from perseid.jobs.model.buffers import buffer_specs
    from perseid.jobs.model.layout import build
    from perseid.topics.control import control_topics

    uses = [(s.topic, f"source {name}") for name, s in spec.sources.items()]
    uses += [(s.topic, f"sink {name}") for name, s in spec.sinks.items()]
    if spec.may_have_letters and spec.errors.deadletter_topic is not None:
        uses.append((spec.errors.deadletter_topic, "records that could not be processed"))
    uses += [(t.name, t.why) for t in control_topics(spec.name, 1)]
    if layout is not None:
        uses += [(t.name, t.why) for t in buffer_specs(spec, build(spec, layout))]
    roles: Roles = {}
    for topic, why in uses:
        roles[topic] = f"{roles[topic]}, {why}" if topic in roles else why
    return roles
