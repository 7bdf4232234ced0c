"""The sink of an audit's operator partition: keeps an epoch's outputs in a file, sends nothing.

    <folder>/<epoch>/<operator>-<partition>.arrow    one record batch for each topic partition

The audit's driver deletes what is equal to the ledger, and compares the rest record by record. An
epoch that runs again gives the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.errors import PermanentError
from perseid.state.durability.files import faults
from perseid.worker.sink.sink_outputs import made

if TYPE_CHECKING:
    from perseid.engine.task_report import Made
    from perseid.topics.transactions import PartitionBatch, SinkBatch
    from perseid.worker.sink.transaction import SinkSession

_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()),
     ("value", pa.binary())]
)  # fmt: skip

Kept = tuple[pa.BinaryArray, pa.BinaryArray]  # keys and values, in order


class KeptOutputs:
    """`perseid.engine.ports.Sink`. `session`: divides outputs; acquires and prepares nothing."""

    def __init__(self, session: SinkSession, folder: Path) -> None:
        self._session, self._folder = session, folder

    def prepare(self) -> None:
        """Nothing: no transactional id is used."""

    def close(self) -> None:
        self._session.close()

    def commit(
        self, epoch: int, token_offset: int, generation: int, batches: Sequence[SinkBatch], *,
        checkpoint: bool,
    ) -> object:  # fmt: skip
        raise PermanentError(f"epoch {epoch} is an audit's, which commits nothing")

    def compare(self, epoch: int, batches: Sequence[SinkBatch]) -> tuple[Made, ...]:
        divided = self._session.divided(epoch, batches)
        if divided:
            who = self._session.who
            _write(_path(self._folder, epoch, who.operator, who.partition), divided)
        return made(divided)


def kept(folder: Path, epoch: int, operator: str, partition: int) -> dict[tuple[str, int], Kept]:
    """By topic partition, what `KeptOutputs` has of an epoch; nothing of one without outputs."""
    path = _path(folder, epoch, operator, partition)
    if not path.is_file():
        return {}
    found: dict[tuple[str, int], Kept] = {}
    with faults("read", str(path)), pa.memory_map(str(path)) as file:
        opened = pa.ipc.open_file(file)
        for number in range(opened.num_record_batches):
            batch = opened.get_batch(number)
            place = batch["topic"][0].as_py(), batch["partition"][0].as_py()
            found[place] = batch["key"], batch["value"]
    return found


def _path(folder: Path, epoch: int, operator: str, partition: int) -> Path:
    return folder / str(epoch) / f"{operator}-{partition}.arrow"


def _write(path: Path, batches: Sequence[PartitionBatch]) -> None:
    with faults("write", str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
            for batch in batches:
                count = len(batch.values)
                columns = [
                    pa.repeat(pa.scalar(batch.topic, pa.string()), count),
                    pa.repeat(pa.scalar(batch.partition, pa.int32()), count),
                    batch.keys, batch.values,
                ]  # fmt: skip
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
