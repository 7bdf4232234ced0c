"""Deletes unneeded records of a job's token log and ledger; `trimming` decides which."""

from __future__ import annotations

from collections.abc import Iterator

from perseid.coordinator.actions import TrimLogs
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.loading import READ_TIMEOUT_S, Clients
from perseid.coordinator.trimming import floor, ledger_cut
from perseid.errors import PermanentError
from perseid.topics import codec, names
from perseid.topics.admin import Partition
from perseid.topics.records import Begin, Token

WORTH_OFFSETS = 400  # a shorter ledger partition is not read: each read costs a client
LOOK_OFFSETS = 2_000  # of a ledger partition, read at once
LOOKS_MAX = 10  # of one partition in one trim; the first trim of a long ledger takes several


def trim(clients: Clients, action: TrimLogs) -> dict[Partition, int]:
    """Trims; returns the new first offsets by partition. Raises RetryableError, PermanentError.

    Of a floor that stays for hours (`once`), the token log is trimmed when no ledger has more to
    trim. So one that begins with the floor shows that all is done, and no ledger is read.
    """
    tokens = names.tokens(action.job), 0
    marks = clients.registry.backups(action.job)
    entry = clients.registry.job_entry(action.job)  # after the marks, removed with it
    if entry is None or entry.value.uuid != action.job_uuid:
        return {}  # a backup of it may be restored
    start = clients.topics.starts([tokens])[tokens]
    # A mark whose record is gone, for any reason, holds nothing back any more.
    kept = floor(action, (mark for mark in marks if mark.token_offset >= start))
    if kept is None or (action.once and kept.offset == start):
        return {}
    try:
        _check_there(clients, action, kept)
        cuts, done = _ledger_cuts(clients, action.job, kept.epoch)
        if done or not action.once:
            cuts[tokens] = kept.offset
    finally:
        clients.reader.close()  # each of its positions in many partitions is a client of its own
    starts = clients.topics.starts(cuts)
    before = {place: cut for place, cut in cuts.items() if cut > starts[place]}
    clients.topics.delete_records(before)
    return before


def _check_there(clients: Clients, action: TrimLogs, kept: Tip) -> None:
    """Refuses a topic that was created again: it has another record at that offset, or none."""
    place = names.tokens(action.job), 0
    entries = clients.reader.read_range(
        *place, kept.offset, kept.offset + 1, timeout_s=READ_TIMEOUT_S
    )
    found = [codec.decode_token(place[0], e.offset, e.value) for e in entries]
    record = found[0] if found else None
    if (
        not isinstance(record, Begin | Token)
        or (record.job_uuid, record.epoch) != (action.job_uuid, kept.epoch)
    ):  # fmt: skip
        raise PermanentError(
            f"{place[0]} has {type(record).__name__} at offset {kept.offset}, expected that of "
            f"epoch {kept.epoch} of job {action.job_uuid}"
        )


def _ledger_cuts(
    clients: Clients, job: str, kept_epoch: int
) -> tuple[dict[Partition, int], bool]:  # fmt: skip
    """By partition the first offset that stays, and whether all have been looked at to there."""
    topic = names.ledger(job)
    info = clients.topics.describe([topic]).get(topic)
    places = [(topic, partition) for partition in range(info.partitions if info else 0)]
    starts, ends = clients.topics.starts(places), clients.topics.ends(places)
    cuts, done = dict[Partition, int](), True
    for place in places:
        start, end = starts[place], ends[place]
        if end - start < WORTH_OFFSETS:
            continue
        records = _records(clients, place, start, end)
        cut = ledger_cut(records, kept_epoch)
        if cut is not None:
            cuts[place] = cut
        if end - start > LOOKS_MAX * LOOK_OFFSETS and next(records, None) is None:
            done = False  # all that was looked at goes
    return cuts, done


def _records(clients: Clients, place: Partition, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Offsets and epochs of a ledger partition's committed records, up to the limit of one trim."""
    for low in range(start, min(end, start + LOOKS_MAX * LOOK_OFFSETS), LOOK_OFFSETS):
        high = min(low + LOOK_OFFSETS, end)
        for entry in clients.reader.read_range(*place, low, high, timeout_s=READ_TIMEOUT_S):
            yield entry.offset, codec.decode_ledger(place, entry.offset, entry.value).epoch
