"""Which directory of a host has which logs, and whose they are.

    <root>/<job UUID>/<layout>/<replica>/<owner>/<operator>-<partition>   one log

A replica is one copy of a job's state: it has one owner at a time, and each takes the directory
over from the previous one by a rename (`adopt`), after which the old owner's next write fails with
FencedError. Other replicas are never touched. A log's content is the same in all of them, so its
files do not name the replica (`blob.Identity`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from perseid.errors import FencedError
from perseid.records import MAIN, WHOLE
from perseid.state.durability.files import TEMPORARY, Files

_OWNER = re.compile(r"g\d{10}-")
_PREFIX = len("g0000000000-")


def replica_directory(root: str, job_uuid: str, layout: int, replica: str = MAIN) -> str:
    """The directory of one replica of a job's layout: that of its present owner is in it."""
    return f"{root}/{job_uuid}/{layout}/{replica}"


def owner_directory(root: str, job_uuid: str, layout: int, owner: str, replica: str = MAIN) -> str:
    """The directory in which `owner` has the logs of a replica."""
    return f"{replica_directory(root, job_uuid, layout, replica)}/{owner}"


def replica_of(fragment: str, log: str = MAIN) -> str:
    """The replica with this copy of a fragment's logs (`Assignment.log`)."""
    return log if fragment == WHOLE else f"{log}-{fragment}"


def log_directory(owned: str, operator: str, partition: int) -> str:
    """The log of one operator partition inside an owner's directory."""
    return f"{owned}/{operator}-{partition}"


def owner_name(generation: int, incarnation: str) -> str:
    """An owner's name; names sort by generation."""
    return f"g{generation:010d}-{incarnation}"


def named_by(names: Iterable[str], incarnation: str, generation: int) -> str | None:
    """The owner's name under which that incarnation has a replica's logs; None if it has none.

    A replica that became the primary keeps the name of the generation under which it began.
    """
    own = owner_name(generation, incarnation)
    known = [name for name in names if _OWNER.match(name) and name[_PREFIX:] == incarnation]
    return max((name for name in known if name <= own), default=None)


def adopt(
    files: Files, root: str, job_uuid: str, layout: int, owner: str, replica: str = MAIN, *,
    kept: bool = True,
) -> str | None:  # fmt: skip
    """Takes over a replica's logs from its newest owner before `owner`; its name, None if none.

    Afterwards `owner`'s directory exists and no older one of the replica does; other replicas' are
    not touched. FencedError when an owner of the same or a higher generation exists: then this
    caller is out of date. `kept` false: the older ones are of other code and are deleted.
    """
    directory = replica_directory(root, job_uuid, layout, replica)
    mine = f"{directory}/{owner}"
    files.make_directory(directory, parents=True)
    adopted = None
    while True:
        names = [name for name in files.list(directory) if _OWNER.match(name)]
        others = [name for name in names if name != owner]
        newer = [name for name in others if name[:11] >= owner[:11]]
        if newer:
            raise FencedError(f"{directory}/{newer[-1]} is of a newer owner than {owner}")
        if owner in names or not others or not kept:
            break
        # Another process, of this owner or of one in between, may be faster: then check again.
        left = _temporaries(files, f"{directory}/{others[-1]}")
        if files.rename(f"{directory}/{others[-1]}", mine):
            adopted = others.pop()
            for path in left:
                files.delete(f"{mine}/{path}")
            break
    files.make_directory(mine)
    for name in others:
        files.delete(f"{directory}/{name}")
    return adopted


def forget_layouts(files: Files, root: str, job_uuid: str, below: int) -> None:
    """Deletes this host's logs of the job's layouts below `below`, of all replicas."""
    for layout in range(1, below):
        files.delete(f"{root}/{job_uuid}/{layout}")


def _temporaries(files: Files, owned: str) -> list[str]:
    """Incomplete files and forks that a dead owner left, relative to its directory."""
    found = []
    with contextlib.suppress(FileNotFoundError):  # it may be renamed concurrently
        for log in files.list(owned):
            if log.endswith(TEMPORARY):
                found.append(log)
                continue
            names = files.list(f"{owned}/{log}")
            found += [f"{log}/{name}" for name in names if name.endswith(TEMPORARY)]
    return found
