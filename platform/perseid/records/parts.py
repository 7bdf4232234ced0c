"""One file of a checkpoint, as progress records and manifests name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartFile:
    """The file that a checkpoint of `epoch` wrote for one operator partition.

    `path` is relative to the store's root; a large file is stored there in pieces. `crc` is the one
    at the end of the file.
    """

    path: str
    epoch: int
    bytes: int
    crc: int
