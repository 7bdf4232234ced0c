"""Calls librdkafka directly, for whole batches of records.

confluent-kafka creates a Python object for each record that it reads and needs a Python call for
each that it sends, which costs more than Kafka itself. It is a binding of librdkafka, which has a
public and stable interface; this module uses the small part of it that transfers records.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from perseid.errors import PermanentError, RetryableError
from perseid.kernels.library import binary, kernels, validity
from perseid.topics.columns import Records

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from perseid.topics.batch_producer import BatchProducer

LOG = logging.getLogger("perseid.kafka")

_TEXT_BYTES = 512
_CONSUMER = 1  # RD_KAFKA_CONSUMER
_BATCH_BYTES_MAX = 2**31 - 1  # of one Arrow array; the client prefetches far less
_EVENTS_MAX = 16  # of a client at once, in addition to records
_ERROR = 3  # syslog's
_WARNING = 4


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int32), ("topic", c_void_p), ("partition", c_int32), ("payload", c_void_p),
        ("len", c_size_t), ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64),
        ("private", c_void_p),
    )  # fmt: skip


_LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
_ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)


def _log(_client: int, level: int, facility: bytes, text: bytes) -> None:
    kind = logging.ERROR if level <= _ERROR else logging.WARNING
    kind = kind if level <= _WARNING else logging.INFO
    LOG.log(kind, "%s: %s", facility.decode(errors="replace"), text.decode(errors="replace"))


def _log_error(_client: int, code: int, reason: bytes, _opaque: int) -> None:
    LOG.warning("kafka client: %d: %s", code, reason.decode(errors="replace"))


_LOG, _LOG_ERROR = _LogCallback(_log), _ErrorCallback(_log_error)  # must live as long as any client


@cache
def _library() -> ctypes.CDLL:
    """The same librdkafka that confluent-kafka has loaded; its extension exports the symbols."""
    from confluent_kafka import cimpl

    found = ctypes.CDLL(cimpl.__file__)
    pointer = c_void_p
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "rd_kafka_conf_new": (pointer, ()),
        "rd_kafka_conf_destroy": (None, (pointer,)),
        "rd_kafka_conf_set": (c_int, (pointer, c_char_p, c_char_p, c_char_p, c_size_t)),
        "rd_kafka_conf_set_log_cb": (None, (pointer, _LogCallback)),
        "rd_kafka_conf_set_error_cb": (None, (pointer, _ErrorCallback)),
        "rd_kafka_new": (pointer, (c_int, pointer, c_char_p, c_size_t)),
        "rd_kafka_set_log_queue": (c_int, (pointer, pointer)),
        "rd_kafka_poll_set_consumer": (c_int, (pointer,)),
        "rd_kafka_queue_get_consumer": (pointer, (pointer,)),
        "rd_kafka_queue_destroy": (None, (pointer,)),
        "rd_kafka_queue_get_partition": (pointer, (pointer, c_char_p, c_int32)),
        "rd_kafka_queue_forward": (None, (pointer, pointer)),
        "rd_kafka_topic_partition_list_new": (pointer, (c_int,)),
        "rd_kafka_topic_partition_list_add": (pointer, (pointer, c_char_p, c_int32)),
        "rd_kafka_topic_partition_list_set_offset":
            (c_int, (pointer, c_char_p, c_int32, c_int64)),
        "rd_kafka_topic_partition_list_destroy": (None, (pointer,)),
        "rd_kafka_assign": (c_int, (pointer, pointer)),
        "rd_kafka_incremental_assign": (pointer, (pointer, pointer)),
        "rd_kafka_incremental_unassign": (pointer, (pointer, pointer)),
        "rd_kafka_error_string": (c_char_p, (pointer,)),
        "rd_kafka_error_destroy": (None, (pointer,)),
        "rd_kafka_consume_batch_queue": (c_int64, (pointer, c_int, pointer, c_size_t)),
        "rd_kafka_message_errstr": (c_char_p, (pointer,)),
        "rd_kafka_consumer_close": (c_int, (pointer,)),
        "rd_kafka_destroy": (None, (pointer,)),
        "rd_kafka_topic_new": (pointer, (pointer, c_char_p, pointer)),
        "rd_kafka_topic_destroy": (None, (pointer,)),
        "rd_kafka_last_error": (c_int, ()),
    }  # fmt: skip
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def address_of(name: str) -> int:
    """The address of a function of librdkafka, for C code that calls it."""
    found = ctypes.cast(getattr(_library(), name), c_void_p).value
    assert found is not None
    return found


def _error(code: int, text: str | None = None) -> KafkaError:
    from confluent_kafka import KafkaError

    return KafkaError(code, text) if text else KafkaError(code)


@dataclass(frozen=True, slots=True)
class Event:
    """An error, or the end of the partition, as reported by the client between records."""

    error: KafkaError
    offset: int

    @property
    def is_end(self) -> bool:
        """Whether it reports the end of the partition, which is no error."""
        from confluent_kafka import KafkaError

        return self.error.code() == KafkaError._PARTITION_EOF


class PartitionConsumer:
    """Reads one partition from an offset on. Not thread-safe."""

    def __init__(self, settings: Mapping[str, Any], topic: str, partition: int, start: int) -> None:
        """`settings` are librdkafka's.

        Raises:
            PermanentError: librdkafka refuses a setting.
        """
        self._partition = partition
        self._client, self._queue = _opened(settings)
        self._freed = _freed_with(self, self._client, self._queue)
        with _listed({(topic, partition): start}) as places:
            failed = _library().rd_kafka_assign(self._client, places)
        if failed:
            self.close()
            raise PermanentError(f"cannot read {topic}[{partition}]: {_error(failed).str()}")

    def fetch(self, count: int, timeout_s: float) -> tuple[Records, list[Event]]:
        """Up to `count` records and events; returns early only with that many."""
        return _fetched(self._queue, self._partition, count, timeout_s)

    def close(self) -> None:
        self._freed()


class SharedConsumer:
    """One client that reads many partitions, each from its own queue.

    Not thread-safe. Its prefetch settings (`queued.max.messages.kbytes` and `queued.min.messages`)
    apply to each partition.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` are librdkafka's; PermanentError when it refuses one."""
        self._client, self._queue = _opened(settings)
        self.parts: dict[tuple[str, int], int] = {}  # the queues
        self._freed = _freed_with(self, self._client, self._queue, self.parts)
        self.failed = False  # a partition had an error: later records should use another client

    def add(self, places: Mapping[tuple[str, int], int]) -> None:
        """Begins to read partitions that it does not have, each from its offset on.

        All are added in one call, since the client only asks for them after its pending request.
        """
        library = _library()
        for topic, partition in places:
            queue = library.rd_kafka_queue_get_partition(self._client, topic.encode(), partition)
            library.rd_kafka_queue_forward(queue, None)  # else all records arrive in one queue
            self.parts[topic, partition] = queue
        with _listed(places) as listed:
            error = library.rd_kafka_incremental_assign(self._client, listed)
        if error is not None:
            text = library.rd_kafka_error_string(error).decode(errors="replace")
            library.rd_kafka_error_destroy(error)
            self.remove(places)
            raise RetryableError(f"cannot read {len(places)} partitions, {min(places)}: {text}")

    def fetch(
        self, topic: str, partition: int, count: int, timeout_s: float
    ) -> tuple[Records, list[Event]]:
        """Like `PartitionConsumer.fetch`; events without a partition come with any of them."""
        records, events = _fetched(self.parts[topic, partition], partition, count, timeout_s)
        if not len(records):
            events += _fetched(self._queue, partition, _EVENTS_MAX, 0.0)[1]
        return records, events

    def remove(self, places: Iterable[tuple[str, int]]) -> None:
        """Stops reading partitions that it has."""
        queues = {place: self.parts.pop(place) for place in places}
        with _listed(dict.fromkeys(queues, 0)) as listed:
            error = _library().rd_kafka_incremental_unassign(self._client, listed)
        if error is not None:
            _library().rd_kafka_error_destroy(error)  # they were not assigned
        for queue in queues.values():
            _library().rd_kafka_queue_destroy(queue)

    def close(self) -> None:
        self._freed()


def _fetched(
    queue: int, partition: int, count: int, timeout_s: float
) -> tuple[Records, list[Event]]:
    messages = np.empty(count, np.uintp)
    found = _library().rd_kafka_consume_batch_queue(
        queue, max(0, round(timeout_s * 1000)), messages.ctypes.data, count
    )
    if found < 0:
        code = _library().rd_kafka_last_error()
        return Records.empty(partition), [Event(_error(code), -1)]
    messages = messages[:found]
    try:
        return _taken(messages, partition)
    finally:
        kernels().perseid_kafka_destroy(
            messages.ctypes.data, found, address_of("rd_kafka_message_destroy")
        )


def _taken(
    messages: np.ndarray[Any, np.dtype[np.uintp]], partition: int
) -> tuple[Records, list[Event]]:
    at, count = messages.ctypes.data, len(messages)
    value_bytes, key_bytes = c_int64(), c_int64()
    rows = kernels().perseid_kafka_measure(at, count, byref(value_bytes), byref(key_bytes))
    if max(value_bytes.value, key_bytes.value) > _BATCH_BYTES_MAX:
        raise PermanentError(f"{count} records have {value_bytes.value} bytes at once")
    values, keys = _Binaries(rows, value_bytes.value), _Binaries(rows, key_bytes.value)
    offsets, timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
    kernels().perseid_kafka_copy(
        at, count, address_of("rd_kafka_message_timestamp"), *values.addresses(),
        *keys.addresses(), offsets.ctypes.data, timestamps.ctypes.data,
    )  # fmt: skip
    records = Records(partition, values.array(), keys.array(), offsets, timestamps)
    return records, _events(messages) if rows < count else []


@contextmanager
def _listed(places: Mapping[tuple[str, int], int]) -> Iterator[int]:
    """Partitions and offsets as a list of librdkafka's."""
    library = _library()
    found = library.rd_kafka_topic_partition_list_new(len(places))
    for (topic, partition), start in places.items():
        name = topic.encode()
        library.rd_kafka_topic_partition_list_add(found, name, partition)
        library.rd_kafka_topic_partition_list_set_offset(found, name, partition, start)
    try:
        yield found
    finally:
        library.rd_kafka_topic_partition_list_destroy(found)


def _freed_with(
    owner: object, client: int, queue: int, parts: dict[tuple[str, int], int] | None = None
) -> Callable[[], Any]:
    freed = weakref.finalize(owner, _free, client, queue, {} if parts is None else parts)
    freed.atexit = False  # a process that ends does not wait for the client
    return freed


def _free(client: int, queue: int, parts: dict[tuple[str, int], int]) -> None:
    library = _library()
    while parts:
        library.rd_kafka_queue_destroy(parts.popitem()[1])
    library.rd_kafka_queue_destroy(queue)
    library.rd_kafka_consumer_close(client)
    library.rd_kafka_destroy(client)


class _Binaries:
    """Memory for `rows` values with `size` bytes in total."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._offsets = np.empty(rows + 1, np.int32)
        self._data = pa.allocate_buffer(size)
        self._valid = np.empty(rows, np.uint8)

    def addresses(self) -> tuple[int, int, int]:
        return self._offsets.ctypes.data, self._data.address, self._valid.ctypes.data

    def array(self) -> pa.BinaryArray:
        buffers = [validity(self._valid), pa.py_buffer(self._offsets), self._data]
        return pa.Array.from_buffers(pa.binary(), self._rows, buffers)


def _events(messages: np.ndarray[Any, np.dtype[np.uintp]]) -> list[Event]:
    events = []
    for address in messages.tolist():
        message = _Message.from_address(address)
        if message.err:
            text = _library().rd_kafka_message_errstr(address)
            reason = text.decode(errors="replace") if text else None
            events.append(Event(_error(message.err, reason), message.offset))
    return events


def _opened(settings: Mapping[str, Any]) -> tuple[int, int]:
    """A consumer of librdkafka and its queue; its callbacks run while the queue is polled."""
    library = _library()
    conf = library.rd_kafka_conf_new()
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    for name, value in {**settings, "log.queue": True}.items():
        plain = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(conf, name.encode(), plain.encode(), text, _TEXT_BYTES):
            library.rd_kafka_conf_destroy(conf)
            raise PermanentError(f"the Kafka client refuses a setting: {text.value.decode()}")
    library.rd_kafka_conf_set_log_cb(conf, _LOG)
    library.rd_kafka_conf_set_error_cb(conf, _LOG_ERROR)
    client: int | None = library.rd_kafka_new(_CONSUMER, conf, text, _TEXT_BYTES)
    if client is None:
        library.rd_kafka_conf_destroy(conf)
        raise PermanentError(f"the Kafka client cannot be made: {text.value.decode()}")
    library.rd_kafka_set_log_queue(client, None)
    library.rd_kafka_poll_set_consumer(client)
    return client, library.rd_kafka_queue_get_consumer(client)


class TopicProducer:
    """Sends batches to one topic through a producer, which must outlive it.

    Records have no headers and no delivery reports of their own.
    """

    def __init__(self, producer: BatchProducer, topic: str) -> None:
        self._topic = _library().rd_kafka_topic_new(producer.client, topic.encode(), None)
        if self._topic is None:
            raise PermanentError(
                f"producing to {topic}: {_error(_library().rd_kafka_last_error()).str()}"
            )

    def produce(
        self, partition: int, keys: pa.BinaryArray, values: pa.BinaryArray, first: int, end: int
    ) -> KafkaError | None:
        """Queues rows from `first` up to `end`; returns the error of the first row not accepted.

        The rows before that one are queued.
        """
        error = c_int32()
        taken = kernels().perseid_kafka_produce(
            address_of("rd_kafka_produce_batch"), self._topic, partition, byref(binary(keys)),
            byref(binary(values)), first, end, byref(error),
        )  # fmt: skip
        if taken < 0:
            raise MemoryError(f"no memory for {end - first} records")
        return _error(error.value) if error.value else None

    def close(self) -> None:
        topic, self._topic = self._topic, None
        if topic is not None:
            _library().rd_kafka_topic_destroy(topic)
