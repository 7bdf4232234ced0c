"""Orders of checkpoint parts that wait, as files beside the state logs, until their end is told.

A process may die with orders in its queue, and the job goes on in others: each task of an epoch
looks first whether a dead process has left something, and takes it over. The files are in a
directory of the owner's, so they fall with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence

from perseid.errors import DamagedFile, RetryableError
from perseid.records import CheckpointPointer
from perseid.records.marks import Mark
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import Files
from perseid.state.durability.log import fenced
from perseid.worker.checkpoint.parts import TO_RESTORE, PartOrder

log = logging.getLogger("perseid.worker")
FOLDER = "orders"  # beside the logs, which have a number behind a dash
LOOK_S = 3.0  # between looks for orders of dead processes while no epoch runs
_NAME = re.compile(r"(o-\d{12}-g(\d{10})-.+)-(\d+)-(\d+)\.order")


class Newest:
    """The newest part that was ordered of each operator partition, and what it found damaged.

    A part that a later one has overtaken says nothing of its log: what it needs may be collected.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[Identity, int], int] = {}  # by whose and generation
        self._damaged: dict[tuple[str, int], DamagedFile] = {}  # by job UUID and generation

    def ordered(self, order: PartOrder) -> None:
        place = order.identity, order.generation
        self._epochs[place] = max(order.epoch, self._epochs.get(place, 0))

    def overtaken(self, order: PartOrder) -> bool:
        return order.epoch < self._epochs.get((order.identity, order.generation), 0)

    def failed(self, order: PartOrder, error: Exception) -> None:
        """What came of an order."""
        if isinstance(error, DamagedFile) and not self.overtaken(order):
            self._damaged[order.identity.job_uuid, order.generation] = error

    def refuse_damaged(self, job_uuid: str, generation: int) -> None:
        """RetryableError when a part of this life found its log damaged."""
        if (found := self._damaged.get((job_uuid, generation))) is not None:
            raise RetryableError(f"{found}{TO_RESTORE}")


def note(files: Files, order: PartOrder, holder: Mark) -> None:
    """`holder` has the order from here on.

    FencedError when the logs have another owner. RetryableError when it cannot be noted: the task
    is to be tried again, since an order that dies with its process costs its checkpoint 300 s.
    """
    owned = os.path.dirname(order.directory)
    with fenced(owned):
        files.make_directory(f"{owned}/{FOLDER}")
        files.write_new(_path(owned, _stem(order), holder), [order.encode()])


def forget(files: Files, order: PartOrder, holder: Mark) -> None:
    """What came of the order has been told. Where that fails it is done again, to no harm."""
    with contextlib.suppress(RetryableError):
        files.delete(_path(os.path.dirname(order.directory), _stem(order), holder))


def take_over(
    files: Files, owned: str, generation: int, new_owner: Mark, alive: Callable[[Mark], bool]
) -> list[PartOrder]:
    """What dead processes were to do in the owner's directory `owned`, now `heir`'s, each once.

    Orders of other generations are removed: a new owner does not go on with the checkpoint of the
    one before. An order that a power failure has torn is removed too: its checkpoint expires.
    What an error leaves over is taken over by a later call.
    """
    taken: list[PartOrder] = []
    try:
        for order in _taken_over(files, owned, generation, new_owner, alive):
            taken.append(order)  # one by one: what is the heir's by now is nobody else's to do
    except RetryableError as error:
        log.warning("orders of dead processes cannot be read now: %s", error)
    return taken


def outstanding(ordered_epoch: int, pointers: Sequence[CheckpointPointer]) -> bool:
    """Whether parts of the checkpoint of `ordered_epoch` may still be under way.

    Then somebody must look for orders of dead processes also while no epoch runs: a stop, a switch
    and a rescale have none while they wait for their checkpoint (simulation seed 2829).
    """
    return ordered_epoch > max((p.epoch for p in pointers), default=0)


def _taken_over(
    files: Files, owned: str, generation: int, new_owner: Mark, alive: Callable[[Mark], bool]
) -> Iterator[PartOrder]:
    folder = f"{owned}/{FOLDER}"
    try:
        names = files.list(folder)
    except FileNotFoundError:  # nobody has ordered anything yet, or a newer owner has all
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            continue
        holder = Mark(int(found[3]), int(found[4]))
        mine = _path(owned, found[1], new_owner)
        if int(found[2]) != generation:
            files.delete(f"{folder}/{name}")
        elif holder != new_owner and not alive(holder):
            order = _read(files, f"{folder}/{name}")
            if order is not None and files.rename(f"{folder}/{name}", mine):
                yield order


def _read(files: Files, path: str) -> PartOrder | None:
    """Before it is taken over: one that cannot be read now is left to a later look."""
    try:
        return PartOrder.decode(bytes(files.read(path)))
    except FileNotFoundError:  # another heir, or a newer owner, has it
        return None
    except json.JSONDecodeError as error:
        log.warning("%s was torn and is removed: %s", path, error)
        files.delete(path)
        return None


def _stem(order: PartOrder) -> str:
    who = order.identity
    return f"o-{order.epoch:012d}-g{order.generation:010d}-{who.operator}-{who.partition}"


def _path(owned: str, stem: str, holder: Mark) -> str:
    return f"{owned}/{FOLDER}/{stem}-{holder.pid}-{holder.started}.order"
