from __future__ import annotations

from perseid.cli.scenario.progress import Progress
from perseid.topics.records import (
    Begin,
    Claim,
    LedgerRecord,
    Rewind,
    SinkWindow,
    SourceRange,
    Token,
)

JOB = "uuid-1"


def token(epoch: int, previous: int, count: int, *, checkpoint: bool = False) -> Token:
    ranges = (SourceRange("lines", "in", "t", 0, 0, count),)
    return Token(1, JOB, epoch, previous, "r", 1, (ranges,), epoch * 100, checkpoint=checkpoint)


def held(ledger: int, epoch: int, *, job: str = JOB, count: int = 0) -> LedgerRecord:
    windows = (SinkWindow("out", ledger, 0, count, count, 0),) if count else ()
    return LedgerRecord(job, 1, "counts", ledger, 3, epoch, 0, windows)


def started(*counts: int) -> Progress:
    progress = Progress(JOB, [0, 1])
    progress.token_record(0, Claim(1, "c1"), 0.0)
    progress.token_record(1, Begin(1, JOB, 0), 0.0)
    for i, count in enumerate(counts):
        progress.token_record(i + 2, token(i + 1, i + 1, count), float(i))
    return progress


def test_an_epoch_is_committed_when_every_ledger_partition_holds_it() -> None:
    progress = started(10, 20)
    assert (progress.tip_epoch, progress.committed_epoch) == (2, 0)
    progress.ledger_record(0, held(0, 1))
    assert progress.committed_records == 0
    progress.ledger_record(1, held(1, 1))
    assert (progress.committed_epoch, progress.committed_records) == (1, 10)
    in_flight = progress.in_flight()
    assert in_flight is not None
    assert (in_flight.epoch, in_flight.records, in_flight.seen_s) == (2, 20, 1.0)


def test_epochs_without_input_count_neither_as_work_nor_as_in_flight() -> None:
    progress = started(10, 0, 0)
    for ledger in (0, 1):
        progress.ledger_record(ledger, held(ledger, 2))
    assert progress.in_flight() is None
    assert progress.committed_epochs == 1


def test_other_jobs_and_other_partitions_are_skipped() -> None:
    progress = started(10)
    progress.ledger_record(0, held(0, 1, job="older"))
    progress.ledger_record(7, held(7, 1))
    assert progress.committed_epoch == 0
    progress.token_record(3, token(9, 0, 5), 0.0)
    assert progress.void == 1


def test_a_ledger_that_is_read_ahead_of_the_tokens_loses_no_record() -> None:
    progress = started(10)
    for ledger in (0, 1):
        progress.ledger_record(ledger, held(ledger, 2))
    assert progress.committed_records == 10
    progress.token_record(3, token(2, 2, 30), 0.0)
    assert progress.committed_records == 40


def test_a_rewind_takes_its_epochs_back() -> None:
    progress = started(10, 20)
    progress.token_record(4, Rewind(1, JOB, 1, 2, "bad input"), 0.0)
    assert progress.tip_epoch == 1
    progress.token_record(5, token(2, 2, 7), 0.0)
    for ledger in (0, 1):
        progress.ledger_record(ledger, held(ledger, 2))
    assert progress.committed_records == 17


def test_windows_above_an_epoch_are_those_of_the_next_output() -> None:
    progress = started(10, 0, 20)
    for epoch, count in ((1, 4), (2, 0), (3, 6)):
        for ledger in (0, 1):
            progress.ledger_record(ledger, held(ledger, epoch, count=count))
    assert [w.count for w in progress.windows_above(1)] == [6, 6]
    assert progress.output_records == 20


def test_the_last_checkpoint_is_the_last_committed_epoch_that_was_marked() -> None:
    progress = started(10)
    progress.token_record(3, token(2, 2, 1, checkpoint=True), 0.0)
    assert progress.last_checkpoint() is None
    for ledger in (0, 1):
        progress.ledger_record(ledger, held(ledger, 2))
    assert progress.last_checkpoint() == 2
