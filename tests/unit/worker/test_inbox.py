"""Rows that fragments send each other through buffer topics, on the model of Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.clocks import ManualClock
from perseid.engine.feed import TokenHistory
from perseid.engine.order import EpochOrder
from perseid.errors import FencedError, PermanentError, RetryableError, TransientAnswer
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spec import PlacementSpec
from perseid.jobs.model.spread import spread_of
from perseid.records import CheckpointPointer
from perseid.testing.kafka import FakeBufferWriter, FakeLogReader, FakeTopics, ModelKafka
from perseid.topics import control
from perseid.topics.buffers import SetWriter
from perseid.topics.chain import Base
from perseid.topics.records import Token
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.barriers import counted, expected
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row, inputs
from perseid.worker.epoch import flow
from perseid.worker.epoch.inbox import LATE_LOOKS, LOOK_S, BufferInbox, Surroundings, Whole
from perseid.worker.epoch.outbox import BufferOutbox
from perseid.worker.spark.levels import refuse_unfit
from support.fragment_contexts import context_of

JOB = """
name: job
parallelism: 2
sources:
  lines: {topic: lines, format: text}
operators:
  counts: {input: lines, key: value, use: "ops:Same"}
sinks:
  out: {input: counts, topic: out, format: json, key: value}
"""
OPS = """
from perseid.jobs import Operator, pa

class Same(Operator):
    def process(self, batch, out):
        out.emit(batch)
"""
TOPIC = "perseid.job.buffer.counts.1"
BASE = 10  # the offset of the base's token; epoch e has its token at BASE + e
WORDS = [f"w{n}" for n in range(20)]


def order(epoch: int, offset: int | None = None) -> EpochOrder:
    at = BASE + epoch if offset is None else offset
    token = Token(1, "u", epoch, at - 1, "r", 1, ((), ()), 1_000)
    return EpochOrder(token, at, None, generation=1)


def history(*epochs: int) -> TokenHistory:
    offsets = {0: BASE, **{epoch: BASE + epoch for epoch in epochs}}
    return TokenHistory(Base("u", 0, BASE), offsets, {}, max(offsets.values()) + 1)


def pointer(epoch: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 1, 1, "r", BASE + epoch, "m", 0, 1, 0)


def plain(rows: list[Row]) -> list[str]:
    """The values of one operator partition's rows."""
    values: list[str] = inputs(rows, ("input",))["input"]["value"].to_pylist()
    return values


@dataclass
class Setting:
    """Two fragments of the job, each with one partition of `counts`."""

    folder: Path
    kafka: ModelKafka = field(default_factory=ModelKafka)
    warned: list[str] = field(default_factory=list)
    checkpoints: tuple[CheckpointPointer, ...] = ()
    continues: bool = True
    attempts: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.topics = FakeTopics(self.kafka)
        spec = control.buffer_topic("job", "counts", 1, 2)
        self.topics.create(spec.name, spec.partitions, spec.config)

    def context(self, split: int, generation: int = 1) -> FragmentContext:
        whole = context_of(self.folder)
        spread = spread_of(flow.spec_of(self.folder), whole.layout)
        assert spread is not None
        assert [share.gids for share in spread.shares] == [(0,), (1,)]
        layout = whole.layout.part(spread.shares[split].gids)
        return replace(
            whole, layout=layout, split=split, fragment=str(split), generation=generation
        )

    def send(
        self, split: int, order: EpochOrder, words: list[str] = WORDS, generation: int = 1
    ) -> None:
        context = self.context(split, generation)
        table = pa.table({"value": words})
        rows = list(flow.rows_of(context, order.token, "lines", table, split))
        writer = SetWriter(FakeBufferWriter(self.kafka), lambda: next(self.attempts))
        sent = replace(order, generation=generation)
        BufferOutbox(context, flow.whole_layout(context), writer).send(sent, rows)

    def inbox(
        self, past: TokenHistory, done_epoch: int = 0, generation: int = 1,
        wait: Callable[[], None] = lambda: None,
    ) -> BufferInbox:  # fmt: skip
        """Of the fragment 0. `wait`: called before each read."""

        def continues() -> bool:
            wait()
            return self.continues

        clock = self.kafka.clock
        assert isinstance(clock, ManualClock)
        around = Surroundings(
            self.topics, self.open, continues, self.warned.append, lambda: self.checkpoints,
            lambda work: work(), clock,
        )  # fmt: skip
        context = self.context(0, generation)
        found = BufferInbox(context, Whole.of(context), around)
        found.begin(past, done_epoch)
        return found

    def open(self, starts: Mapping[tuple[str, int], int]) -> FakeLogReader:
        self.starts = dict(starts)
        return FakeLogReader(self.kafka)

    def own(self, inbox: BufferInbox, order: EpochOrder) -> list[Row]:
        """The rows of partition 0, whose sets are all there, once and whole."""
        rows = inbox.rows(order, (0,))
        wanted = expected(flow.graph_of(self.context(0)), order.token, 0)
        assert len(wanted.sets) == 2
        return list(counted(rows, wanted, "counts-0"))

    @property
    def records(self) -> int:
        """How many there are in the partition 0."""
        (start,) = self.topics.starts([(TOPIC, 0)]).values()
        (end,) = self.topics.ends([(TOPIC, 0)]).values()
        return end - start


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "ops.py").write_text(OPS)
    spec = flow.spec_of(tmp_path).model_copy(update={"placement": PlacementSpec(spread=2)})
    monkeypatch.setattr(flow, "spec_of", lambda _folder: spec)
    return Setting(tmp_path)


