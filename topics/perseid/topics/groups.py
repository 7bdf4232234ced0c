"""Committed offsets of a consumer group that has no members, written by one fenced writer.

An admin client may set such offsets too, but then whoever writes last wins, even a process that was
paused in front of the write an hour ago. In a transaction the broker checks who writes: acquiring
the transactional id shuts out every writer before, with whatever it still has under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from perseid.errors import FencedError, PermanentError, RetryableError
from perseid.topics import clients
from perseid.topics.admin import Partition

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Producer

ANSWER_S = 10.0


class GroupWriter(Protocol):
    """Commits the offsets of one group. Not for two threads at once."""

    def acquire(self) -> None:
        """From its return on, older writers of the group are fenced. Raises RetryableError."""
        ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """All of them or none; others keep theirs. Must not acquire by itself.

        FencedError: a newer writer has acquired, nothing was written. RetryableError: it may be
        written or not. Behind any error, and before the first commit, it has to be acquired.
        """
        ...

    def close(self) -> None: ...


class KafkaGroupWriter:
    """GroupWriter on Kafka."""

    def __init__(self, bootstrap: str, group: str, transactional_id: str) -> None:
        self._bootstrap, self._group, self._id = bootstrap, group, transactional_id
        self._producer: Producer | None = None
        self._metadata: Any = None  # says "no member", which is what a group without any takes

    def acquire(self) -> None:
        from confluent_kafka import KafkaException

        self._producer = None
        if self._metadata is None:
            settings: dict[str, Any] = {"group.id": self._group}
            consumer = clients.reader(self._bootstrap, **settings)
            try:
                self._metadata = consumer.consumer_group_metadata()
            finally:
                consumer.close()
        producer = clients.transactional(self._bootstrap, self._id)
        try:
            producer.init_transactions(ANSWER_S)
        except KafkaException as error:
            raise self._error(error, "acquiring") from error
        self._producer = producer

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        # What an error leaves open is ended by the next acquire, or by the broker in half a minute.
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
