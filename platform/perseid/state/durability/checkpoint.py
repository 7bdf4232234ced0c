"""Checkpoints in the store: one part per operator partition, one manifest that names them all.

    jobs/<job>/<job_uuid>/c-<epoch>-g<generation>-t<token offset>/<operator>-<partition>.<kind>
    jobs/<job>/<job_uuid>/c-<epoch>-g<generation>-t<token offset>/manifest-<crc>.json

A part is a state file (see `blob`, and `pieces` for large ones): the whole state (kind "part"), or
the changes since the previous checkpoint (kind "net"). The kind is in the name, so every writer of
a file writes the same bytes, and a late attempt without a base cannot replace a net part. The
manifest names each part with the chain of earlier files that it needs, whole state first, with the
size and CRC of each. The pointer that makes the checkpoint valid holds the manifest's CRC: a
restore gets exactly what was written or raises DamagedFile, and the caller uses the previous
checkpoint, never an empty state. That CRC is in the manifest's name, so a paused leader's manifest
of the same epoch replaces nothing.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from perseid.errors import DamagedFile
from perseid.records import PartFile
from perseid.state.durability import blob
from perseid.state.durability.blob import Header, Identity, Sections
from perseid.state.durability.merging import emitted, schemas_of, whole_sections
from perseid.state.durability.pieces import file_of, read_pieces, write_pieces
from perseid.state.durability.store import Store

JOBS = "jobs"  # the folder of all jobs' checkpoints
PART = "part"
NET = "net"
FORMAT = 2
LINKS_MAX = 6  # after so many links the whole state is written: decisions/0001
LINKS_OF_WHOLE = 0.5  # in bytes: a restore reads half as much again, plus one link, at most
LINKS_SMALL = 1 << 16  # bytes too few to matter
_FOLDER = re.compile(r"c-(\d+)-g\d+-t\d+")
_MANIFEST = re.compile(r"manifest-[0-9a-f]{8}\.json")


@dataclass(frozen=True, slots=True)
class Part:
    """One operator partition's share; `crc` is the one at the end of its file (`blob.stated_crc`).

    `chain`: the files of earlier checkpoints on which this one builds, the whole state first.
    """

    operator: str
    partition: int
    path: str
    bytes: int
    crc: int
    chain: tuple[PartFile, ...] = ()

    def files(self, epoch: int) -> tuple[PartFile, ...]:
        """All files of the partition's state; `epoch` is the checkpoint's."""
        return (*self.chain, PartFile(self.path, epoch, self.bytes, self.crc))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint: the state at the end of `epoch`, whose token is at `token_offset`.

    `generation`: the highest under which a part was made. Fragments have generations of their own,
    so parts may be of lower ones, in folders of theirs.
    """

    job: str
    job_uuid: str
    epoch: int
    generation: int
    layout: int
    revision: str
    token_offset: int
    time_ms: int
    parts: tuple[Part, ...]

    def part(self, operator: str, partition: int) -> Part:
        """The part of an operator partition. DamagedFile when the checkpoint has none."""
        for part in self.parts:
            if (part.operator, part.partition) == (operator, partition):
                return part
        raise DamagedFile(
            f"the checkpoint of epoch {self.epoch} of job {self.job} has no part of "
            f"{operator}-{partition}"
        )

    def is_made_by(self, generation: int, part: Part) -> bool:
        """Whether the owner of this generation made the part: its folder names it."""
        return is_in_folder(
            part.path, self.job, self.job_uuid, self.epoch, generation, self.token_offset
        )

    def parallelism(self, operator: str) -> int:
        """The number of the operator's partitions; 0 if there was no such operator."""
        return sum(part.operator == operator for part in self.parts)

    @property
    def needs(self) -> tuple[int, ...]:
        """The epochs of which this checkpoint needs a file, ascending; the last is its own."""
        chains = {file.epoch for part in self.parts for file in part.chain}
        return tuple(sorted(chains | {self.epoch}))

    @property
    def may_grow(self) -> bool:
        """Whether the next checkpoint may consist of the changes since this one."""
        links = [part.files(self.epoch)[1:] for part in self.parts]
        whole_bytes = sum(part.files(self.epoch)[0].bytes for part in self.parts)
        bytes_since = sum(file.bytes for some in links for file in some)
        return max(map(len, links), default=0) < LINKS_MAX and bytes_since <= max(
            LINKS_SMALL, LINKS_OF_WHOLE * whole_bytes
        )


def job_folder(job: str, job_uuid: str) -> str:
    """The folder of all checkpoints of a job."""
    return f"{JOBS}/{job}/{job_uuid}"


def checkpoint_folder(
    job: str, job_uuid: str, epoch: int, generation: int, token_offset: int
) -> str:
    """The folder of the parts that an owner makes of an epoch, for one token of that epoch."""
    return f"{job_folder(job, job_uuid)}/c-{epoch}-g{generation}-t{token_offset}"


def is_in_folder(
    path: str, job: str, job_uuid: str, epoch: int, generation: int, token_offset: int
) -> bool:
    """Whether a part's path is in the `checkpoint_folder` of that owner and token."""
    return path.startswith(f"{checkpoint_folder(job, job_uuid, epoch, generation, token_offset)}/")


def part_path(folder: str, operator: str, partition: int, kind: str) -> str:
    """The path of a part of `kind` in its `checkpoint_folder`."""
    return f"{folder}/{operator}-{partition}.{kind}"


