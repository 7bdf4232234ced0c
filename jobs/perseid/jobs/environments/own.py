"""Refuses packages of a job that conflict with the packages that perseid itself uses.

A process imports a package once, and a job's operators run in perseid's processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from perseid.errors import BadInputError
from perseid.jobs.environments.lockfile import Locked
from perseid.jobs.model.problems import Problem

ROOT = "perseid"


@cache
def packages() -> Mapping[str, str]:
    """The installed versions of perseid and all packages that it needs, by name."""
    found: dict[str, str] = {}
    todo = [ROOT]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another platform
        found[name] = one.version
        todo += [canonicalize_name(need.name) for need in needs(one)]
    return found


@cache
def modules() -> frozenset[str]:
    """The top-level modules of these packages, and of Python itself."""
    own = packages()
    return frozenset(sys.stdlib_module_names) | {
        module for module, names in metadata.packages_distributions().items()
        if any(canonicalize_name(name) in own for name in names)
    }  # fmt: skip


def needs(one: metadata.Distribution) -> Iterator[Requirement]:
    """The requirements of a distribution on this machine, without its extras."""
    for text in one.requires or ():
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield need


def conflicts(
    locked: Sequence[Locked], own: Mapping[str, str], label: str
) -> Iterator[Problem]:  # fmt: skip
    """Packages that perseid has in another version. Pure."""
    for one in locked:
        have = own.get(one.name)
        if have is not None and one.applies and Version(have) != Version(one.version):
            yield Problem(
                label, one.line,
                f"{one.name}=={one.version}, but perseid runs with {one.name} {have}, and one "
                f"process cannot have both; write {one.name}=={have}, or leave it out",
            )  # fmt: skip


def to_install(locked: Sequence[Locked], own: Mapping[str, str]) -> tuple[Locked, ...]:
    """The packages that apply here and that perseid does not have already. Pure."""
    return tuple(one for one in locked if one.applies and one.name not in own)


def check_whole(installed: Sequence[metadata.Distribution], own: Mapping[str, str]) -> None:
    """Raises BadInputError unless each package's needs are met, by these packages or perseid's."""
    have = dict(own) | {canonicalize_name(one.name): one.version for one in installed}
    for one in installed:
        for need in needs(one):
            version = have.get(canonicalize_name(need.name))
            if version is None:
                raise BadInputError(
                    f"requirements.txt: {one.name} {one.version} needs {need}, which is not in it; "
                    "lock the packages with all that they need (`uv pip compile`)"
                )
            if not need.specifier.contains(version, prereleases=True):
                whose = "perseid" if canonicalize_name(need.name) in own else "requirements.txt"
                raise BadInputError(
                    f"requirements.txt: {one.name} {one.version} needs {need}, but {whose} has "
                    f"{need.name} {version}; lock a version of {one.name} that goes with it"
                )


def check_modules(found: Mapping[str, bool]) -> None:
    """Raises BadInputError for a top-level module that would hide one of perseid's or Python's.

    `found`: the modules of an environment, and whether each is a namespace package. Namespace
    packages may be shared, except perseid's own.
    """
    for name, shared in found.items():
        if name == ROOT or (name in modules() and not shared):
            raise BadInputError(
                f"requirements.txt: one of its packages has a module {name}, which would hide that "
                "of perseid or of Python; use another package"
            )
