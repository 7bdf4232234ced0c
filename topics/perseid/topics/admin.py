"""Topics and offsets: explicit creation, identity, start and end of a partition.

Every call has a time limit. A missing answer of the broker is a RetryableError; a missing topic is
a TransientAnswer that names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perseid.errors import PermanentError, PerseidError, RetryableError, TransientAnswer
from perseid.records.access import Bootstrap
from perseid.topics import clients, group_deletion
from perseid.topics.names import check_topic

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

Partition = tuple[str, int]  # topic, partition number

_TRIES = 6  # for offsets of partitions that the cluster is still creating
_RETRY_S = 0.03

PATIENCE_MAX = 64  # times the time limit, between clients that are abandoned in a row

MESSAGE_BYTES_MAX = 1_048_588  # Kafka's default of max.message.bytes
RETENTION_MS = 604_800_000  # Kafka's default of retention.ms: a week


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's properties. `topic_id` is new whenever a topic of that name is created."""

    name: str
    topic_id: str
    partitions: int
    cleanup_policy: str = "delete"
    message_bytes_max: int = MESSAGE_BYTES_MAX
    retention_ms: int = RETENTION_MS  # -1: unlimited
    stamped: str = "CreateTime"  # by producers; "LogAppendTime": by the broker
    retention_bytes: int = -1
    replicas: int = 0  # of the partition with the fewest; 0: unknown
    min_insync_replicas: int = 1
    unclean_elections: bool = False

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy


