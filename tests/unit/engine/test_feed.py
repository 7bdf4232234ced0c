"""Which tokens a fragment runs: history, claims, rewinds, and resuming in the middle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.engine.feed import EpochFeed, TokenHistory, history
from perseid.errors import FencedError, PermanentError
from perseid.topics.chain import Base
from perseid.topics.records import Begin, Claim, InputCheck, Rewind, Token, TokenRecord

BASE = Base("u", 10, 1)
GENERATION = 5


def token(epoch: int, previous: int, *, ce: int = 1, checks: tuple[InputCheck, ...] = ()) -> Token:
    return Token(ce, "u", epoch, previous, "r", 1, (), 0, checks=checks)


def check(epoch: int, count: int = 1, split: int = 0) -> InputCheck:
    return InputCheck(epoch, split, "lines", count, 7)


LOG: list[TokenRecord] = [
    Claim(1, "c1"), Begin(1, "u", 10), token(11, 1), token(12, 2), Claim(2, "c2"),
    token(13, 3, ce=1), token(13, 3, ce=2),
]  # fmt: skip
REWOUND: list[TokenRecord] = [
    *LOG, Claim(3, "c3"), Rewind(3, "u", 11, 2, "changed"), token(12, 2, ce=3),
]  # fmt: skip


def past(log: list[TokenRecord], base: Base = BASE) -> TokenHistory:
    return history(base, list(enumerate(log))[base.offset :])


def orders(
    feed: EpochFeed, log: list[TokenRecord], upto: int | None = None
) -> list[tuple[int, int]]:
    """Feeds the log from where the feed starts; what it lets run, as (epoch, offset)."""
    found = []
    for offset, record in list(enumerate(log))[feed.start_offset : upto]:
        order = feed.feed(offset, record, None)
        if order is not None:
            found.append((order.token.epoch, order.token_offset))
            feed.done(order.token.epoch)
    return found


def test_history_holds_the_valid_tokens_and_the_base() -> None:
    found = past(LOG)
    assert found.offsets == {10: 1, 11: 2, 12: 3, 13: 6}
    assert found.tip_epoch == 13
    assert found.base_at(12) == Base("u", 12, 3)


def test_history_of_a_log_that_is_not_that_base_is_refused() -> None:
    with pytest.raises(PermanentError, match="the log was trimmed or the topic created again"):
        past(LOG, Base("u", 11, 3))


def test_a_rewind_takes_tokens_and_checks_out_of_the_history() -> None:
    log = [*LOG[:6], token(13, 3, ce=2, checks=(check(11), check(12))), *REWOUND[7:]]
    found = past(log)
    assert found.offsets == {10: 1, 11: 2, 12: 9}
    assert found.checks == {11: (check(11),)}


def test_each_valid_token_runs_once_in_order() -> None:
    assert orders(EpochFeed(past(LOG), 10, 1, GENERATION), LOG) == [(11, 2), (12, 3), (13, 6)]
    assert orders(EpochFeed(past(LOG), 12, 1, GENERATION), LOG) == [(13, 6)]
    assert orders(EpochFeed(past(LOG), 13, 1, GENERATION), LOG) == []


def test_tokens_that_come_later_run_too() -> None:
    feed = EpochFeed(past(LOG[:3]), 10, 1, GENERATION)
    assert orders(feed, LOG) == [(11, 2), (12, 3), (13, 6)]
    assert feed.done_epoch == 13


def test_a_rewind_while_it_runs_ends_the_fragment() -> None:
    feed = EpochFeed(past(LOG), 11, 1, GENERATION)
    with pytest.raises(FencedError, match="has a rewind at offset 8"):
        orders(feed, REWOUND)


def test_tokens_that_a_rewind_in_the_past_took_back_never_run() -> None:
    for done, expected in ((11, [(12, 9)]), (10, [(11, 2), (12, 9)]), (12, [])):
        assert orders(EpochFeed(past(REWOUND), done, 1, GENERATION), REWOUND) == expected


def test_a_rewind_after_one_of_the_past_ends_the_fragment_all_the_same() -> None:
    feed = EpochFeed(past(REWOUND), 11, 1, GENERATION)
    longer = [*REWOUND, Claim(4, "c4"), Rewind(4, "u", 11, 2, "changed again")]
    assert orders(feed, longer, 11) == [(12, 9)]
    with pytest.raises(FencedError, match="has a rewind at offset 11"):
        feed.feed(11, longer[11], None)


def test_a_begin_of_another_job_uuid_ends_the_fragment() -> None:
    feed = EpochFeed(past(LOG), 13, 1, GENERATION)
    log = [*LOG, Claim(3, "c3"), Begin(3, "v", 13)]
    with pytest.raises(FencedError, match="has a begin at offset 8"):
        orders(feed, log)


def test_a_token_of_another_layout_ends_the_fragment() -> None:
    """Its layout's transactional ids are not the next one's: nothing else would stop a zombie."""
    log = [*LOG, replace(token(14, 6, ce=2), layout=2)]
    with pytest.raises(FencedError, match=r"14 is of layout 2 .* this fragment runs layout 1"):
        orders(EpochFeed(past(LOG), 12, 1, GENERATION), log)
    assert orders(EpochFeed(past(log), 13, 2, GENERATION), log) == [(14, 7)]


def test_a_token_of_a_later_plan_ends_the_fragment() -> None:
    """A switch that changes code alone keeps the layout, and the old owner hears of it later."""
    log = [*LOG, replace(token(14, 6, ce=2), generation=GENERATION + 1, revision="r2")]
    for read_before in (LOG, log):
        feed = EpochFeed(past(read_before), 12, 1, GENERATION)
        with pytest.raises(FencedError, match="epoch 14 is of layout 1 and generation 6, and this"):
            orders(feed, log)
        assert feed.done_epoch == 13
    assert orders(EpochFeed(past(log), 13, 1, GENERATION + 1), log) == [(14, 7)]


def test_checks_of_later_tokens_reach_the_replay_of_an_earlier_epoch() -> None:
    log = [*LOG[:3], token(12, 2, checks=(check(11), check(11, split=1)))]
    feed = EpochFeed(past(log), 10, 1, GENERATION)
    feed.feed(1, log[1], None)
    order = feed.feed(2, log[2], 4)
    assert order is not None
    assert (order.token, order.collect_epoch) == (
        replace(token(11, 1), checks=(check(11), check(11, split=1))), 4,
    )  # fmt: skip


@pytest.mark.parametrize(("collect_epoch", "collected"), [(10, 10), (11, None), (14, None)])
def test_what_a_replay_has_still_to_pass_is_not_collected(
    collect_epoch: int, collected: int | None
) -> None:
    feed = EpochFeed(past(LOG), 10, 1, GENERATION)
    feed.feed(1, LOG[1], None)
    order = feed.feed(2, LOG[2], collect_epoch)
    assert order is not None
    assert (order.token.epoch, order.collect_epoch) == (11, collected)


@pytest.mark.parametrize(("collect_epoch", "wanted"), [(None, True), (10, True), (11, False)])
def test_a_replay_makes_no_parts_on_a_checkpoint_after_those_that_are_complete(
    collect_epoch: int | None, wanted: bool
) -> None:
    log = [*LOG[:2], replace(token(11, 1), checkpoint=True)]
    feed = EpochFeed(past(log), 10, 1, GENERATION)
    feed.feed(1, log[1], None)
    order = feed.feed(2, log[2], collect_epoch)
    assert order is not None
    assert order.token.checkpoint is wanted


def test_a_check_that_two_tokens_carry_counts_once() -> None:
    log = [*LOG[:3], token(12, 2, checks=(check(11),)), token(13, 3, checks=(check(11),))]
    assert past(log).checks == {11: (check(11),)}
