"""Committed offsets of a consumer group that has no members, written by one fenced writer.

An admin client may set such offsets too, but then the last writer wins, even a process that was
paused before the write an hour ago. In a transaction the broker checks the writer: acquiring the
transactional id fences every earlier writer, including its pending writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from perseid.errors import FencedError, PermanentError, RetryableError
from perseid.records.access import Bootstrap
from perseid.topics import clients
from perseid.topics.admin import Partition

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Producer

ANSWER_S = 10.0


class GroupWriter(Protocol):
    """Commits the offsets of one group. Not thread-safe."""

    def acquire(self) -> None:
        """Fences older writers of the group before it returns. Raises RetryableError."""
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commits all offsets or none; other partitions keep theirs. Must not acquire by itself.

        FencedError: a newer writer has acquired, nothing was written. RetryableError: it may be
        written or not. After any error, and before the first commit, the group must be acquired.
        """
        ...

    def close(self) -> None:
        """Lets its connections go; another acquire opens it again."""
        ...


class KafkaGroupWriter:
    """GroupWriter on Kafka."""

    def __init__(self, bootstrap: Bootstrap, group: str, transactional_id: str) -> None:
        self._bootstrap, self._group, self._id = bootstrap, group, transactional_id
        self._producer: Producer | None = None
        self._metadata: Any = None  # "no member", as a group without members requires

    def acquire(self) -> None:
        from confluent_kafka import KafkaException

        self._producer = None
        if self._metadata is None:
            settings: dict[str, Any] = {"group.id": self._group}
            with closing(clients.reader(self._bootstrap, **settings)) as consumer:
                self._metadata = consumer.consumer_group_metadata()
        producer = clients.transactional(self._bootstrap, self._id)
        try:
            producer.init_transactions(ANSWER_S)
        except KafkaException as error:
            raise self._error(error, "acquiring") from error
        self._producer = producer

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        # The next acquire ends what an error leaves open, or the broker does in half a minute.
        producer, self._producer = self._producer, None
        if producer is None:
            raise RetryableError(f"group {self._group} has to be acquired before a commit")
        places = [TopicPartition(t, p, offset) for (t, p), offset in sorted(offsets.items())]
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(places, self._metadata, ANSWER_S)
            producer.commit_transaction(ANSWER_S)
        except KafkaException as error:
            raise self._error(error, "committing") from error
        self._producer = producer

    def close(self) -> None:
        self._producer = None

    def _error(
        self, error: KafkaException, doing: str
    ) -> RetryableError | PermanentError | FencedError:
        from confluent_kafka import KafkaError

        fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        what = f"{doing} offsets of consumer group {self._group}"
        if error.args[0].code() in fenced:
            return FencedError(f"{what}: a newer writer has acquired it")
        return clients.as_error(error.args[0], what)
