"""Divergence counters in Redis.

Only GET, SET, WATCH and MULTI are used, so that the user of a shared Redis needs no scripts
(compose/SECURITY.md, Redis). An older stamp never replaces a newer one: the write is conditional on
what was read, and is retried after a concurrent write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from perseid.errors import DamagedFile, RetryableError
from perseid.records.access import Access
from perseid.state.durability import redis_client
from perseid.state.durability.counters import CounterKey, Divergence, decode, encode

if TYPE_CHECKING:
    from redis.client import Pipeline

Answer = TypeVar("Answer")

KEPT_S = 86_400  # without an update for a day the counter is absent
TIMEOUT_S = 0.5  # a counter is not worth more of an epoch's time
_TRIES = 5  # for a key with concurrent writers


class RedisCounters:
    """`Counters` on the Redis at `url`. Thread safe."""

    def __init__(
        self, url: str, deployment: str = "local", *, timeout_s: float = TIMEOUT_S,
        access: Access | None = None,
    ) -> None:  # fmt: skip
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._url, self._prefix = url, f"{redis_client.prefix(deployment)}divergence"
        self._client = redis_client.connect(
            url, access or Access(part="REDIS"), timeout_s, retry=Retry(NoBackoff(), 0),
            decode_responses=True, encoding_errors="replace",
        )  # fmt: skip

    def publish(self, key: CounterKey, divergence: Divergence) -> bool:
        return self._answered("publishing", lambda: self._publish(self.name(key), divergence))

    def read(self, key: CounterKey) -> Divergence | None:
        name = self.name(key)
        text: Any = self._answered("reading", lambda: self._client.get(name))
        return None if text is None else decode(text, name)

    def close(self) -> None:
        self._client.close()

    def name(self, key: CounterKey) -> str:
        return f"{self._prefix}:{key.job}:{key.operator}:{key.partition}"

    def _publish(self, name: str, divergence: Divergence) -> bool:
        from redis import WatchError

        for _ in range(_TRIES):
            with self._client.pipeline() as pipeline:
                try:
                    return _replace(pipeline, name, divergence)
                except WatchError:
                    continue
        raise RetryableError(f"Redis key {name} is written by others all the time")

    def _answered(self, what: str, call: Callable[[], Answer]) -> Answer:
        from redis import RedisError

        try:
            return call()
        except (RedisError, OSError) as error:
            raise RetryableError(
                f"Redis at {self._url}, {what} a counter: {type(error).__name__}: {error}"
            ) from error


def _replace(pipeline: Pipeline, name: str, divergence: Divergence) -> bool:
    """Replaces a value that is no counter too, since it is useless."""
    pipeline.watch(name)  # type: ignore[no-untyped-call]
    text: Any = pipeline.get(name)
    try:
        if text is not None and decode(text, name).stamp >= divergence.stamp:
            return False
    except DamagedFile:
        pass
    pipeline.multi()
    pipeline.set(name, encode(divergence), ex=KEPT_S)
    pipeline.execute()
    return True
