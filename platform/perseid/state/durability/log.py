"""The state log of one operator partition: a directory of immutable files.

    s-<epoch>.snapshot        the state at the end of the epoch
    e-<epoch>.delta           the changes of the epoch, and its outputs or the name of their file
    e-<epoch>-<crc>.outputs   its outputs, in a log that retains them (`outputs`)

A log begins with a snapshot (an empty one for a new job) and then holds every epoch without a gap,
so the state at any epoch is a snapshot and the deltas after it. The appearance of a delta under its
name is the commit point of the epoch for this partition. Files never change: a second writer of an
epoch gets the first writer's file.

Whose log it is follows from its directory (`owners`). A branch begins with the files of another log
(`fork`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perseid.errors import DamagedFile, FencedError, PerseidError, RetryableError
from perseid.records import crashpoints
from perseid.state.durability import blob
from perseid.state.durability.blob import Header, Identity, Sections
from perseid.state.durability.files import Files, temporary_name
from perseid.state.durability.outputs import OUTPUTS, Mending, OutputFiles, crc_of

DELTA = "delta"
SNAPSHOT = "snapshot"
_NAMES = re.compile(r"^([es])-(\d{12})\.(?:delta|snapshot)$", re.MULTILINE)  # one per line


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of the log: a delta or a snapshot.

    `found`: its writer found it existing already, possibly with other content.
    """

    header: Header
    sections: Sections
    found: bool = False


