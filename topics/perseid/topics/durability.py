"""Settings that lose acknowledged records or prevent writing. Pure.

`acks=all` waits for the copies that are in sync, at least `min.insync.replicas` of them: with three
copies and a minimum of one, a commit may exist on one broker only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perseid.topics.admin import TopicInfo

COPIES = 3  # of what must not be lost, if there are so many brokers
TRANSACTION_LOG = "__transaction_state"  # made by the first transaction
_FACTOR, _MIN_ISR = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"


@dataclass(frozen=True, slots=True)
class Weakness:
    """A setting of `what`, why it is bad, and what to type or do. `stops`: nothing is written."""

    what: str
    found: str
    expected: str
    remedy: str
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.what} has {self.found}, expected {self.expected}; {self.remedy}"


def of_topic(info: TopicInfo, brokers: int) -> Iterator[Weakness]:
    """The weaknesses of a topic on so many brokers; a single broker has no better setting."""
    what, least = f"topic {info.name}", info.min_insync_replicas
    if info.replicas == 0:
        return  # unknown
    if least > info.replicas:
        yield Weakness(
            what, f"min.insync.replicas={least} of {info.replicas} copies",
            "no more than there are copies: nothing can be written",
            alter(info.name, "min.insync.replicas", str(max(1, info.replicas - 1))), stops=True,
        )  # fmt: skip
    if info.replicas == 1 and brokers > 1:
        yield Weakness(
            what, "one copy", f"{min(COPIES, brokers)}: with its broker go acknowledged records",
            f"give it more with `kafka-reassign-partitions`, then "
            f"{alter(info.name, 'min.insync.replicas', '2')}",
        )  # fmt: skip
    elif info.replicas > 1 and least == 1:
        yield Weakness(
            what, f"min.insync.replicas=1 of {info.replicas} copies",
            "2: with 1 a commit stands on one broker alone and may be lost with it",
            alter(info.name, "min.insync.replicas", "2"),
        )  # fmt: skip
    if info.unclean_elections and info.replicas > 1:
        yield Weakness(
            what, "unclean.leader.election.enable=true",
            "false: a copy that lags may lead, and what it lacks is lost",
            alter(info.name, "unclean.leader.election.enable", "false"),
        )  # fmt: skip


def of_transactions(
    settings: Mapping[int, Mapping[str, str]], log: TopicInfo | None
) -> Iterator[Weakness]:
    """Why no transaction can begin, from the brokers' settings and the transaction log.

    `log`: None before the first transaction. On a small cluster with the defaults of a large one
    `init_transactions` never returns.
    """
    count = len(settings)
    if log is not None:
        if log.min_insync_replicas > count:
            yield Weakness(
                f"topic {log.name}", f"min.insync.replicas={log.min_insync_replicas}",
                f"at most {count}, the number of brokers: no transaction can begin",
                alter(log.name, "min.insync.replicas", str(max(1, count - 1))), stops=True,
            )  # fmt: skip
        return
    for broker, found in sorted(settings.items()):
        for name in (_FACTOR, _MIN_ISR):
            value = int(found.get(name, "1"))
            if value > count:
                yield Weakness(
                    f"broker {broker}", f"{name}={value}",
                    f"at most {count}, the number of brokers: no transaction can begin",
                    f"set {name}={min(count, 3 if name == _FACTOR else max(1, count - 1))} in the "
                    f"broker's server.properties and restart broker {broker}", stops=True,
                )  # fmt: skip


def alter(topic: str, name: str, value: str) -> str:
    """What to type to change a topic's setting."""
    return (
        f"`kafka-configs --alter --entity-type topics --entity-name {topic} "
        f"--add-config {name}={value}`"
    )