def test_a_partition_gets_the_sets_of_both_fragments(setting: Setting) -> None:
    for split in (0, 1):
        setting.send(split, order(1), [f"{word}-{split}" for word in WORDS])
    inbox = setting.inbox(history())
    found = plain(setting.own(inbox, order(1)))
    words = [f"{word}-{split}" for split in (0, 1) for word in WORDS]
    assert 0 < len(found) < len(words), "the other partition has some"
    assert found == [word for word in words if word in found], "in the order of the splits"
    assert setting.warned == []


def test_sets_that_were_sent_twice_count_once(setting: Setting) -> None:
    for split in (0, 1, 1, 0):
        setting.send(split, order(1))
    inbox = setting.inbox(history())
    once = plain(setting.own(inbox, order(1)))
    assert len(once) == 2 * len(set(once))
    assert setting.warned == []


def test_other_rows_of_a_set_are_an_event(setting: Setting) -> None:
    setting.send(0, order(1))
    setting.send(0, order(1), ["other", *WORDS[1:], "w3"], generation=2)
    setting.send(1, order(1))
    inbox = setting.inbox(history())
    assert len(setting.own(inbox, order(1))) == 2
    (event,) = setting.warned
    assert event.startswith(
        "divergence: operator counts, partition 0, epoch 1, input 0, origin 0: generation 1 sent"
    )


def test_sets_of_a_token_that_was_taken_back_are_not_read(setting: Setting) -> None:
    rolled_back, valid = order(1), order(1, BASE + 3)
    for split in (0, 1):
        setting.send(split, rolled_back, ["w1", "rolled back"])
        setting.send(split, valid)
    inbox = setting.inbox(replace(history(), end=BASE + 3))
    found = plain(setting.own(inbox, valid))
    assert found
    assert "rolled back" not in found
    assert len(found) == len([w for w in 2 * WORDS if w in found])


def test_epochs_that_were_done_before_are_not_waited_for(setting: Setting) -> None:
    for epoch in (1, 2, 3):
        for split in (0, 1):
            setting.send(split, order(epoch), [f"{word}-{epoch}" for word in WORDS])
    inbox = setting.inbox(history(1, 2, 3), done_epoch=2)
    assert {word[-1] for word in plain(setting.own(inbox, order(3)))} == {"3"}


def test_a_wait_ends_when_the_fragment_is_asked_to_end(setting: Setting) -> None:
    setting.send(0, order(1))
    looks = itertools.count()

    def stop_soon() -> None:
        setting.continues = next(looks) < 3

    inbox = setting.inbox(history(), wait=stop_soon)
    with pytest.raises(FencedError, match="asked to end while it waited for rows of others"):
        inbox.rows(order(1), (0,))
    assert setting.kafka.clock.monotonic_s() < 1_000 + LOOK_S


def test_a_long_wait_is_an_event_and_ends_when_the_sets_come(setting: Setting) -> None:
    setting.send(0, order(1))
    begun_s = setting.kafka.clock.monotonic_s()
    late_s = LOOK_S * LATE_LOOKS

    def come_late() -> None:
        if setting.warned and len(setting.kafka.log(TOPIC, 0).records) == 1:
            setting.send(1, order(1))

    inbox = setting.inbox(history(), wait=come_late)
    assert len(setting.own(inbox, order(1))) == 2
    assert setting.kafka.clock.monotonic_s() - begun_s >= late_s
    (event,) = setting.warned
    assert event.startswith("epoch 1 waits: operator counts, partition 0: 1 sets of the token")
    assert "(input 0, origin 1); the fragments that send them are late or down" in event


def test_done_epochs_are_trimmed_before_the_oldest_checkpoint(setting: Setting) -> None:
    inbox = setting.inbox(history())
    for epoch in range(1, 7):
        for split in (0, 1):
            setting.send(split, order(epoch))
        setting.own(inbox, order(epoch))
        if epoch == 5:
            setting.checkpoints = (pointer(4), pointer(2))
        inbox.done(order(epoch))
        assert setting.records == (2 * epoch if epoch < 5 else 2 * (epoch - 2))
    again = setting.inbox(replace(history(1, 2, 3, 4, 5, 6), base=Base("u", 2, BASE + 2)), 2)
    for epoch in range(3, 7):
        assert plain(setting.own(again, order(epoch)))