class TopicReader(Protocol):
    """Existing topics and their offsets. Queries must not create a topic."""

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        """Every topic of `topics` that exists; missing ones are left out."""
        ...

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic UUIDs only, in one round trip; missing topics are left out."""
        ...

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        """The last stable offsets; the high watermarks if not `committed`."""
        ...

    def answered_ends(
        self, partitions: Iterable[Partition]
    ) -> tuple[dict[Partition, int], list[PerseidError]]:
        """The last stable offsets that brokers gave, and why others are missing.

        One partition without a leader, or one broker without an answer, hides no other's end.
        """
        ...

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]: ...

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        """The first offset with a timestamp of at least `time_ms`; the end if there is none."""
        ...

    def list(self) -> list[str]: ...


class TopicChanger(Protocol):
    """Changes topics. Each method does nothing if the change is done already."""

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        """True if created now, False if it existed. PermanentError for a bad name or setting."""
        ...

    def grow(self, topic: str, partitions: int) -> None: ...
    def delete(self, topics: Sequence[str]) -> None: ...
    def delete_group(self, group: str) -> None: ...

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        """Trims each partition up to, not including, the offset."""
        ...


def _raise(error: PerseidError) -> None:
    raise error


class TopicAdmin:
    """TopicReader and TopicChanger on a real cluster."""

    def __init__(
        self, bootstrap: Bootstrap, *, timeout_s: float = 15.0, replication: int = -1
    ) -> None:
        """`replication` -1 is the broker's default.replication.factor."""
        self._bootstrap = bootstrap
        self._abandoned: list[AdminClient] = []  # kept: destroying a hanging one might hang too
        self._timeout_s = self._patience_s = timeout_s
        self._replication = replication
        self._renew()

    def _renew(self) -> None:
        self._client = clients.admin(self._bootstrap)
        self._made_s = time.monotonic()

    def _give_up(self) -> None:
        """Replaces a hanging client.

        Each client has threads of its own: if one hangs soon, the next one gets more time.
        """
        soon = time.monotonic() - self._made_s < 2 * PATIENCE_MAX * self._timeout_s
        longer_s = min(2 * self._patience_s, PATIENCE_MAX * self._timeout_s)
        self._patience_s = longer_s if soon else self._timeout_s
        self._abandoned.append(self._client)
        self._renew()

    @property
    def client(self) -> AdminClient:
        return self._client

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return {name: str(answer.topic_id) for name, answer in self._described(topics).items()}

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        found = self._described(topics)
        api = _api()
        resources = {n: api.ConfigResource(api.ResourceType.TOPIC, n) for n in found}
        settings = (
            self._client.describe_configs(list(resources.values()), request_timeout=self._timeout_s)
            if resources
            else {}
        )
        infos = {}
        for name, answer in found.items():
            values = self._result(settings[resources[name]], f"settings of topic {name}")
            infos[name] = TopicInfo(
                name,
                str(answer.topic_id),
                len(answer.partitions),
                values["cleanup.policy"].value,
                int(values["max.message.bytes"].value),
                int(values["retention.ms"].value),
                values["message.timestamp.type"].value,
                int(values["retention.bytes"].value),
                min((len(p.replicas) for p in answer.partitions), default=0),
                int(values["min.insync.replicas"].value),
                values["unclean.leader.election.enable"].value == "true",
            )
        return infos

    def _described(self, topics: Sequence[str]) -> dict[str, Any]:
        from confluent_kafka import KafkaError, TopicCollection

        if not topics:
            return {}
        found: dict[str, Any] = {}
        asked = self._client.describe_topics(
            TopicCollection(list(topics)), request_timeout=self._timeout_s
        )
        for name, future in asked.items():
            missing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
            answer = self._result(future, f"describing topic {name}", absent=missing)
            if answer is not None:
                found[name] = answer
        return found

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        return self._offsets(partitions, _api().OffsetSpec.latest(), committed=committed)

    def answered_ends(
        self, partitions: Iterable[Partition]
    ) -> tuple[dict[Partition, int], list[PerseidError]]:
        errors: list[PerseidError] = []
        latest = _api().OffsetSpec.latest()
        found = self._offsets(partitions, latest, on_error=errors.append)
        return found, errors

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return self._offsets(partitions, _api().OffsetSpec.earliest())

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        found = self._offsets(partitions, _api().OffsetSpec.for_timestamp(time_ms), lacking=(-1,))
        late = [p for p, offset in found.items() if offset < 0]
        return {**found, **self.ends(late)} if late else found

    def brokers(self) -> dict[int, dict[str, str]]:
        """The settings of every broker that the cluster has now."""
        from confluent_kafka import KafkaException

        api = _api()
        try:
            listed = self._client.list_topics(timeout=self._timeout_s).brokers
        except KafkaException as error:
            raise clients.as_error(error.args[0], "listing brokers", self._client) from error
        asked = {n: api.ConfigResource(api.ResourceType.BROKER, str(n)) for n in sorted(listed)}
        answers = self._client.describe_configs(
            list(asked.values()), request_timeout=self._timeout_s
        )
        return {
            n: {
                name: entry.value
                for name, entry in self._result(answers[one], f"settings of broker {n}").items()
            }
            for n, one in asked.items()
        }

    def list(self) -> list[str]:
        from confluent_kafka import KafkaException

        try:
            listed = self._client.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise clients.as_error(error.args[0], "listing topics", self._client) from error
        return sorted(t for t in listed.topics if not t.startswith("__"))

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        from confluent_kafka import KafkaError

        if partitions < 1:
            raise PermanentError(f"topic {topic} with {partitions} partitions: at least 1")
        new = _api().NewTopic(
            check_topic(topic), partitions, self._replication, config=dict(config or {})
        )
        asked = self._client.create_topics([new], request_timeout=self._timeout_s)
        there = (KafkaError.TOPIC_ALREADY_EXISTS,)
        done = self._result(asked[topic], f"creating topic {topic}", absent=there, nothing=True)
        if done:
            self._await_leaders(topic, partitions)
        return bool(done)

    def grow(self, topic: str, partitions: int) -> None:
        info = self.describe([topic]).get(topic)
        if info is not None and info.partitions >= partitions:
            return
        asked = self._client.create_partitions(
            [_api().NewPartitions(topic, partitions)], request_timeout=self._timeout_s
        )
        self._result(asked[topic], f"growing topic {topic} to {partitions} partitions")
        self._await_leaders(topic, partitions)

    def delete(self, topics: Sequence[str]) -> None:
        from confluent_kafka import KafkaError

        if not topics:
            return
        asked = self._client.delete_topics(list(topics), request_timeout=self._timeout_s)
        for name, future in asked.items():
            gone = (KafkaError.UNKNOWN_TOPIC_OR_PART,)
            self._result(future, f"deleting topic {name}", absent=gone)

    def delete_group(self, group: str) -> None:
        """Deletes a consumer group with its offsets; a missing one is no error."""
        group_deletion.delete(self._bootstrap, group, self._timeout_s)

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        from confluent_kafka import TopicPartition

        if not before:
            return
        cuts = [TopicPartition(t, p, offset) for (t, p), offset in before.items()]
        asked = self._client.delete_records(cuts, request_timeout=self._timeout_s)
        for cut, future in asked.items():
            self._result(future, f"trimming {cut.topic}[{cut.partition}]")

    def _offsets(
        self,
        partitions: Iterable[Partition],
        spec: Any,
        *,
        committed: bool = True,
        lacking: tuple[int, ...] = (),
        on_error: Callable[[PerseidError], None] = _raise,
    ) -> dict[Partition, int]:
        """`lacking`: negative offsets that are valid answers to this request.

        `on_error` gets the error of each partition, and each topic, that has no offset; by
        default the first one is raised. A client that gives no answer is an error of the whole.
        """
        from confluent_kafka import IsolationLevel, KafkaError, TopicPartition

        left = set(partitions)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found: dict[Partition, int] = {}
        transient = (
            KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError._NOENT,
            KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,  # after its restart
        )  # fmt: skip
        # The client looks up leaders in a cache that lacks recently added partitions, and a new
        # partition's leader may not know its role yet: ask again after a metadata refresh.
        for tries_left in range(_TRIES - 1, -1, -1):
            if not left:
                break
            asked = {TopicPartition(*place): spec for place in left}
            answers = self._client.list_offsets(
                asked, isolation_level=level, request_timeout=self._timeout_s
            )
            for tp, future in answers.items():
                place = tp.topic, tp.partition
                try:
                    offset = self._offset(tp, future, transient if tries_left else (), lacking)
                except PerseidError as error:
                    if isinstance(error.__cause__, FutureTimeout):
                        raise
                    on_error(error)
                    left.discard(place)
                    continue
                if offset is not None:
                    found[place] = offset
                    left.discard(place)
            for topic in {topic for topic, _ in left}:
                try:
                    self._look(topic)
                except PerseidError as error:
                    on_error(error)
                    left = {place for place in left if place[0] != topic}
                self._client.poll(_RETRY_S)
        return found

    def _offset(
        self, tp: TopicPartition, future: Future[Any], transient: tuple[int, ...],
        lacking: tuple[int, ...],
    ) -> int | None:  # fmt: skip
        """The answer for one partition; None to ask again, where `transient` errors allow it."""
        what = f"offsets of {tp.topic}[{tp.partition}]"
        answer = self._result(future, what, absent=transient)
        if answer is None:
            return None
        if answer.offset < 0 and answer.offset not in lacking:
            # A dying broker answers "invalid offset" without an error. As an offset it would mean
            # an empty partition, such as an empty ledger.
            if not transient:
                raise RetryableError(f"{what}: the broker answered {answer.offset}")
            return None
        return int(answer.offset)

    def _look(self, topic: str) -> int:
        """Fetches the topic's metadata; returns how many of its partitions have a leader."""
        from confluent_kafka import KafkaException

        try:
            seen = self._client.list_topics(topic, timeout=self._timeout_s).topics[topic]
        except KafkaException as error:
            what = f"looking up topic {topic}"
            raise clients.as_error(error.args[0], what, self._client) from error
        if seen.error is not None:
            raise clients.as_error(seen.error, f"looking up topic {topic}")
        return sum(p.leader >= 0 for p in seen.partitions.values())

    def _leaders(self, topic: str) -> int:
        try:
            return self._look(topic)
        except TransientAnswer:  # created, and not yet known
            return 0

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Waits for a created topic's leaders, so that requests for its offsets are not refused."""
        deadline_s = time.monotonic() + self._timeout_s
        while self._leaders(topic) < partitions:
            if time.monotonic() > deadline_s:
                raise RetryableError(f"topic {topic}: no leader after {self._timeout_s} s")
            self._client.poll(0.02)

    def _result(
        self,
        future: Future[Any],
        what: str,
        *,
        absent: tuple[int, ...] = (),
        nothing: bool = False,
    ) -> Any:
        """The future's answer; None for an error code in `absent`; True for "done" if `nothing`."""
        from confluent_kafka import KafkaException

        try:
            answer = future.result(timeout=self._timeout_s + 1)
        except FutureTimeout as error:
            # The client's own timeout did not fire either. Observed after a broker's restart: eight
            # requests in a row without an answer, while other clients got theirs. A client that is
            # younger than the request was created after another thread's request.
            if time.monotonic() - self._made_s > self._patience_s:
                self._give_up()
            raise RetryableError(f"{what}: no answer in {self._timeout_s} s") from error
        except KafkaException as error:
            if error.args[0].code() in absent:
                return None
            raise clients.as_error(error.args[0], what, self._client) from error
        return True if nothing else answer


def _api() -> Any:
    """The client's admin module, which ships no complete types."""
    import confluent_kafka.admin

    return confluent_kafka.admin
