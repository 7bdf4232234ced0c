"""The minimal Kafka rights of a job, as rules for Kafka's authorizer. Pure.

A job's workers have a principal of their own. It may read what the job reads, write what the job
writes, and use transactional ids that begin with the job's name: without that rule one job could
fence another by guessing its ids. It cannot write its own tokens; only the coordinator does. The
right to a transactional id implies that to a producer id (KAFKA-5259), and the right to write a
topic that of idempotent writes (KIP-679).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from perseid.jobs.model.spec import JobSpec
from perseid.topics import names
from perseid.topics.clients import GROUP

Resource = Literal["topic", "transactional-id", "group", "cluster"]
CLUSTER = "kafka-cluster"  # the name of every Kafka's own resource
PREFIX = "perseid."  # of every topic and transactional id in `perseid.topics.names`

_READ = ("Read", "Describe")
_WRITE = ("Write", "Describe")
_LOOK = ("Describe", "DescribeConfigs")


@dataclass(frozen=True, slots=True)
class Acl:
    """`principal` may do `operations` on a resource with this name or prefix."""

    principal: str
    operations: tuple[str, ...]
    resource: Resource
    name: str
    prefixed: bool
    why: str

    def command(self) -> str:
        """The same for a shell; $KAFKA are the brokers, admin.properties is an administrator's."""
        words = ["--add", "--allow-principal", self.principal]
        words += [word for operation in self.operations for word in ("--operation", operation)]
        words += [f"--{self.resource}"] + ([self.name] if self.resource != "cluster" else [])
        words += ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        return (
            'kafka-acls.sh --bootstrap-server "$KAFKA" --command-config admin.properties '
            + shlex.join(words)
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)


def of_workers(spec: JobSpec, principal: str) -> tuple[Acl, ...]:
    """The rights of one job's workers."""
    job = spec.name
    rules = [
        _topic(principal, _READ, names.tokens(job), "reads the tokens"),
        _topic(principal, _WRITE, names.progress(job), "reports"),
        _topic(principal, ("Read", "Write", *_LOOK), names.ledger(job), "keeps the ledger"),
        Acl(principal, _WRITE, "transactional-id", f"{PREFIX}{job}.", True, "its transactions"),
        Acl(principal, ("Describe",), "group", GROUP, False, "clients look for its coordinator"),
    ]  # fmt: skip
    if spec.placement.spread > 1:  # Kafka asks for Delete where records are deleted
        rights = ("Read", "Write", "Delete", *_LOOK)
        why = "sends rows between its fragments, and deletes those that are done"
        rules.append(Acl(principal, rights, "topic", names.buffers(job), True, why))
    rules += [_topic(principal, _READ, topic, "reads") for topic in _sources(spec)]
    rules += [
        _topic(principal, ("Write", *_LOOK), t, "writes") for t in sorted(spec.written_topics)
    ]
    return tuple(rules)


def of_coordinator(specs: Sequence[JobSpec], principal: str) -> tuple[Acl, ...]:
    """The rights of coordinators, and of users of `perseid`, for all of these jobs."""
    own = ("Create", "Delete", "Alter", "Read", "Write", *_LOOK)
    rules = [
        Acl(principal, own, "topic", PREFIX, True, "topics that jobs keep for themselves"),
        Acl(principal, _WRITE, "transactional-id", PREFIX, True, "ends transactions of jobs"),
        Acl(principal, ("Describe",), "group", GROUP, False, "clients look for its coordinator"),
        Acl(principal, ("Delete", *_READ), "group", PREFIX, True, "offsets that lag tools look at"),
        Acl(principal, ("DescribeConfigs",), "cluster", CLUSTER, False, "`doctor` asks brokers"),
    ]
    read = {topic for spec in specs for topic in _sources(spec)}
    written = {topic for spec in specs for topic in spec.written_topics}
    for topic in sorted(read | written):
        rights = ["Read", *_LOOK] + (["Create", "Write"] if topic in written else [])
        why = "makes it, and looks at its records" if topic in written else "cuts it into epochs"
        rules.append(_topic(principal, tuple(rights), topic, why))
    return tuple(rules)


def _sources(spec: JobSpec) -> Iterator[str]:
    yield from sorted({source.topic for source in spec.sources.values()})


def _topic(principal: str, operations: tuple[str, ...], name: str, why: str) -> Acl:
    return Acl(principal, operations, "topic", name, False, why)