def test_a_fragment_that_resumed_late_keeps_what_an_older_checkpoint_needs(
    setting: Setting,
) -> None:
    for epoch in range(1, 7):
        for split in (0, 1):
            setting.send(split, order(epoch))
    inbox = setting.inbox(history(*range(1, 6)), done_epoch=5)
    setting.own(inbox, order(6))
    setting.checkpoints = (pointer(5), pointer(3))
    inbox.done(order(6))
    assert setting.records == 6


def test_a_trim_that_fails_is_tried_again_after_the_next_checkpoint(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = setting.inbox(history())
    for epoch in range(1, 5):
        for split in (0, 1):
            setting.send(split, order(epoch))
        setting.own(inbox, order(epoch))
    setting.checkpoints = (pointer(1),)

    def away(_before: object) -> None:
        raise RetryableError("the broker is away")

    with monkeypatch.context() as patch:
        patch.setattr(setting.topics, "delete_records", away)
        inbox.done(order(4))
    assert setting.records == 8
    setting.checkpoints = (pointer(2),)
    inbox.done(order(4))
    assert setting.records == 4


def test_records_that_were_deleted_by_hand_end_the_job(setting: Setting) -> None:
    for epoch in (1, 2):
        for split in (0, 1):
            setting.send(split, order(epoch))
    inbox = setting.inbox(history(1, 2))
    setting.topics.delete_records({(TOPIC, 0): 2})
    with pytest.raises(RetryableError, match=r"reads its buffers again: .* deleted by hand"):
        setting.own(inbox, order(1))
    again = setting.inbox(history(1, 2))
    text = r"lacks \(input 0, origin 0\), \(input 0, origin 1\) of the token at offset 11, and has "
    with pytest.raises(PermanentError, match=text):
        setting.own(again, order(1))


def test_later_sets_of_a_higher_generation_prove_no_loss(setting: Setting) -> None:
    """They may be of tokens after a rewind of which this fragment has not heard yet."""
    for split in (0, 1):
        setting.send(split, order(1, BASE + 3), generation=2)
    inbox = setting.inbox(history(), wait=lambda: setattr(
        setting, "continues", setting.kafka.clock.monotonic_s() < 1_000 + 3 * LOOK_S
    ))  # fmt: skip
    with pytest.raises(FencedError):
        setting.own(inbox, order(1))


def test_a_topic_that_was_deleted_or_made_again_is_an_error(setting: Setting) -> None:
    inbox = setting.inbox(history())
    for epoch in (1, 2):
        for split in (0, 1):
            setting.send(split, order(epoch))
        setting.own(inbox, order(epoch))
    setting.topics.delete([TOPIC])
    with pytest.raises(TransientAnswer, match="does not exist: it was deleted, and with it rows"):
        setting.inbox(history())
    setting.topics.create(TOPIC, 2)
    setting.checkpoints = (pointer(1),)
    inbox.done(order(2))
    with pytest.raises(PermanentError, match="it was deleted and created again"):
        setting.own(inbox, order(3))
    setting.topics.delete([TOPIC])
    setting.topics.create(TOPIC, 3)
    with pytest.raises(PermanentError, match="has 3 partitions, expected 2"):
        setting.inbox(history())


@pytest.mark.parametrize(
    ("operator", "text"),
    [({"sql": "SELECT value FROM input"}, "the SQL operator counts, whose tasks Spark numbers"),
     ({"inputs": {"input": "lines", "back": "counts"}, "feedback": ("back",)},
      "and feedback, which is not built")],
)  # fmt: skip
def test_jobs_that_cannot_be_spread_are_refused(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, operator: dict[str, Any], text: str
) -> None:
    context = setting.context(0)
    refuse_unfit(context)
    spec = flow.spec_of(setting.folder)
    changed = spec.operators["counts"].model_copy(update=operator)
    other = spec.model_copy(update={"operators": {"counts": changed}})
    monkeypatch.setattr(flow, "spec_of", lambda _folder: other)
    monkeypatch.setattr(flow, "graph_of", lambda _: graph.build(other, layouts.build(other, 1)))
    with pytest.raises(PermanentError, match=text):
        refuse_unfit(context)
    refuse_unfit(replace(context, split=None))


def test_a_fragment_reads_the_sources_of_its_own_part_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace(
        "operators:", "  visits: {topic: visits, format: text}\noperators:\n"
        '  seen: {input: visits, key: value, use: "ops:Same"}'
    ))  # fmt: skip
    (tmp_path / "ops.py").write_text(OPS)
    whole = context_of(tmp_path)
    assert flow.own_sources(whole) == ("lines", "visits")
    spec = flow.spec_of(tmp_path).model_copy(update={"placement": PlacementSpec(spread=2)})
    monkeypatch.setattr(flow, "spec_of", lambda _folder: spec)
    read = [flow.own_sources(replace(whole, split=split)) for split in (0, 1)]
    assert sorted(read) == [("lines",), ("visits",)]
