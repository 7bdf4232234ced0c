"""The only place that creates Kafka clients. Every setting that matters is explicit.

The defaults of librdkafka and of Java differ (isolation, CRC checks, what happens at a missing
offset), so none is relied on. Numbers have their reason in a comment.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal

from perseid.errors import PermanentError, RetryableError, TransientAnswer
from perseid.records.access import CLIENT, SYSTEM, Access, Bootstrap, Brokers

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

    from perseid.topics.batch_producer import BatchProducer

Isolation = Literal["read_committed", "read_uncommitted"]

LOG = logging.getLogger("perseid.kafka")
LOG.addHandler(logging.NullHandler())  # keeps unreachable brokers off a user's terminal

TRANSACTION_TIMEOUT_MS = 30_000  # how long a dead owner's open transaction can hold back readers
QUEUE_MESSAGES_MAX = 200_000  # of one producer; a faster sender waits for deliveries
RETRY_BACKOFF_MS = 400  # of transactional producers; see perseid.topics.kafka_transactions
BATCH_BYTES_MAX = 1_000_000  # of one request; below the broker's default for one batch
_HEARD_S = 15.0  # how long a broker's refusal of our certificate or password explains errors
_not_let_in: list[tuple[float, str]] = []  # the newest, of all admin clients of this process
_ACLS = "; `perseid jobs acls` prints the rights that a job needs"
GROUP = "perseid-unused"  # librdkafka requires one and looks up its coordinator; nothing joins it


def _common(bootstrap: Bootstrap) -> dict[str, Any]:
    return {**_connecting(bootstrap), "logger": LOG, "error_cb": _log_error}


def _connecting(bootstrap: Bootstrap) -> dict[str, Any]:
    """Settings of every client, all of them librdkafka's."""
    secured = _secured(bootstrap.access) if isinstance(bootstrap, Brokers) else {}
    return {
        "bootstrap.servers": str(bootstrap),
        **secured,
        "client.id": bootstrap.client if isinstance(bootstrap, Brokers) else CLIENT,
        "socket.timeout.ms": 10_000,  # after this long, a paused broker is an unknown outcome
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,  # a restarted broker is found within half a second
        "retry.backoff.ms": 20,
        # A broker may come back under another address. Names are looked up again for each attempt,
        # and one at an address where nothing is any more ends as a request without an answer does.
        "broker.address.ttl": 1_000,
        "socket.connection.setup.timeout.ms": 10_000,
        "metadata.recovery.strategy": "rebootstrap",  # where brokers gave addresses and no names
        "allow.auto.create.topics": False,
        "topic.metadata.propagation.max.ms": 5_000,  # after this, a missing topic is an error
    }


def _secured(access: Access) -> dict[str, Any]:
    """TLS with the broker's name verified; our certificate, or SCRAM over it, or both."""
    if not access.encrypted:
        return {}
    access.check_files()
    found = {
        "security.protocol": "SASL_SSL" if access.user else "SSL",
        "ssl.ca.location": "probe" if access.ca == SYSTEM else access.ca,
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
    }
    if access.cert:
        found |= {"ssl.certificate.location": access.cert, "ssl.key.location": access.key}
    if access.user:
        found |= {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": access.user,
            "sasl.password": access.password(),
        }
    return found


def _log_error(error: KafkaError) -> None:
    LOG.warning("kafka client: %s", error)


def _note_refusal(error: KafkaError) -> None:
    from confluent_kafka import KafkaError as Codes

    if error.code() in {Codes._AUTHENTICATION, Codes._SSL}:
        _not_let_in[:] = [(time.monotonic(), error.str())]


def reader(bootstrap: Bootstrap, **over: Any) -> Consumer:
    """A consumer for `assign`, with the settings of `reading`."""
    from confluent_kafka import Consumer

    return Consumer({**_common(bootstrap), **reading(bootstrap, **over)})


def reading(
    bootstrap: Bootstrap,
    *,
    isolation: Isolation = "read_committed",
    fetch_wait_ms: int = 100,
    **over: Any,
) -> dict[str, Any]:
    """Settings of a consumer: no group, no commits, an error instead of a silent reset."""
    return {
        **_connecting(bootstrap),
        "group.id": GROUP,
        "isolation.level": isolation,
        "check.crcs": True,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,  # shows a range's end after markers and aborted records
        "fetch.queue.backoff.ms": 1,  # the default stalls a re-assigned consumer for a second
        "fetch.wait.max.ms": fetch_wait_ms,
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 32_768,  # prefetched bytes a consumer may hold
        **over,
    }


def writer(bootstrap: Bootstrap) -> Producer:
    """An idempotent producer for control records: each is flushed, so nothing lingers."""
    from confluent_kafka import Producer

    return Producer({
        **_common(bootstrap),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "message.timeout.ms": 20_000,
    })  # fmt: skip