def write_part(
    store: Store, path: str, header: Header, sections: Mapping[str, Any], kind: str = PART
) -> tuple[int, int]:
    """Uploads a part of `kind`, or the rest after an interrupted upload; returns its bytes and CRC.

    The CRC is the file's own, over all bytes before it. A CRC over the whole file would be the same
    number for every part, since a CRC over data followed by its CRC is constant.
    """
    chunks = blob.encode(replace(header, kind=kind), sections)
    size = write_pieces(store, path, chunks, header.identity.operator)
    return size, blob.stated_crc(chunks[-1])


def read_part(store: Store, file: PartFile, identity: Identity, kind: str = PART) -> Sections:
    """The sections of a part. DamagedFile when it is missing or differs from what was written."""
    data = read_pieces(store, file.path, file.bytes)
    found = blob.stated_crc(data)
    if found != file.crc:
        raise DamagedFile(
            f"{file.path} ends with the CRC {found:08x}, its manifest gives {file.crc:08x}"
        )
    header, sections = blob.decode(data, where=file.path, identity=identity, kind=kind)
    if header.epoch != file.epoch:
        raise DamagedFile(f"{file.path} is of epoch {header.epoch}, expected {file.epoch}")
    return sections


def read_state(store: Store, manifest: Manifest, operator: str, partition: int) -> Sections:
    """The whole state of an operator partition, as the sections of a snapshot of its epoch.

    A primitive without a section is empty. DamagedFile when the checkpoint has no such partition,
    or when a file is missing or differs from what was written.
    """
    first, *links = manifest.part(operator, partition).files(manifest.epoch)
    identity = Identity(manifest.job_uuid, manifest.layout, operator, partition)
    base = read_part(store, first, identity)
    changes = [read_part(store, file, identity, NET) for file in links]
    if not changes:
        return base
    schemas = schemas_of(changes[-1], links[-1].path)
    found = whole_sections(schemas, base, changes)
    found |= emitted(changes[-1])
    return {
        name: memoryview(b"".join(data) if isinstance(data, list) else data)
        for name, data in found.items()
    }


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON with a CRC over all other fields."""
    fields = {"format": FORMAT, **asdict(manifest)}
    return _canonical({**fields, "crc": zlib.crc32(_canonical(fields))})


def decode_manifest(data: Any, where: str) -> Manifest:
    """The manifest in `data`; DamagedFile, naming `where`, when it is damaged."""
    try:
        fields = json.loads(bytes(data))
        crc = fields.pop("crc")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{where} is not a manifest: {error!r}") from error
    # Compared as bytes, so that a change without effect on the JSON is found too.
    if bytes(data) != _canonical({**fields, "crc": crc}) or zlib.crc32(_canonical(fields)) != crc:
        raise DamagedFile(f"{where} does not match its CRC")
    if fields.pop("format") != FORMAT:
        raise DamagedFile(f"{where} has another format than {FORMAT}, which this program reads")
    return Manifest(**{**fields, "parts": tuple(map(_part, fields["parts"]))})


def write_manifest(store: Store, manifest: Manifest) -> tuple[str, int]:
    """Writes the manifest; returns path and CRC for the pointer. All parts must exist already."""
    folder = checkpoint_folder(
        manifest.job, manifest.job_uuid, manifest.epoch, manifest.generation, manifest.token_offset
    )
    data = encode_manifest(manifest)
    crc = zlib.crc32(data)
    path = f"{folder}/manifest-{crc:08x}.json"
    store.write(path, [data])
    return path, crc


def read_manifest(store: Store, path: str, crc: int) -> Manifest:
    """The manifest that a pointer names; DamagedFile when it is missing or differs."""
    data = store.read(path)
    found = zlib.crc32(data)
    if found != crc:
        raise DamagedFile(f"{path} has the CRC {found:08x}, its pointer gives {crc:08x}")
    return decode_manifest(data, path)


def checkpoints(store: Store, job: str, job_uuid: str) -> list[tuple[int, str]]:
    """(epoch, folder) of all checkpoints in the store, complete or not, sorted."""
    top = job_folder(job, job_uuid)
    found = {path[len(top) + 1 :].split("/")[0] for path in store.list(top)}
    matches = (_FOLDER.fullmatch(name) for name in found)
    return sorted((int(m[1]), f"{top}/{m[0]}") for m in matches if m is not None)


def collect(
    store: Store, job: str, job_uuid: str, live: Sequence[Manifest],
    spared: Collection[int] = (),
) -> None:  # fmt: skip
    """Removes files older than all `live` checkpoints to which none of these refers.

    All files of the epochs in `spared` stay. A manifest is removed before its parts, so a half
    removed checkpoint is not complete.
    """
    kept = needed(live)
    keep_from_epoch = min(manifest.epoch for manifest in live)
    paths = store.list(job_folder(job, job_uuid))
    for epoch, folder in checkpoints(store, job, job_uuid):
        if epoch >= keep_from_epoch or epoch in spared:
            continue
        inside = [path for path in paths if path.startswith(folder + "/")]
        for path in inside:
            if _MANIFEST.fullmatch(path, len(folder) + 1):
                store.delete(path)
        if not any(file_of(path) in kept for path in inside):
            store.delete(folder)
            continue
        for path in inside:
            if file_of(path) not in kept:
                store.delete(path)


def needed(live: Iterable[Manifest]) -> frozenset[str]:
    """The paths of all files to which the manifests refer."""
    return frozenset(file.path for m in live for part in m.parts for file in part.files(m.epoch))


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _part(fields: Mapping[str, Any]) -> Part:
    chain: Sequence[Any] = fields["chain"]
    return Part(**{**fields, "chain": tuple(PartFile(**file) for file in chain)})
