"""When the demo sends, how fast, and when it kills. Pure: observations in, decisions out.

A kill proves something only during work. So at each kill

1. an epoch with input has just been opened and is not committed,
2. at least 20 % of the input's output is committed,
3. at least 30 % of the input is not,

and after the last one at least 20 epochs with input are committed. Each kill has a part of the
input as its slot. When the slot is used up before the kill and its recovery are over, only a few
lines are sent, so that epochs continue while little input is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from perseid.cli.scenario.kills import Kill

COMMITTED_MIN = 0.20  # of the output, before the first kill
UNCOMMITTED_MIN = 0.30  # of the input, at the last kill
EPOCHS_AFTER_MIN = 20  # committed after the last kill
_FIRST_SHARE = 0.22  # a little more than promised, since observations are slightly old
_LAST_SHARE = 0.64
_SENT_MAX = 0.68  # while kills are left: what is not sent cannot be committed
_EPOCHS_AFTER_GOAL = 25
_RECOVERED_EPOCHS = 3  # between two kills, so that the second hits a running job
_FRESH_S = 0.1  # an epoch opened this recently is surely not committed yet
_EPOCH_S = 0.5  # the maximum duration of an epoch at these rates, for the tail
_DRIP_SHARE = 0.02
_DRIP_MIN = 2.0
_DRIP_S = 30.0
_RATE_MAX = 50_000.0  # to reach an early kill in time; more would make one huge epoch
_HOPELESS_S = 60.0  # after this time without a chance to kill, the demo continues without it


@dataclass(frozen=True, slots=True)
class Scene:
    """The observations at `now_s` after the first line. Only epochs with input count."""

    now_s: float
    sent: int
    committed: int
    epochs: int
    in_flight: int | None = None
    in_flight_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Lines may be sent up to `limit` in all, at `rate` a second; `kill` is to be done now.

    `give_up`: this kill could not be done in time and is skipped.
    """

    rate: float
    limit: int
    kill: Kill | None = None
    give_up: Kill | None = None


@dataclass(frozen=True, slots=True)
class Pacing:
    """The plan and its progress. `kills` are done in order."""

    total: int
    base_rate: float
    kills: tuple[Kill, ...] = ()
    fixed_rate: bool = False
    done: int = 0
    done_epochs: int = 0
    done_at_s: float = 0.0

    def share(self, index: int) -> float:
        """The share of the input that is committed when kill `index` is due; its slot's start."""
        step = (_LAST_SHARE - _FIRST_SHARE) / max(len(self.kills), 1)
        return _FIRST_SHARE + step * index

    def decide(self, scene: Scene) -> Decision:
        """What to do now. After a kill, or a skipped one, continue with `after_kill`."""
        if self.done == len(self.kills):
            return Decision(self._tail_rate(scene), self.total)
        kill = self.kills[self.done]
        limit = int(self.total * _SENT_MAX)
        if self._may_kill(kill, scene):
            return Decision(self._slot_rate(kill, scene), limit, kill=kill)
        if scene.now_s > self._hopeless_s(kill):
            return Decision(self.base_rate, limit, give_up=kill)
        return Decision(self._slot_rate(kill, scene), limit)

    def after_kill(self, scene: Scene) -> Pacing:
        """The plan once the due kill is done or skipped."""
        return replace(self, done=self.done + 1, done_epochs=scene.epochs, done_at_s=scene.now_s)

    def _may_kill(self, kill: Kill, scene: Scene) -> bool:
        due = kill.at_s is None or scene.now_s >= kill.at_s
        # A time given by the user overrides the slot, but not the promised shares.
        share = self.share(self.done) if kill.at_s is None else COMMITTED_MIN
        recovered = self.done == 0 or scene.epochs >= self.done_epochs + _RECOVERED_EPOCHS
        return (
            due
            and recovered
            and scene.in_flight is not None
            and scene.in_flight_age_s <= _FRESH_S
            and share * self.total <= scene.committed <= (1 - UNCOMMITTED_MIN) * self.total
        )

    def _hopeless_s(self, kill: Kill) -> float:
        """When a kill is skipped: well after its slot must have been used up."""
        begin = self.share(self.done - 1) if self.done else 0.0
        slot_s = (self.share(self.done + 1) - begin) * self.total / self.base_rate
        return max(self.done_at_s, kill.at_s or 0.0) + 2 * slot_s + _HOPELESS_S

    def _slot_rate(self, kill: Kill, scene: Scene) -> float:
        """Full speed inside the slot, a few lines after it; before it the rate for a given time."""
        # Never all that is left: however long a recovery takes, the next kill still has input.
        left = self.total * _SENT_MAX - scene.sent
        drip = max(min(self.base_rate * _DRIP_SHARE, left / _DRIP_S), _DRIP_MIN)
        slot_end = self.share(self.done + 1) * self.total
        if kill.at_s is not None and scene.now_s < kill.at_s:
            wanted = (self.share(self.done) * self.total - scene.sent) / (kill.at_s - scene.now_s)
            fastest = self.base_rate if self.fixed_rate else _RATE_MAX
            return min(max(wanted, drip), fastest)
        return self.base_rate if scene.sent < slot_end else min(drip, self.base_rate)

    def _tail_rate(self, scene: Scene) -> float:
        """Slow enough that the rest of the input is spread over the epochs still to come."""
        missing = _EPOCHS_AFTER_GOAL - (scene.epochs - self.done_epochs)
        if not self.kills or missing <= 0:
            return self.base_rate
        # Nothing has been committed since the kill: the recovery takes time too.
        epoch_s = 2 * _EPOCH_S if scene.epochs == self.done_epochs else _EPOCH_S
        spread = (self.total - scene.sent) / (missing * epoch_s)
        return min(max(spread, _DRIP_MIN), self.base_rate)


def default_rate(records: int) -> float:
    """Lines per second for a demo of about a minute, which two cores follow easily."""
    return min(max(records / 60.0, 500.0), 20_000.0)
