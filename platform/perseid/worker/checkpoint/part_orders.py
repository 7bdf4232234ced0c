"""Pending orders of checkpoint parts, as files next to the state logs until they are reported.

A process may die with orders in its queue while the job continues in others: each task of an epoch
first takes over the orders of dead processes. The files are in a directory of the owner, so they
become invalid with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator

from perseid.errors import DamagedFile, RetryableError
from perseid.records.marks import Mark
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import Files
from perseid.state.durability.log import fenced
from perseid.worker.checkpoint.parts import TO_RESTORE, PartOrder

log = logging.getLogger("perseid.worker")
FOLDER = "orders"  # next to the logs, whose names have a number after a dash
LOOK_S = 3  # seconds between checks for orders of dead processes while no epoch runs
_NAME = re.compile(r"(o-\d{12}-g(\d{10})-.+)-(\d+)-(\d+)\.order")


class Newest:
    """The newest part that was ordered of each operator partition, and the damage found.

    A superseded part proves nothing about its log: files that it needs may have been collected.
    """

    def __init__(self) -> None:
        self._epochs: dict[tuple[Identity, int], int] = {}  # by operator partition and generation
        self._damaged: dict[str, DamagedFile] = {}  # by the owner's directory

    def ordered(self, order: PartOrder) -> None:
        place = order.identity, order.generation
        self._epochs[place] = max(order.epoch, self._epochs.get(place, 0))

    def overtaken(self, order: PartOrder) -> bool:
        return order.epoch < self._epochs.get((order.identity, order.generation), 0)

    def failed(self, order: PartOrder, error: Exception) -> None:
        """Records the failure of an order."""
        if isinstance(error, DamagedFile) and not self.overtaken(order):
            self._damaged[os.path.dirname(order.directory)] = error

    def refuse_damaged(self, owned: str) -> None:
        """RetryableError when a part of this life, the owner of `owned`, found its log damaged."""
        if (found := self._damaged.get(owned)) is not None:
            raise RetryableError(f"{found}{TO_RESTORE}")


def note(files: Files, order: PartOrder, holder: Mark) -> None:
    """Writes the order's file; `holder` now has the order.

    FencedError when the logs have another owner. RetryableError when the file cannot be written:
    the task must be retried, since an order that dies with its process delays its checkpoint by 300
    s.
    """
    owned = os.path.dirname(order.directory)
    with fenced(owned):
        files.make_directory(f"{owned}/{FOLDER}")
        files.write_new(_path(owned, _stem(order), holder), [order.encode()])


def pending(files: Files, order: PartOrder, holder: Mark) -> bool:
    """Whether the order's file exists: not once its job is removed or its log has a new owner."""
    try:
        files.size(_path(os.path.dirname(order.directory), _stem(order), holder))
    except FileNotFoundError:
        return False
    except RetryableError:  # unknown while the disk fails
        return True
    return True


def forget(files: Files, order: PartOrder, holder: Mark) -> None:
    """Deletes the order's file, once its result is reported.

    If that fails the order is repeated, which is harmless.
    """
    with contextlib.suppress(RetryableError):
        files.delete(_path(os.path.dirname(order.directory), _stem(order), holder))


def take_over(
    files: Files, owned: str, generation: int, new_owner: Mark, alive: Callable[[Mark], bool]
) -> list[PartOrder]:
    """Orders of dead processes in the owner's directory `owned`, now `new_owner`'s, each once.

    Orders of other generations are removed: a new owner does not continue a checkpoint of its
    predecessor. An order torn by a power failure is removed too: its checkpoint expires. After an
    error a later call takes over the rest.
    """
    taken: list[PartOrder] = []
    try:
        for order in _taken_over(files, owned, generation, new_owner, alive):
            # one by one: an order that was taken over belongs to no other process
            taken.append(order)
    except RetryableError as error:
        log.warning("orders of dead processes cannot be read now: %s", error)
    return taken


def _taken_over(
    files: Files, owned: str, generation: int, new_owner: Mark, alive: Callable[[Mark], bool]
) -> Iterator[PartOrder]:
    folder = f"{owned}/{FOLDER}"
    try:
        names = files.list(folder)
    except FileNotFoundError:  # nothing was ordered yet, or a newer owner has all
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
    """Reads an order before it is taken over; an unreadable one is left to a later call."""
    try:
        return PartOrder.decode(bytes(files.read(path)))
    except FileNotFoundError:  # another process, or a newer owner, has taken it
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