def buffering(bootstrap: Bootstrap) -> Producer:
    """An idempotent producer for buffer topics: few large records, then a flush."""
    from confluent_kafka import Producer

    return Producer({
        **_common(bootstrap),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 2,  # an epoch's sets for one partition go in few requests
        "batch.size": BATCH_BYTES_MAX,
        "queue.buffering.max.kbytes": 65_536,  # a full queue makes the sender wait
        "message.timeout.ms": 20_000,
    })  # fmt: skip


def bulk(bootstrap: Bootstrap) -> Producer:
    """An idempotent producer for many records: tools that fill topics."""
    from confluent_kafka import Producer

    return Producer({
        **_common(bootstrap),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": 262_144,
        "message.timeout.ms": 60_000,
    })  # fmt: skip


def transactional(
    bootstrap: Bootstrap,
    transactional_id: str,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    batch_bytes: int = BATCH_BYTES_MAX,
) -> BatchProducer:
    """A connected producer that has not called `init_transactions`, so it fences no one yet.

    Because it is connected, `init_transactions` takes 5 ms instead of 500.
    """
    from confluent_kafka import KafkaException

    from perseid.topics.batch_producer import BatchProducer

    made = BatchProducer({
        **_common(bootstrap),
        "transactional.id": transactional_id,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms * 5 // 6,  # must end before the transaction does
        "acks": "all",
        "enable.idempotence": True,
        # Everything is flushed, so lingering costs no time. A client with due messages and a
        # pending request polls without pause until the answer, which takes a whole core.
        "linger.ms": timeout_ms // 2,
        "batch.size": batch_bytes,
        "message.max.bytes": 100_000_000,  # the topic's own limit applies (see admin.TopicInfo)
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": 1_048_576,
        "partitioner": "murmur2",
    })  # fmt: skip
    try:
        made.list_topics(timeout=min(timeout_ms, TRANSACTION_TIMEOUT_MS) / 1000)
    except KafkaException as error:
        raise as_error(error.args[0], f"connecting as {transactional_id}") from error
    return made


def admin(bootstrap: Bootstrap) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    # It is polled only after a failed call, whose error contains all that it would have logged.
    return AdminClient(_common(bootstrap) | {"error_cb": _note_refusal, "log_level": 2})


HINT = "is the broker up?"


def as_error(
    error: KafkaError, what: str, client: AdminClient | None = None, hint: str = HINT
) -> RetryableError | PermanentError:
    """Converts the client's error: permanent only if a person must change something.

    TransientAnswer: an answer that may be temporary, such as for a topic that the broker does not
    know yet, or damaged records, which another replica may have intact. `client` may know why the
    broker refuses our access, which no answer contains. `hint`: what else may be wrong if the
    broker does not answer.
    """
    from confluent_kafka import KafkaError as Codes

    transient = {
        Codes.UNKNOWN_TOPIC_OR_PART: "the topic or partition does not exist; "
        "create it with `perseid topics create`",
        Codes._UNKNOWN_TOPIC: "the topic does not exist; create it with `perseid topics create`",
        Codes._UNKNOWN_PARTITION: "the partition does not exist",
        Codes.TOPIC_AUTHORIZATION_FAILED: "the broker denies access to the topic" + _ACLS,
        Codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the broker denies the transactional id"
        + _ACLS,
        Codes.GROUP_AUTHORIZATION_FAILED: "the broker denies the consumer group" + _ACLS,
        Codes.CLUSTER_AUTHORIZATION_FAILED: "the broker denies this to us" + _ACLS,
        Codes.SASL_AUTHENTICATION_FAILED: "the broker does not know this user and password",
        Codes._BAD_MSG: "a record does not have the checksum it was written with; let another "
        "replica lead the partition, or restore the broker's disk",
    }
    permanent = {
        Codes.INVALID_TRANSACTION_TIMEOUT: "the broker allows no transaction of so long a time; "
        f"raise its transaction.max.timeout.ms, at least to {TRANSACTION_TIMEOUT_MS}",
        Codes.MSG_SIZE_TOO_LARGE: "the broker refuses a record as too large; raise the topic's "
        "max.message.bytes or make the record smaller",
        Codes.OFFSET_OUT_OF_RANGE: "the partition does not have that offset",
        Codes.INVALID_CONFIG: "the broker refuses the setting",
        Codes.INVALID_REPLICATION_FACTOR: "there are fewer brokers than copies asked for",
    }
    code = error.code()
    if code in transient:
        return TransientAnswer(f"{what}: {transient[code]} ({error.str()})")
    if code in permanent:
        return PermanentError(f"{what}: {permanent[code]} ({error.str()})")
    hint = (client and _heard(client)) or hint
    return RetryableError(f"{what}: {error.name()}: {error.str()}; {hint}")


def _heard(client: AdminClient) -> str | None:
    """The brokers' most recent refusal of our certificate or password, if any."""
    client.poll(0)
    heard = [why for at_s, why in _not_let_in if time.monotonic() - at_s < _HEARD_S]
    return f"the broker does not let us in: {heard[0]}" if heard else None