class StateLog:
    """The log in `directory`, which `adopt` and `create` have made. Safe in several processes.

    `retains`: outputs get files of their own and stay until `release`; else they are in the deltas
    and stay as long as these. A log may hold epochs of both kinds.
    Every method raises FencedError when the directory is gone, DamagedFile when a file differs from
    what was written; `repair` then keeps only sound files.
    """

    def __init__(
        self, files: Files, directory: str, identity: Identity, *, retains: bool = False
    ) -> None:
        self._files = files
        self._outputs = OutputFiles(files, directory)
        self.directory = directory
        self.identity = identity
        self.retains = retains
        self._tip: int | None = None  # the newest epoch that this object has read or written
        self._without_outputs: frozenset[int] = frozenset()  # as the last repair found

    # Begin --------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the log's directory unless it exists; the owner's must exist (see `adopt`)."""
        with fenced(self.directory):
            self._files.make_directory(self.directory)

    # Read ---------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """Epochs that have a delta, sorted."""
        return self._listed("e")

    def snapshots(self) -> list[int]:
        """Epochs that have a snapshot, sorted."""
        return self._listed("s")

    def last_epoch(self) -> int | None:
        """The newest epoch whose state the log has; None for a log without files."""
        return max(self._listed("es"), default=None)

    def entry(self, epoch: int) -> LogEntry:
        """The delta of `epoch`."""
        return self._read(DELTA, epoch)

    def find(self, epoch: int) -> LogEntry | None:
        """The delta of `epoch`; None when it or, unlike elsewhere, the directory does not exist."""
        try:
            return self._decoded(DELTA, epoch)
        except FileNotFoundError:
            return None

    def outputs(self, entry: LogEntry) -> Sections | None:
        """The outputs of a delta that are in a file of their own; {} when it names none.

        None when they were released or lost: the state is there, and the epoch cannot be returned.
        """
        named = entry.sections.get(OUTPUTS)
        if named is None:
            return {}
        found = self._outputs.read(entry.header, named)
        if found is None:
            self._listed("e")  # FencedError when the whole directory is gone
        return found

    def outputs_from(self, last: int) -> int:
        """The first epoch from which on every epoch up to `last` can be returned.

        `last` + 1 when not even `last` can. The outputs that are there are those that this object's
        `repair` has found: it has read all files.
        """
        returned = set(self.epochs()) - self._without_outputs
        first = last + 1
        while first - 1 in returned:
            first -= 1
        return first

    def snapshot(self, epoch: int) -> LogEntry:
        """The snapshot of `epoch`."""
        return self._read(SNAPSHOT, epoch)

    def load(self, upto: int | None = None) -> tuple[LogEntry | None, list[LogEntry]]:
        """The newest snapshot (not after `upto`) and all deltas after it, in order.

        (None, []) only for a log without files. Ends at the newest epoch if that is before `upto`.
        Starts again when `collect` has removed a file meanwhile.
        """
        while True:
            listed = self.epochs(), self.snapshots()
            try:
                return self._load(*listed, upto)
            except DamagedFile:
                if listed[1] == self.snapshots() and set(listed[0]) <= set(self.epochs()):
                    raise

    def _load(
        self, epochs: list[int], snapshots: list[int], upto: int | None
    ) -> tuple[LogEntry | None, list[LogEntry]]:
        if not epochs and not snapshots:
            return None, []
        limit = max([*epochs, *snapshots]) if upto is None else upto
        base = max((e for e in snapshots if e <= limit), default=None)
        if base is None:
            raise DamagedFile(
                f"{self.directory} has no snapshot at or before epoch {limit}, so its deltas "
                f"{_span(epochs)} have no base; snapshots: {snapshots}"
            )
        return self._read(SNAPSHOT, base), list(self.deltas(base, limit))

    def deltas(self, after: int, upto: int | None = None) -> Iterator[LogEntry]:
        """The deltas of the epochs above `after`, in order and without a gap."""
        expected = after + 1
        for epoch in self.epochs():
            if epoch <= after or (upto is not None and epoch > upto):
                continue
            if epoch != expected:
                raise DamagedFile(f"{self.directory} has no delta of epoch {expected}")
            yield self._read(DELTA, epoch)
            expected += 1

    def sizes(self) -> tuple[int, int, int]:
        """Bytes of the newest snapshot, bytes of all deltas after it, and their number.

        Zeros without a snapshot.
        """
        base = max(self.snapshots(), default=None)
        if base is None:
            return 0, 0, 0
        later = [self._path(DELTA, epoch) for epoch in self.epochs() if epoch > base]
        try:
            base_bytes = self._files.size(self._path(SNAPSHOT, base))
            return base_bytes, sum(map(self._files.size, later)), len(later)
        except FileNotFoundError:
            return self.sizes()  # collected meanwhile; FencedError when the whole log is gone

    # Write --------------------------------------------------------------------------------------

    def append(
        self, epoch: int, generation: int, token_offset: int, sections: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
    ) -> LogEntry:  # fmt: skip
        """Commits `epoch`. Returns an existing valid delta of the same token instead.

        `sections`: of the delta. `outputs`: further ones that are needed only to return the epoch
        again. RetryableError when the existing delta has another token (discard it first), or when
        the epoch is not the next one.
        """
        if self._tip != epoch - 1:
            self._refuse_gap(epoch)
        header = Header(DELTA, self.identity, epoch, generation, token_offset)
        named = None
        if outputs and self.retains:
            with fenced(self.directory):
                named = self._outputs.write(header, outputs)
            sections = {OUTPUTS: named, **sections}
        elif outputs:
            sections = {**outputs, **sections}
        entry = self._write(header, sections)
        if entry is None:
            entry = LogEntry(header, {name: memoryview(data) for name, data in sections.items()})
        elif named is not None and bytes(entry.sections.get(OUTPUTS, b"")) != named:
            self._outputs.delete(epoch, crc_of(named))  # the other attempt emitted other rows
        crashpoints.reach("log.after-rename", self.identity.operator)
        self._tip = epoch
        return entry

    def write_snapshot(
        self, epoch: int, generation: int, token_offset: int, sections: Mapping[str, Any]
    ) -> None:
        """Writes the state at the end of `epoch`, unless a valid snapshot exists.

        `sections` as in `blob.encode`.
        """
        self._write(Header(SNAPSHOT, self.identity, epoch, generation, token_offset), sections)

    # Remove -------------------------------------------------------------------------------------

    def discard_from(self, epoch: int) -> None:
        """Removes snapshots and deltas of `epoch` and later, the newest first.

        Outputs go with the delta that names them, and no others: a concurrent attempt may be about
        to name those.
        """
        self._tip = None
        for found in reversed(self.snapshots()):
            if found >= epoch:
                self._files.delete(self._path(SNAPSHOT, found))
        apart = self._apart()
        for found in reversed(self.epochs()):
            if found >= epoch:
                named = self._named(found) if found in apart else None
                self._files.delete(self._path(DELTA, found))
                if named is not None:
                    self._outputs.delete(found, named)

    def release(self, epoch: int) -> None:
        """Removes the output files of the epochs up to `epoch`, which no reader needs any more."""
        for found, crcs in self._apart().items():
            if found <= epoch:
                for crc in crcs:
                    self._outputs.delete(found, crc)

    def collect(self, checkpoint_epoch: int) -> None:
        """Removes what a complete checkpoint of `checkpoint_epoch` makes unnecessary.

        The newest snapshot at or before it stays as the base, with all deltas after it; without
        such a snapshot nothing is removed. Output files stay, but for those that no delta names.
        """
        snapshots = self.snapshots()
        base = max((e for e in snapshots if e <= checkpoint_epoch), default=None)
        if base is None:
            return
        for epoch in snapshots:
            if epoch < base:
                self._files.delete(self._path(SNAPSHOT, epoch))
        apart = self._apart()
        for epoch in self.epochs():
            if epoch <= base:
                crcs = apart.get(epoch, [])
                if len(crcs) > 1:  # of other attempts, while the delta still names the right one
                    named = self._named(epoch)
                    for crc in crcs:
                        if crc != named:
                            self._outputs.delete(epoch, crc)
                self._files.delete(self._path(DELTA, epoch))

    def _named(self, epoch: int) -> int | None:
        """The CRC of the outputs that a delta names; None if it names none or is not readable."""
        try:
            named = self.entry(epoch).sections.get(OUTPUTS)
        except DamagedFile:
            return None
        return None if named is None else crc_of(named)

    def repair(self) -> list[str]:
        """Keeps only sound files; returns the problems found, empty without any.

        Damaged files are renamed to `<name>.damaged`. The newest sound snapshot stays, with the
        deltas after it up to the first damaged or missing one, and with the files before it that
        have no gap. Afterwards `load` works; if it returns nothing, a checkpoint must be restored.
        An epoch whose outputs are damaged or missing stays: `outputs_from` leaves it out.
        """
        self._tip = None
        with fenced(self.directory):
            mending = Mending(self._outputs)
        good = [e for e in self.snapshots() if self._sound(SNAPSHOT, e, mending)]
        if not good:
            self.discard_from(0)
            mending.discard_unnamed(-1)
            return mending.problems
        reached = max(good)
        base = self._discard_before_gap(good, mending)
        for epoch in self.epochs():
            if epoch <= reached:
                continue
            if epoch == reached + 1 and self._sound(DELTA, epoch, mending):
                reached = epoch
            else:
                mending.problems.append(f"{self.directory}: epochs from {reached + 1} on are lost")
                self.discard_from(reached + 1)
                break
        mending.discard_unnamed(base)
        self._without_outputs = frozenset(mending.missing)
        return mending.problems

    def _discard_before_gap(self, good: list[int], mending: Mending) -> int:
        """Keeps, up to the newest snapshot, a base and all deltas after it.

        `good` are the sound snapshots. The newest state does not need older files, but returning
        the output of an older epoch again would meet a gap among their deltas. Returns the base.
        """
        first = max(good)  # all deltas above it, up to the newest snapshot, are sound
        held = set(self.epochs())
        while first in held and self._sound(DELTA, first, mending):
            first -= 1
        base = min(e for e in good if e >= first)
        for snapshot in good:
            if snapshot < base:
                self._files.delete(self._path(SNAPSHOT, snapshot))
        for epoch in sorted(held):
            if epoch <= base:
                self._files.delete(self._path(DELTA, epoch))
        return base

    # Fork ---------------------------------------------------------------------------------------

    def fork(self, epoch: int, branch: str) -> StateLog:
        """A log in the new directory `branch` with the state at the end of `epoch`, by hard links.

        Files never change, so what either of the two logs does leaves the other as it is. Outputs
        are not linked: a branch returns none of these epochs. Its owner's directory must exist.

        RetryableError when the log does not hold `epoch`, or when `branch` exists.
        """
        draft = temporary_name(*os.path.split(branch))  # so that a half of a fork has no log's name
        try:
            while not self._linked(epoch, draft):
                pass
            if not self._files.rename(draft, branch):
                raise RetryableError(
                    f"{branch} cannot become a fork of {self.directory}: it holds a log, or its "
                    "owner's directory is gone; delete that branch first, or name another"
                )
        except PerseidError:
            self._files.delete(draft)
            raise
        return StateLog(self._files, branch, self.identity, retains=self.retains)

    def _linked(self, epoch: int, draft: str) -> bool:
        """Makes `draft` with links to the files of `epoch`; False when one was just collected."""
        wanted = self._files_of(epoch)
        self._files.delete(draft)
        with fenced(draft):
            self._files.make_directory(draft)
        try:
            for path in wanted:
                self._files.link(path, f"{draft}/{os.path.basename(path)}")
        except FileNotFoundError:
            return False
        return True

    def _files_of(self, epoch: int) -> list[str]:
        """The files that make the state at the end of `epoch`: a snapshot and deltas."""
        deltas, snapshots = set(self.epochs()), self.snapshots()
        base = max((e for e in snapshots if e <= epoch), default=None)
        if base is None or not deltas.issuperset(range(base + 1, epoch + 1)):
            raise RetryableError(
                f"{self.directory} cannot be forked at epoch {epoch}: it has snapshots {snapshots} "
                f"and deltas {_span(sorted(deltas))}; fork it at an epoch that it holds"
            )
        later = [self._path(DELTA, found) for found in range(base + 1, epoch + 1)]
        return [self._path(SNAPSHOT, base), *later]

    # Files --------------------------------------------------------------------------------------

    def _listed(self, letters: str) -> list[int]:
        with fenced(self.directory):
            names = self._files.list(self.directory)
        found = _NAMES.findall("\n".join(names))
        return [int(epoch) for letter, epoch in found if letter in letters]

    def _apart(self) -> dict[int, list[int]]:
        with fenced(self.directory):
            return self._outputs.listed()

    def _path(self, kind: str, epoch: int) -> str:
        return f"{self.directory}/{'e' if kind == DELTA else 's'}-{epoch:012d}.{kind}"

    def _read(self, kind: str, epoch: int) -> LogEntry:
        try:
            return self._decoded(kind, epoch)
        except FileNotFoundError as error:
            self._listed("e")  # FencedError when the whole directory is gone
            raise DamagedFile(f"{self._path(kind, epoch)} is missing") from error

    def _decoded(self, kind: str, epoch: int) -> LogEntry:
        path = self._path(kind, epoch)
        data = self._files.read(path)
        header, sections = blob.decode(data, where=path, identity=self.identity, kind=kind)
        if header.epoch != epoch:
            raise DamagedFile(f"{path} is of epoch {header.epoch}")
        return LogEntry(header, sections)

    def _write(self, header: Header, sections: Mapping[str, Any]) -> LogEntry | None:
        """Makes a file; returns an existing one of the same token instead."""
        kind, epoch = header.kind, header.epoch
        chunks: Iterable[memoryview] = blob.encode(header, sections)
        if kind == DELTA:
            chunks = _then_reach(chunks, self.identity.operator)
        with fenced(self.directory):
            if self._files.write_new(self._path(kind, epoch), chunks):
                return None
        entry = self._read(kind, epoch)
        if entry.header.token_offset != header.token_offset:
            raise RetryableError(
                f"{self._path(kind, epoch)} is of the token at {entry.header.token_offset}, not of "
                f"the one at {header.token_offset}; it is stale and must be discarded first"
            )
        return replace(entry, found=True)

    def _refuse_gap(self, epoch: int) -> None:
        last = self.last_epoch()
        if last is None or (epoch != last + 1 and epoch not in self.epochs()):
            raise RetryableError(
                f"{self.directory} cannot take epoch {epoch}: "
                + ("it was not begun" if last is None else f"its newest is {last}")
            )

    def _sound(self, kind: str, epoch: int, mending: Mending) -> bool:
        try:
            entry = self._read(kind, epoch)
        except DamagedFile as error:
            mending.set_aside(self._path(kind, epoch), error)
            return False
        if (named := entry.sections.get(OUTPUTS)) is not None:
            mending.keep(entry.header, named)
        return True


class fenced:
    """Raises FencedError for a missing directory: a newer owner has taken it."""

    __slots__ = ("_directory",)

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise FencedError(
                f"the state log {self._directory} is gone: a newer owner has taken it"
            ) from error


def _then_reach(chunks: Iterable[memoryview], operator: str) -> Iterator[memoryview]:
    """The chunks, then the crash point: all is written, the file has no final name yet."""
    yield from chunks
    crashpoints.reach("log.before-rename", operator)


def _span(epochs: list[int]) -> str:
    return f"{epochs[0]}..{epochs[-1]}" if epochs else "(none)"
