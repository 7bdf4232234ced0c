"""The state log of one operator partition: a directory of immutable files.

    s-<epoch>.snapshot   the state at the end of the epoch
    e-<epoch>.delta      what the epoch changed, and the outputs that it made

A log begins with a snapshot (an empty one for a new job) and then holds every epoch without a gap,
so the state at any epoch is a snapshot and the deltas behind it. That a delta appears under its
name is the commit point of the epoch for this partition. Files never change: who comes second with
an epoch gets the first one's file.

The directory's path has the owner's generation in it. A new owner renames it (`adopt`), after which
the old one's next write fails with FencedError instead of mixing in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perseid.errors import DamagedFile, FencedError, RetryableError
from perseid.records import crashpoints
from perseid.state.durability import blob
from perseid.state.durability.blob import Header, Identity, Sections
from perseid.state.durability.files import TEMPORARY, Files

DELTA = "delta"
SNAPSHOT = "snapshot"
_OWNER = re.compile(r"g\d{10}-")
_NAMES = re.compile(r"^([es])-(\d{12})\.(?:delta|snapshot)$", re.MULTILINE)  # one a line


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of the log: a delta or a snapshot.

    `found`: who was to write it met it there already, with content of its own perhaps.
    """

    header: Header
    sections: Sections
    found: bool = False


class StateLog:
    """The log in `directory`, which `adopt` and `create` have made. Safe in several processes.

    Every method raises FencedError when the directory is gone, DamagedFile when a file is not what
    was written; `repair` then leaves what can still be trusted.
    """

    def __init__(self, files: Files, directory: str, identity: Identity) -> None:
        self._files = files
        self.directory = directory
        self.identity = identity
        self._tip: int | None = None  # the newest epoch this object has seen or written

    # Begin --------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the directory unless it is there; the owner's must be (see `adopt`)."""
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
        """The newest epoch whose state the log has; None when it was never begun."""
        return max(self._listed("es"), default=None)

    def entry(self, epoch: int) -> LogEntry:
        """The delta of `epoch`."""
        return self._read(DELTA, epoch)

    def find(self, epoch: int) -> LogEntry | None:
        """The delta of `epoch`, None when there is none or, unlike elsewhere, no directory."""
        try:
            return self._decoded(DELTA, epoch)
        except FileNotFoundError:
            return None

    def snapshot(self, epoch: int) -> LogEntry:
        """The snapshot of `epoch`."""
        return self._read(SNAPSHOT, epoch)

    def load(self, upto: int | None = None) -> tuple[LogEntry | None, list[LogEntry]]:
        """The newest snapshot (not after `upto`) and all deltas after it, in order.

        (None, []) only for a log that was never begun. Ends at the newest epoch when that comes
        before `upto`. Begins anew when `collect` has taken a file away meanwhile.
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
        """Bytes of the newest snapshot, of all deltas behind it, and how many these are.

        Zeros without a snapshot.
        """
        base = max(self.snapshots(), default=None)
        if base is None:
            return 0, 0, 0
        behind = [self._path(DELTA, epoch) for epoch in self.epochs() if epoch > base]
        try:
            base_bytes = self._files.size(self._path(SNAPSHOT, base))
            return base_bytes, sum(map(self._files.size, behind)), len(behind)
        except FileNotFoundError:
            return self.sizes()  # collected meanwhile; FencedError when all of it is gone

    # Write --------------------------------------------------------------------------------------

    def append(
        self, epoch: int, generation: int, token_offset: int, sections: Mapping[str, Any]
    ) -> LogEntry:
        """Commits `epoch`. A valid file of the same token that is there already is returned.

        RetryableError when the file there is of another token (discard it first), or when the epoch
        is not the next one.
        """
        if self._tip != epoch - 1:
            self._refuse_gap(epoch)
        header = Header(DELTA, self.identity, epoch, generation, token_offset)
        entry = self._write(header, sections)
        if entry is None:
            entry = LogEntry(header, {name: memoryview(data) for name, data in sections.items()})
        crashpoints.reach("log.after-rename", self.identity.operator)
        self._tip = epoch
        return entry

    def write_snapshot(
        self, epoch: int, generation: int, token_offset: int, sections: Mapping[str, Any]
    ) -> None:
        """Writes the state at the end of `epoch`, unless a valid one is there already.

        `sections` as in `blob.encode`.
        """
        self._write(Header(SNAPSHOT, self.identity, epoch, generation, token_offset), sections)

    # Remove -------------------------------------------------------------------------------------

    def discard_from(self, epoch: int) -> None:
        """Removes deltas and snapshots of `epoch` and later, the newest first."""
        self._tip = None
        for found in reversed(self.snapshots()):
            if found >= epoch:
                self._files.delete(self._path(SNAPSHOT, found))
        for found in reversed(self.epochs()):
            if found >= epoch:
                self._files.delete(self._path(DELTA, found))

    def collect(self, checkpoint_epoch: int) -> None:
        """Removes what a complete checkpoint of `checkpoint_epoch` makes needless.

        The newest snapshot at or before it stays as the base, with all deltas behind it; without
        such a snapshot nothing is removed.
        """
        snapshots = self.snapshots()
        base = max((e for e in snapshots if e <= checkpoint_epoch), default=None)
        if base is None:
            return
        for epoch in snapshots:
            if epoch < base:
                self._files.delete(self._path(SNAPSHOT, epoch))
        for epoch in self.epochs():
            if epoch <= base:
                self._files.delete(self._path(DELTA, epoch))

    def repair(self) -> list[str]:
        """Leaves only what can be trusted; returns what was wrong, empty when nothing was.

        Damaged files are set aside as `<name>.damaged`. The newest sound snapshot stays with the
        deltas behind it up to the first damaged or missing one, and with what lies before it
        without a gap. Afterwards `load` works, and gives nothing if nothing is left: then a
        checkpoint must be restored.
        """
        self._tip = None
        problems: list[str] = []
        good = [e for e in self.snapshots() if self._sound(SNAPSHOT, e, problems)]
        if not good:
            self.discard_from(0)
            return problems
        reached = max(good)
        self._discard_before_gap(good, problems)
        for epoch in self.epochs():
            if epoch <= reached:
                continue
            if epoch == reached + 1 and self._sound(DELTA, epoch, problems):
                reached = epoch
            else:
                problems.append(f"{self.directory}: epochs from {reached + 1} on are lost")
                self.discard_from(reached + 1)
                break
        return problems

    def _discard_before_gap(self, good: list[int], problems: list[str]) -> None:
        """Leaves, of what is not newer than the newest snapshot, a base and all deltas behind it.

        `good` are the sound snapshots. Nothing needs the older ones for the newest state, but a
        gap among their deltas would be met when an epoch is to be handed out again.
        """
        first = max(good)  # all deltas above it, up to the newest snapshot, are sound
        held = set(self.epochs())
        while first in held and self._sound(DELTA, first, problems):
            first -= 1
        base = min(e for e in good if e >= first)
        for snapshot in good:
            if snapshot < base:
                self._files.delete(self._path(SNAPSHOT, snapshot))
        for epoch in sorted(held):
            if epoch <= base:
                self._files.delete(self._path(DELTA, epoch))

    # Files --------------------------------------------------------------------------------------

    def _listed(self, letters: str) -> list[int]:
        with fenced(self.directory):
            names = self._files.list(self.directory)
        found = _NAMES.findall("\n".join(names))
        return [int(epoch) for letter, epoch in found if letter in letters]

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
        """Makes a file; the one that is there already, of the same token, is returned."""
        kind, epoch = header.kind, header.epoch
        chunks: Iterable[memoryview] = blob.encode(header, sections)
        if kind == DELTA:
            chunks = _then_reach(chunks, "log.before-rename", self.identity.operator)
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

    def _sound(self, kind: str, epoch: int, problems: list[str]) -> bool:
        try:
            self._read(kind, epoch)
        except DamagedFile as error:
            problems.append(str(error))
            path = self._path(kind, epoch)
            self._files.rename(path, f"{path}.damaged")
            return False
        return True


class fenced:
    """A missing directory means that a newer owner has taken it."""

    __slots__ = ("_directory",)

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise FencedError(
                f"the state log {self._directory} is gone: a newer owner has taken it"
            ) from error


def owner_directory(root: str, job_uuid: str, layout: int, owner: str) -> str:
    """Where `owner` keeps the logs of a job's layout."""
    return f"{root}/{job_uuid}/{layout}/{owner}"


