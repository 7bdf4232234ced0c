"""Topics and offsets on the model of Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perseid.errors import PermanentError, PerseidError, RetryableError, TransientAnswer
from perseid.testing.kafka_model import ModelKafka, ModelLog, ModelTopic
from perseid.topics.admin import MESSAGE_BYTES_MAX, RETENTION_MS, Partition, TopicInfo
from perseid.topics.names import check_topic

# The settings that the model accepts: those that this project uses.
_SETTINGS = {
    "cleanup.policy": re.compile(r"compact|delete|compact,delete|delete,compact"),
    "max.message.bytes": re.compile(r"\d+"),
    "retention.ms": re.compile(r"-1|\d+"),
    "retention.bytes": re.compile(r"-1|\d+"),
    "segment.bytes": re.compile(r"\d+"),
    "message.timestamp.type": re.compile(r"CreateTime|LogAppendTime"),
}


class FakeTopics:
    """TopicReader and TopicChanger on the model."""

    def __init__(self, kafka: ModelKafka) -> None:
        self._kafka = kafka

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        return {t: self._kafka.topics[t].info for t in topics if t in self._kafka.topics}

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return {name: info.topic_id for name, info in self.describe(topics).items()}

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        logs = {p: self._led(p) for p in partitions}
        return {p: log.stable_end if committed else log.end for p, log in logs.items()}

    def answered_ends(
        self, partitions: Iterable[Partition]
    ) -> tuple[dict[Partition, int], list[PerseidError]]:
        found, errors = dict[Partition, int](), list[PerseidError]()
        for place in partitions:
            try:
                found[place] = self._led(place).stable_end
            except PerseidError as error:
                errors.append(error)
        return found, errors

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {p: self._led(p).start for p in partitions}

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        found = {}
        for place in partitions:
            log = self._led(place)
            end = log.stable_end
            late = (r.offset for r in log.records if r.time_ms >= time_ms and r.offset < end)
            found[place] = min(late, default=end)
        return found

    def list(self) -> list[str]:
        return sorted(self._kafka.topics)

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        if partitions < 1:
            raise PermanentError(f"topic {topic} with {partitions} partitions: at least 1")
        if check_topic(topic) in self._kafka.topics:
            return False
        settings = dict(config or {})
        for name, value in settings.items():
            if name not in _SETTINGS or not _SETTINGS[name].fullmatch(value):
                raise PermanentError(
                    f"topic {topic}: the broker refuses the setting {name}={value}"
                )
        info = TopicInfo(
            topic,
            self._kafka.new_topic_id(),
            partitions,
            settings.get("cleanup.policy", "delete"),
            int(settings.get("max.message.bytes", MESSAGE_BYTES_MAX)),
            int(settings.get("retention.ms", RETENTION_MS)),
            settings.get("message.timestamp.type", "CreateTime"),
            int(settings.get("retention.bytes", -1)),
        )
        logs = [ModelLog() for _ in range(partitions)]
        self._kafka.topics[topic] = ModelTopic(info, logs, settings)
        return True

    def brokers(self) -> dict[int, dict[str, str]]:
        """Returns the one broker of the model, which accepts all settings."""
        return {1: {}}

    def grow(self, topic: str, partitions: int) -> None:
        found = self._kafka.topics.get(topic)
        if found is None:
            raise TransientAnswer(f"growing topic {topic}: it does not exist")
        found.logs += [ModelLog() for _ in range(partitions - len(found.logs))]
        found.info = replace(found.info, partitions=len(found.logs))

    def delete(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._kafka.topics.pop(topic, None)

    def delete_group(self, group: str) -> None:
        """Does nothing: groups are not modelled here."""

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        for (topic, partition), offset in before.items():
            if topic not in self._kafka.topics:
                raise RetryableError(f"trimming {topic}[{partition}]: it has no leader")
            log = self._led((topic, partition))
            if offset > log.end:
                raise PermanentError(f"trimming {topic}[{partition}]: no offset {offset}")
            log.trim(offset)
            self._kafka.trims += 1

    def _led(self, place: Partition) -> ModelLog:
        """Raises RetryableError for a missing partition: to an admin client it has no leader."""
        topic = self._kafka.topics.get(place[0])
        if topic is not None and not 0 <= place[1] < len(topic.logs):
            raise RetryableError(f"offsets of {place[0]}[{place[1]}]: it has no leader")
        return self._kafka.log(*place)
