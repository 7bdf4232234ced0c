"""What epochs emitted, in files that live for another time than the deltas of the state log.

    e-<epoch>-<crc>.outputs   what one attempt of the epoch emitted

1. An attempt writes its outputs. 2. Its delta names them by CRC and length: that this delta appears
commits both. Attempts that emitted different rows have different files, so no file is replaced or
taken for another. A file after the log's base that no delta names is garbage of an attempt that
died or was too late.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perseid.errors import DamagedFile
from perseid.state.durability import blob
from perseid.state.durability.blob import Header, Sections
from perseid.state.durability.files import Files

OUTPUTS = "outputs"  # a file's kind, and the section of the delta that names it
_NAMED = struct.Struct("<IQ")  # CRC and length of the file
_NAMES = re.compile(r"^e-(\d{12})-([0-9a-f]{8})\.outputs$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """The output files in a log's `directory`.

    Like `StateLog`, without its FencedError: a missing directory is a FileNotFoundError.
    """

    files: Files
    directory: str

    def listed(self) -> dict[int, list[int]]:
        """The CRCs of the files of each epoch, sorted by epoch."""
        found: dict[int, list[int]] = {}
        for epoch, crc in _NAMES.findall("\n".join(self.files.list(self.directory))):
            found.setdefault(int(epoch), []).append(int(crc, 16))
        return found

    def write(self, delta: Header, sections: Mapping[str, Any]) -> bytes:
        """Writes the outputs of an attempt; the section by which `delta` has to name them."""
        chunks = blob.encode(replace(delta, kind=OUTPUTS), sections)
        crc = int.from_bytes(chunks[-1], "little")
        # A file of this name is one of the same content: of an attempt that died after it.
        self.files.write_new(self.path(delta.epoch, crc), chunks)
        return _NAMED.pack(crc, sum(map(len, chunks)))

    def read(self, delta: Header, named: Any) -> Sections | None:
        """The outputs that `delta` names by its section; None when they are not there.

        Raises DamagedFile when the file is not the one that was named.
        """
        crc, size = _NAMED.unpack(named)
        path = self.path(delta.epoch, crc)
        try:
            data = self.files.read(path)
        except FileNotFoundError:
            return None
        header, sections = blob.decode(data, where=path)
        expected = replace(delta, kind=OUTPUTS)
        if header != expected or (blob.stated_crc(data), len(data)) != (crc, size):
            raise DamagedFile(
                f"{path} has {len(data)} bytes and the header {header}; its delta names {size} "
                f"bytes and {expected}"
            )
        return sections

    def delete(self, epoch: int, crc: int) -> None:
        self.files.delete(self.path(epoch, crc))

    def path(self, epoch: int, crc: int) -> str:
        return f"{self.directory}/e-{epoch:012d}-{crc:08x}.outputs"


def crc_of(named: Any) -> int:
    """The CRC of the outputs that a delta names by its section."""
    (crc, _) = _NAMED.unpack(named)
    return int(crc)


@dataclass
class Mending:
    """What a repair of a log finds. `missing`: epochs whose outputs are damaged or not there."""

    outputs: OutputFiles
    problems: list[str] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        listed = self.outputs.listed().items()
        self._unnamed = {(epoch, crc) for epoch, crcs in listed for crc in crcs}

    def keep(self, delta: Header, named: Any) -> None:
        """Keeps the outputs that a sound delta names; renames them when they are damaged."""
        place = delta.epoch, crc_of(named)
        self._unnamed.discard(place)
        try:
            found = self.outputs.read(delta, named)
        except DamagedFile as error:
            self.set_aside(self.outputs.path(*place), error)
            found = None
        if found is None:
            self.missing.add(delta.epoch)

    def set_aside(self, path: str, error: DamagedFile) -> None:
        """Renames a damaged file to `<name>.damaged`."""
        self.problems.append(str(error))
        self.outputs.files.rename(path, f"{path}.damaged")

    def discard_unnamed(self, base: int) -> None:
        """Deletes garbage. Those up to the log's `base` have lost their delta to a collection."""
        for epoch, crc in sorted(self._unnamed):
            if epoch > base:
                self.outputs.delete(epoch, crc)
