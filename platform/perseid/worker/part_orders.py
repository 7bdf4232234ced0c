"""Orders of checkpoint parts that wait, as files beside the state log, until their end is told.

A process may die with orders in its queue, and the job goes on in another one. Whoever comes to a
partition that somebody else had takes over what a dead process has left there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perseid.state.files import Files
from perseid.state.log import fenced
from perseid.worker.parts import PartOrder

_NAME = re.compile(r"c-(\d{10})-(\d{12})-(\d+)\.order")


def note(files: Files, order: PartOrder, pid: int) -> None:
    """Process `pid` has the order from here on. FencedError when the log has another owner."""
    with fenced(order.directory):
        files.write_new(_path(order, pid), [order.encode()])


def forget(files: Files, order: PartOrder, pid: int) -> None:
    """What came of the order has been told."""
    files.delete(_path(order, pid))


def take_over(
    files: Files, directory: str, generation: int, pid: int, is_alive: Callable[[int], bool]
) -> list[PartOrder]:
    """The orders in `directory` whose processes are dead, as `pid`'s own; each goes to one taker.

    Those of other generations are removed unread, since a power failure may have torn them: a new
    owner does not go on with the checkpoint of the one before.
    """
    taken = []
    with fenced(directory):
        names = files.list(directory)
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            continue
        of_generation, epoch, holder = map(int, found.groups())
        mine = f"{directory}/{_name(generation, epoch, pid)}"
        if of_generation != generation:
            files.delete(f"{directory}/{name}")
        elif not is_alive(holder) and files.rename(f"{directory}/{name}", mine):
            taken.append(PartOrder.decode(files.read(mine)))
    return taken


def _path(order: PartOrder, pid: int) -> str:
    return f"{order.directory}/{_name(order.generation, order.epoch, pid)}"


def _name(generation: int, epoch: int, pid: int) -> str:
    return f"c-{generation:010d}-{epoch:012d}-{pid}.order"
