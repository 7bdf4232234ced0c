"""Joins of two streams in event time: rows with one key, near each other or in one window: `Join`.

    operators:
      clicked:
        inputs: {left: shown, right: clicks}
        key: user
        use: "library:Join"
        with:
          after: "10m"
          time: ms
          left: {ms: int64, advert: string}
          right: {ms: int64, page: string}

| parameters | a left row of time t meets the right rows of its key |
|---|---|
| `within: "10m"` | from t - 10 minutes to t + 10 minutes |
| `before: "5m"`, `after: "1m"` or one of them | from t - 5 minutes to t + 1 minute |
| `window: "1m"` | in the same minute, counted from 1970 |

Emits a row per pair (bounds included) as soon as both rows are there: the key, then the columns
that `left` and `right` name with their types. A column of both is emitted as `left_ms` and
`right_ms`. `time: {left: ms, right: end}` where the columns of event time have different names; a
time is int64 milliseconds or a timestamp. `types: {user: int64}` names key columns that are no
strings.

A row is kept until the watermark excludes further partners. A late row (of a source with `late:
update`) matches what is still kept. Every pair of a key is a row: n left and n right rows of one
key near each other are n * n rows in one epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from perseid.jobs.library import sides
from perseid.jobs.library.parameters import Parameters
from perseid.jobs.library.sides import LEFT, RIGHT, TIME, Side
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Emitter, Operator
from perseid.state import Pool
from perseid.state.primitives.keys import KeyFields
from perseid.state.primitives.pairs import spread
from perseid.state.primitives.undo import Slots

NAME = "Join"
EXAMPLES = {
    "within": '"10m"', "before": '"5m"', "after": '"1m"', "window": '"1m"', "time": "ms",
    "left": "{ms: int64, amount: float64}", "right": "{ms: int64, page: string}",
    "types": "{user: int64}",
}  # fmt: skip


class Reach(Protocol):
    """Which times a row matches on the other side: `low <= time <= high`, in ms."""

    def bounds(self, times: Slots) -> tuple[Slots, Slots]:
        """The bounds for rows with these times."""

    def before(self, watermark: int) -> int:
        """Rows before this time have no partners at or after the watermark."""

    @property
    def length(self) -> int:
        """The largest distance of matching rows, in ms."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From `back` ms before a row to `ahead` ms after it."""

    back: int
    ahead: int

    def bounds(self, times: Slots) -> tuple[Slots, Slots]:
        return times - self.back, times + self.ahead

    def before(self, watermark: int) -> int:
        return watermark - self.ahead

    @property
    def length(self) -> int:
        return max(self.back, self.ahead)


@dataclass(frozen=True, slots=True)
class SameWindow:
    """The window of `size` ms that the row is in."""

    size: int

    def bounds(self, times: Slots) -> tuple[Slots, Slots]:
        starts = times - times % self.size
        return starts, starts + self.size - 1

    def before(self, watermark: int) -> int:
        return watermark - watermark % self.size

    @property
    def length(self) -> int:
        return self.size


def join(spec: OperatorSpec) -> type[Operator]:
    """`with:` has the columns of both sides, `time`, and how near rows must be."""
    given = Parameters(spec, NAME, EXAMPLES)
    one, other = sides.sides(spec, given)
    reaches = _reaches(given)

    class Join(Joins):
        """The join of one use of the library."""

        left_side, right_side = one, other
        of_left, of_right = reaches
        history_ms = reaches[0].length
        fields = KeyFields(one.keys)
        output = pa.schema([*one.keys.items(), *one.output, *other.output])
        metadata = sides.metadata(one, other)
        left, right = one.pool(), other.pool()

    return Join


class Joins(Operator):
    """Pairs of rows. Subclasses define the sides and the distance."""

    left_side: ClassVar[Side]
    right_side: ClassVar[Side]
    of_left: ClassVar[Reach]
    of_right: ClassVar[Reach]
    fields: ClassVar[KeyFields]
    needs_watermark = True
    left: Pool
    right: Pool

    def process(self, inputs: dict[str, pa.Table], out: Emitter) -> None:
        left = self.left_side.rows(inputs[LEFT])
        right = self.right_side.rows(inputs[RIGHT])
        self.right.append(right)
        lefts, rights = self._pairs(left, self.right, self.of_left)
        out.emit(self._joined(lefts, rights))
        rights, lefts = self._pairs(right, self.left, self.of_right)  # the earlier left rows
        out.emit(self._joined(lefts, rights))
        self.left.append(left)

    def on_epoch_end(self, out: Emitter) -> None:
        if self.watermark is not None:
            self.left.expire(self.of_left.before(self.watermark))
            self.right.expire(self.of_right.before(self.watermark))

    def _pairs(self, rows: pa.Table, pool: Pool, reach: Reach) -> tuple[pa.Table, pa.Table]:
        """Rows and their partners in the pool, side by side."""
        if not rows.num_rows:
            return rows, pool.between(0, 0)
        low, high = reach.bounds(rows[TIME].to_numpy())
        others = pool.between(int(low.min()), int(high.max()) + 1)
        starts, stops, places = sides.found(rows, others, self.fields, low, high)
        mine, nth = spread(starts, stops)
        return rows.take(pa.array(mine)), others.take(pa.array(places[nth]))

    def _joined(self, left: pa.Table, right: pa.Table) -> pa.Table:
        keys = {name: left[name] for name in self.fields.types}
        return pa.table(
            keys | self.left_side.emitted(left) | self.right_side.emitted(right),
            schema=self.output,
        )


def _reaches(given: Parameters) -> tuple[Reach, Reach]:
    """The right rows that a left row matches, and the left rows that a right row matches."""
    ways = [
        [name for name in way if name in given]
        for way in (("within",), ("before", "after"), ("window",))
    ]
    if sum(map(bool, ways)) != 1:
        raise given.wrong("within", "one of: within; before and after; window")
    if "window" in given:
        same = SameWindow(given.milliseconds("window"))
        return same, same
    if "within" in given:
        near = given.milliseconds("within")
        return Interval(near, near), Interval(near, near)
    back = given.milliseconds("before", default=0, least=0)
    ahead = given.milliseconds("after", default=0, least=0)
    return Interval(back, ahead), Interval(ahead, back)
