"""The token chain: each rule, and that every reader sees the same, wherever it starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import PermanentError
from perseid.topics.chain import Accepted, Base, Chain, Void, valid_tokens
from perseid.topics.records import Begin, Claim, Rewind, Token, TokenRecord


def token(epoch: int, previous: int, *, ce: int = 1, uuid: str = "u", time_ms: int = 0) -> Token:
    return Token(ce, uuid, epoch, previous, "rev", 1, (), time_ms)


def fed(*records: TokenRecord) -> tuple[Chain, list[Accepted | Void]]:
    chain = Chain()
    return chain, [chain.feed(i, r) for i, r in enumerate(records)]


def reason(outcome: Accepted | Void) -> str:
    assert isinstance(outcome, Void)
    return outcome.reason


def test_tokens_extend_the_chain_from_its_begin() -> None:
    chain, seen = fed(Claim(1, "a"), Begin(1, "u", 10), token(11, 1), token(12, 2))
    assert [s.kind for s in seen if isinstance(s, Accepted)] == ["claim", "begin", "token", "token"]
    assert (chain.job_uuid, chain.tip_epoch, chain.tip_offset) == ("u", 12, 3)


def test_a_claim_voids_what_a_lower_coordinator_writes_after_it() -> None:
    chain, seen = fed(
        Claim(1, "a"), Begin(1, "u", 0), Claim(2, "b"), token(1, 1, ce=1), token(1, 1, ce=2)
    )
    assert "coordinator epoch 1 after one of 2" in reason(seen[3])
    assert isinstance(seen[4], Accepted)
    assert chain.coordinator_epoch == 2


def test_a_lower_claim_is_void() -> None:
    _, seen = fed(Claim(2, "b"), Claim(1, "a"))
    assert "Claim of coordinator epoch 1" in reason(seen[1])


def test_what_a_token_must_follow() -> None:
    start = (Claim(1, "a"), Begin(1, "u", 5))
    assert "chain ends with epoch 5 at offset 1" in reason(fed(*start, token(7, 1))[1][2])
    assert "follows offset 0" in reason(fed(*start, token(6, 0))[1][2])
    assert "of job v, the chain is of u" in reason(fed(*start, token(6, 1, uuid="v"))[1][2])
    assert "chain is of none" in reason(fed(Claim(1, "a"), token(1, -1))[1][1])


def test_token_time_never_falls_but_a_token_taken_back_takes_its_own_with_it() -> None:
    chain, seen = fed(
        Claim(1, "a"), Begin(1, "u", 0), token(1, 1, time_ms=50), token(2, 2, time_ms=40),
        token(2, 2, time_ms=3_600_000), Rewind(1, "u", 1, 2, "why"), token(2, 2, time_ms=55),
        token(3, 6, time_ms=54),
    )  # fmt: skip
    assert "time 40 is below 50" in reason(seen[3])
    assert "time 54 is below 55" in reason(seen[7])
    assert (chain.tip_offset, chain.time_ms) == (6, 55)


def test_a_rewind_moves_the_tip_back_and_must_name_a_lower_one() -> None:
    start = (Claim(1, "a"), Begin(1, "u", 0), token(1, 1), token(2, 2))
    chain, seen = fed(*start, Rewind(1, "u", 1, 2, "why"), token(2, 2))
    assert [isinstance(s, Accepted) for s in seen[4:]] == [True, True]
    assert chain.tip_offset == 5
    assert "not on the chain" in reason(fed(*start, Rewind(1, "u", 3, 2, ""))[1][4])
    assert "not on the chain" in reason(fed(*start, Rewind(1, "u", 1, 3, ""))[1][4])
    assert "of job v" in reason(fed(*start, Rewind(1, "v", 1, 2, ""))[1][4])


def test_a_begin_never_goes_below_the_last_epoch() -> None:
    start = (Claim(1, "a"), Begin(1, "u", 0), token(1, 1), token(2, 2))
    assert "epochs never restart" in reason(fed(*start, Begin(1, "v", 1))[1][4])
    chain, seen = fed(*start, Begin(1, "v", 2), token(3, 3), token(3, 4, uuid="v"))
    assert "of job u" in reason(seen[5])
    assert (chain.job_uuid, chain.tip_epoch, chain.tip_offset) == ("v", 3, 6)


def test_valid_tokens_are_what_remains_after_rewinds_and_begins() -> None:
    log: list[TokenRecord] = [
        Claim(1, "a"), Begin(1, "u", 0), token(1, 1), token(2, 2),
        Rewind(1, "u", 1, 2, "why"), token(2, 2), token(9, 9),
    ]  # fmt: skip
    assert list(valid_tokens(Chain(), enumerate(log))) == [2, 5]
    log.append(Begin(1, "v", 2))
    assert valid_tokens(Chain(), enumerate(log)) == {}


@pytest.mark.parametrize("base", [Base("u", 1, 1), Base("v", 0, 1), Base("u", 0, 0)])
def test_a_base_that_is_not_what_it_was_is_a_permanent_error(base: Base) -> None:
    log: list[TokenRecord] = [Claim(1, "a"), Begin(1, "u", 0)]
    with pytest.raises(PermanentError, match="trimmed or the topic created again"):
        valid_tokens(Chain(base), enumerate(log))


@dataclass
class Leader:
    """A coordinator that keeps its own, possibly outdated, view of the log."""

    epoch: int
    view: Chain = field(default_factory=Chain)
    tokens: dict[int, Token] = field(default_factory=dict)
    read_to: int = 0

    def catch_up(self, log: list[TokenRecord]) -> None:
        entries = list(enumerate(log))[self.read_to :]
        for offset, record in entries:
            seen = self.view.feed(offset, record)
            if isinstance(seen, Accepted) and seen.token is not None:
                self.tokens[offset] = seen.token
        self.tokens = {o: t for o, t in self.tokens.items() if o <= self.view.tip_offset}
        self.read_to = len(log)

    def next_token(self, time_ms: int) -> Token:
        view, last = self.view, self.tokens.get(self.view.tip_offset)
        made = token(view.tip_epoch + 1, view.tip_offset, ce=self.epoch, uuid=view.job_uuid)
        return replace(made, time_ms=max(time_ms, last.time_ms if last is not None else 0))


class World:
    """Two coordinators over one log, each acting on what it last read."""

    def __init__(self) -> None:
        self.log: list[TokenRecord] = []
        self.leaders = [Leader(0), Leader(0)]
        self.claimed = 0

    def step(self, who: int, what: str, number: int) -> None:
        leader = self.leaders[who]
        match what:
            case "claim":
                self.claimed += 1
                leader.epoch = self.claimed
                self.log.append(Claim(leader.epoch, f"c{who}"))
                leader.catch_up(self.log)
            case "begin":
                uuid = f"u{len(self.log)}"
                self.log.append(Begin(leader.epoch, uuid, leader.view.tip_epoch + number % 3))
            case "token":
                self.log.append(leader.next_token(number))
            case "twice":  # an append of unknown outcome, tried again
                self.log += [leader.next_token(number)] * 2
            case "rewind" if leader.tokens:
                offset = sorted(leader.tokens)[number % len(leader.tokens)]
                target = leader.tokens[offset]
                self.log.append(Rewind(leader.epoch, target.job_uuid, target.epoch, offset, "why"))
        if leader.epoch == self.claimed:
            leader.catch_up(self.log)  # the leader of the day reads its own records back


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["claim", "begin", "token", "token", "token", "twice", "rewind"]),
        st.integers(0, 20),
    ),
    max_size=40,
)


def outcomes(chain: Chain, log: list[TokenRecord], start: int) -> list[Accepted | Void]:
    return [chain.feed(i, r) for i, r in enumerate(log) if i >= start]


def state(chain: Chain) -> tuple[object, ...]:
    return (
        chain.coordinator_epoch, chain.job_uuid, chain.tip_epoch, chain.tip_offset, chain.time_ms
    )  # fmt: skip


@given(STEPS)
def test_every_reader_sees_the_same_from_its_base_on(steps: list[tuple[int, str, int]]) -> None:
    world = World()
    world.step(0, "claim", 0)
    world.step(0, "begin", 0)
    for step in steps:
        world.step(*step)
    whole = Chain()
    seen = outcomes(whole, world.log, 0)
    for offset, record in enumerate(world.log):
        kept = seen[offset]
        if not (isinstance(kept, Accepted) and isinstance(record, Begin | Token)):
            continue
        for start in {0, offset // 2, offset}:
            late = Chain(Base(record.job_uuid, record.epoch, offset))
            assert outcomes(late, world.log, start)[offset - start + 1 :] == seen[offset + 1 :]
            assert state(late) == state(whole)


@given(STEPS)
def test_what_counts_is_dense_and_linked(steps: list[tuple[int, str, int]]) -> None:
    world = World()
    world.step(0, "claim", 0)
    world.step(0, "begin", 0)
    for step in steps:
        world.step(*step)
    chain = Chain()
    tokens = valid_tokens(chain, enumerate(world.log))
    offsets = list(tokens)
    for before, after in pairwise(offsets):
        assert tokens[after].previous_offset == before
        assert tokens[after].epoch == tokens[before].epoch + 1
        assert tokens[after].time_ms >= tokens[before].time_ms
        assert tokens[after].coordinator_epoch >= tokens[before].coordinator_epoch
    if tokens:
        assert (offsets[-1], tokens[offsets[-1]].epoch) == (chain.tip_offset, chain.tip_epoch)


@given(STEPS, st.integers(0, 20))
def test_an_outdated_leader_adds_nothing(steps: list[tuple[int, str, int]], number: int) -> None:
    world = World()
    world.step(0, "claim", 0)
    world.step(0, "begin", 0)
    for step in steps:
        world.step(*step)
    world.step(1, "claim", 0)
    end = len(world.log)
    for what in ("token", "begin", "rewind", "twice"):
        world.step(0, what, number)
    seen = outcomes(Chain(), world.log, 0)[end:]
    assert seen
    assert all(isinstance(s, Void) for s in seen)