def log_directory(owned: str, operator: str, partition: int) -> str:
    """The log of one operator partition inside an owner's directory."""
    return f"{owned}/{operator}-{partition}"


def owner_name(generation: int, incarnation: str) -> str:
    """An owner: sorts by generation."""
    return f"g{generation:010d}-{incarnation}"


def adopt(files: Files, root: str, job_uuid: str, layout: int, owner: str) -> str | None:
    """Takes over the logs of the newest owner before `owner`; returns its name, None if none.

    Afterwards `owner`'s directory exists and no older one does. FencedError when an owner of the
    same or a higher generation is there: then it is this caller that is out of date.
    """
    layout_directory = f"{root}/{job_uuid}/{layout}"
    mine = owner_directory(root, job_uuid, layout, owner)
    files.make_directory(layout_directory, parents=True)
    adopted = None
    while True:
        names = [name for name in files.list(layout_directory) if _OWNER.match(name)]
        others = [name for name in names if name != owner]
        newer = [name for name in others if name[:11] >= owner[:11]]
        if newer:
            raise FencedError(f"{layout_directory}/{newer[-1]} is of a newer owner than {owner}")
        if owner in names or not others:
            break
        # Another process may be quicker, of this owner or of one between: then look again.
        left = _temporaries(files, f"{layout_directory}/{others[-1]}")
        if files.rename(f"{layout_directory}/{others[-1]}", mine):
            adopted = others.pop()
            for path in left:
                files.delete(f"{mine}/{path}")
            break
    files.make_directory(mine)
    for name in others:
        files.delete(f"{layout_directory}/{name}")
    return adopted


def forget_layouts(files: Files, root: str, job_uuid: str, below: int) -> None:
    """Deletes what this host has of the job's layouts below `below`."""
    for layout in range(1, below):
        files.delete(f"{root}/{job_uuid}/{layout}")


def _temporaries(files: Files, owned: str) -> list[str]:
    """Files that a dead owner left half written, relative to its directory."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # it may be renamed under our hands
        for log in files.list(owned):
            names = files.list(f"{owned}/{log}")
            found += [f"{log}/{name}" for name in names if name.endswith(TEMPORARY)]
    return found


def _then_reach(
    chunks: Iterable[memoryview], name: str, operator: str
) -> Iterator[memoryview]:
    """The chunks, then the crash point: all is written, nothing has its name yet."""
    yield from chunks
    crashpoints.reach(name, operator)


def _span(epochs: list[int]) -> str:
    return f"{epochs[0]}..{epochs[-1]}" if epochs else "(none)"
