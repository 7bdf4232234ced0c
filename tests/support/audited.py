"""Audits of a ranked job on a running cluster, by the command that users type."""

from __future__ import annotations

from typing import Any

from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from perseid.testing.stack import Ran
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.admin import TopicAdmin
from perseid.topics.records import FragmentState, PartDone
from support.ranks import RankedJob

AUDIT_S = 400.0  # a Spark starts next to two busy ones
STOPPED_S = 60.0
LOAD = 1500  # rows: five epochs at least


def audit(
    running: RunningCluster, job: RankedJob, *arguments: str, timeout_s: float = AUDIT_S
) -> Ran:
    return running.run("replay", job.name, *arguments, timeout_s=timeout_s)


def found(ran: Ran, code: int) -> dict[str, Any]:
    assert ran.code == code, f"{ran.code} {ran.document} {ran.stderr[-4000:]}"
    document: dict[str, Any] = ran.document
    return document


def reports(running: RunningCluster, job: str) -> list[object]:
    """What the workers have reported, but for parts: those of a stopped job are uploaded later."""
    topic = names.progress(job)
    found = (codec.decode(record.value or b"") for record in read_topic(running.kafka, topic))
    return [record for record in found if not isinstance(record, PartDone)]


def written(running: RunningCluster, job: str, *, live: bool = False) -> object:
    """What an audit must not write; a live job writes its control topics itself."""
    topics = TopicAdmin(running.kafka)
    control = [] if live else [names.tokens(job), names.ledger(job)]
    infos = topics.describe([f"{job}-out", *control])
    places = [(name, p) for name, info in infos.items() for p in range(info.partitions)]
    return topics.ends(places, committed=False), [] if live else reports(running, job)


def generation(running: RunningCluster, job: str) -> int:
    registry = Registry.connect(running.cluster.deployment)
    try:
        return registry.generation(job)
    finally:
        registry.close()


def stop(running: RunningCluster, job: str) -> None:
    """The last report of its worker comes after the command's answer."""

    def is_over() -> bool:
        *_, last = (one for one in reports(running, job) if isinstance(one, FragmentState))
        return last.state == "stopped"

    running.do("jobs", "stop", job)
    until(is_over, STOPPED_S, f"the report that {job} has stopped")
