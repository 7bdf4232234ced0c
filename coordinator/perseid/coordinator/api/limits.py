"""How much one principal may ask for: so many calls a second, and a body of so many bytes.

A token bucket each: it holds `burst` calls, gives one to each call and gets `per_s` a second back.
Pure, but for the table of buckets; time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# A page that polls and a scrape are a call a second each; a script may loop for a while.
CALLS_PER_S = 50.0
CALLS_BURST = 200.0
# No call of the API has a body; one that brings some may have a little.
BODY_BYTES_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class Bucket:
    """`calls` are left at `at_s`, in parts of one as well."""

    calls: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `burst` calls at once, and `per_s` in the long run."""

    per_s: float = CALLS_PER_S
    burst: float = CALLS_BURST

    def full(self, now_s: float) -> Bucket:
        return Bucket(self.burst, now_s)

    def taken(self, bucket: Bucket, now_s: float) -> tuple[Bucket, float]:
        """The bucket after one call, and 0; or the same calls and the seconds until there is one.

        >>> Rate(per_s=2, burst=1).taken(Bucket(0.5, 10.0), 10.0)
        (Bucket(calls=0.5, at_s=10.0), 0.25)
        """
        calls = min(self.burst, bucket.calls + max(0.0, now_s - bucket.at_s) * self.per_s)
        if calls >= 1:
            return Bucket(calls - 1, now_s), 0.0
        return Bucket(calls, now_s), (1 - calls) / self.per_s


@dataclass
class RateLimit:
    """The buckets of all principals. There are as many as names in the token file, and few more.

    Not safe for several threads: the server's event loop asks.
    """

    now_s: Callable[[], float]
    rate: Rate = Rate()
    _buckets: dict[str, Bucket] = field(default_factory=dict)

    def wait_s(self, name: str) -> float:
        """0 when the call may be made now, else when it may be made again."""
        now_s = self.now_s()
        bucket = self._buckets.get(name) or self.rate.full(now_s)
        self._buckets[name], wait_s = self.rate.taken(bucket, now_s)
        return wait_s
