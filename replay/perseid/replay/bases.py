"""Why a run could not begin: a file of the checkpoint that is its base is damaged or missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perseid.errors import DamagedFile, PermanentError, RefusedError
from perseid.state.durability.checkpoint import read_manifest, read_state

if TYPE_CHECKING:
    from perseid.errors import PerseidError
    from perseid.records import CheckpointPointer
    from perseid.replay.ranges import Range
    from perseid.state.durability.store import Store


def refuse_damaged(
    error: PerseidError, job: str, span: Range, kept: Iterable[CheckpointPointer], store: Store
) -> None:
    """RefusedError if a run has ended with `error` because the base of `span` cannot be read.

    It reads the base's files, which the run could not. `kept`: the checkpoints of the job.
    """
    base = span.checkpoint
    if base is None or not isinstance(error, PermanentError):
        return
    try:
        manifest = read_manifest(store, base.manifest, base.crc)
        for part in manifest.parts:
            read_state(store, manifest, part.operator, part.partition)
    except DamagedFile as damage:
        raise RefusedError(
            f"epochs {span.first_epoch} to {span.last_epoch} of {job} cannot be audited from their "
            f"base, the checkpoint of epoch {base.epoch}: {damage}. {_elsewhere(span, base, kept)} "
            "Restore that file of the checkpoint store from a copy, or let the job take a new "
            f"checkpoint (`perseid checkpoint {job}`)"
        ) from damage


def _elsewhere(span: Range, base: CheckpointPointer, kept: Iterable[CheckpointPointer]) -> str:
    """What can be audited without that checkpoint."""
    others = [p for p in kept if not p.shares_files(base)]
    later = min((p.epoch for p in others if base.epoch < p.epoch < span.last_epoch), default=None)
    earlier = (
        f"Ask for --epochs {base.epoch}:{span.last_epoch} to begin at an earlier checkpoint, or at "
        "the start of the job, if that is kept"
    )
    if later is None:
        return f"{earlier}."
    return f"{earlier}; or for --epochs {later + 1}:{span.last_epoch}, from that of epoch {later}."
