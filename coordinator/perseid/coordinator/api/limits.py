"""The limits of one principal: calls per second, and the bytes of a body.

Each principal has a token bucket: it holds `burst` calls, each call takes one, and `per_s` a second
are refilled. Pure, except for the table of buckets; time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# A polling page and a scrape are a call a second each; a script may loop for a while.
CALLS_PER_S = 50.0
CALLS_BURST = 200.0
# No call of the API has a body; a small one is tolerated.
BODY_BYTES_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class Bucket:
    """`calls` are left at `at_s`, including fractions."""

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
        """(bucket after one call, 0), or (unchanged bucket, seconds until a call is allowed).

        >>> Rate(per_s=2, burst=1).taken(Bucket(0.5, 10.0), 10.0)
        (Bucket(calls=0.5, at_s=10.0), 0.25)
        """
        calls = min(self.burst, bucket.calls + max(0.0, now_s - bucket.at_s) * self.per_s)
        if calls >= 1:
            return Bucket(calls - 1, now_s), 0.0
        return Bucket(calls, now_s), (1 - calls) / self.per_s


@dataclass
class RateLimit:
    """The buckets of all principals: as many as names in the token file, and a few more.

    Not thread-safe: only the server's event loop uses it.
    """

    now_s: Callable[[], float]
    rate: Rate = Rate()
    _buckets: dict[str, Bucket] = field(default_factory=dict)

    def wait_s(self, name: str) -> float:
        """0 if the call is allowed now, else the seconds until it is."""
        now_s = self.now_s()
        bucket = self._buckets.get(name) or self.rate.full(now_s)
        self._buckets[name], wait_s = self.rate.taken(bucket, now_s)
        return wait_s
