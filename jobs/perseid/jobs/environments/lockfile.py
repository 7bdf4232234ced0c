"""`requirements.txt` of a job: every package with its version and its hashes, and nothing else.

The format is that of `pip-compile --generate-hashes` and `uv pip compile --generate-hashes`. The
deployment configures the package index, so lines that name one are refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from perseid.jobs.model.problems import Problem, shown

LOCK_FILE = "requirements.txt"
LOCK_BYTES_MAX = 1 << 20
PACKAGES_MAX = 500
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_WRITE = "`uv pip compile --generate-hashes requirements.in -o requirements.txt` writes it"


@dataclass(frozen=True, slots=True)
class Locked:
    """One package. `name` is the canonical one; `line` is its first line."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: Marker | None
    line: int

    @property
    def applies(self) -> bool:
        """Whether it is for this Python and this machine."""
        return self.marker is None or self.marker.evaluate()

    def __str__(self) -> str:
        options = "".join(f" --hash={one}" for one in self.hashes)
        return f"{self.name}=={self.version}{options}"


def read(content: bytes, label: str = LOCK_FILE) -> tuple[tuple[Locked, ...], tuple[Problem, ...]]:
    """The packages of a lock file, and all its mistakes."""
    if len(content) > LOCK_BYTES_MAX:
        text = f"is larger than {LOCK_BYTES_MAX} bytes; lock fewer packages"
        return (), (Problem(label, 1, text),)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return (), (Problem(label, 1, f"is no text in UTF-8; {_WRITE}"),)
    found: dict[str, Locked] = {}
    problems = []
    for number, line in _logical(text):
        one = _locked(line, number)
        if isinstance(one, str):
            problems.append(Problem(label, number, one))
        elif one.name in found and found[one.name].marker == one.marker:
            problems.append(Problem(label, number, f"{one.name} stands on line "
                                    f"{found[one.name].line} already; remove one"))  # fmt: skip
        else:
            found[f"{one.name};{one.marker}" if one.name in found else one.name] = one
    if len(found) > PACKAGES_MAX:
        problems.append(Problem(label, 1, f"has {len(found)} packages, {PACKAGES_MAX} at most"))
    return tuple(found.values()), tuple(problems)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Joins continuation lines and strips comments; yields each line with its number."""
    begun, parts = 1, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not parts:
            begun = number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            whole = " ".join(part for part in parts if part)
            parts = []
            if whole:
                yield begun, whole
    if whole := " ".join(part for part in parts if part):
        yield begun, whole


def _locked(line: str, number: int) -> Locked | str:
    """The package of a line, or the mistake in it."""
    if line.startswith("-"):
        option = re.split(r"[=\s]", line)[0]
        return (
            f"found the option {shown(option)}, which a job may not give: where "
            "packages come from is the deployment's setting (PIP_INDEX_URL, PIP_FIND_LINKS in the "
            "environment of its workers); remove the line"
        )
    hashes = tuple(_HASH.findall(line))
    bare = _HASH.sub("", line).strip()
    try:
        wanted = Requirement(bare)
    except InvalidRequirement:
        what = bare[bare.index("--") :] if "--" in bare else bare
        return f"found {shown(what)}, expected NAME==VERSION and --hash=sha256:...; {_WRITE}"
    version = _version(wanted)
    if version is None:
        found = "an address" if wanted.url else str(wanted.specifier) or "no version"
        return f"{wanted.name} has {found}, expected one version (==); {_WRITE}"
    if not hashes:
        return f"{wanted.name} has no hash, so anybody's file would do; {_WRITE}"
    return Locked(canonicalize_name(wanted.name), version, hashes, wanted.marker, number)


def _version(wanted: Requirement) -> str | None:
    specifiers = list(wanted.specifier)
    if len(specifiers) != 1 or specifiers[0].operator != "==":
        return None
    try:
        Version(specifiers[0].version)
    except InvalidVersion:  # a wildcard
        return None
    return specifiers[0].version
