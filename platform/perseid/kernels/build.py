"""Compiles the kernels: `python -m perseid.kernels.build`; installation runs it.

Uses the machine's C compiler, else the one of the `ziglang` wheel. Imports nothing of perseid,
since it runs before perseid is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
_FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra")
_LIMIT_S = 300  # zig compiles its own C library first


class BuildError(Exception):
    """No compiler succeeded; the text lists the attempts and what to install."""


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.c"))


def library() -> Path:
    """The path of the library for these sources: a changed source has another name."""
    digest = hashlib.sha256(sysconfig.get_platform().encode())
    for path in (FOLDER / "kernels.h", *sources()):
        digest.update(path.read_bytes())
    return FOLDER / f"kernels-{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Compiles the library unless it exists.

    Raises:
        BuildError: no compiler succeeded.
    """
    wanted = library()
    if wanted.exists():
        return wanted
    failures = []
    for compiler in _compilers():
        failure = _compiled(compiler, wanted)
        if failure is None:
            _remove_older(wanted)
            return wanted
        failures.append(f"{shlex.join(compiler)}: {failure}")
    raise BuildError(
        "the kernels need a C compiler once (Debian: apt-get install gcc libc6-dev; or "
        "pip install ziglang)" + "".join(f"\n{text}" for text in failures)
    )


def _compilers() -> Iterator[list[str]]:
    if os.environ.get("CC"):
        yield shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            yield [found]
    if importlib.util.find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang", "cc"]


def _compiled(compiler: list[str], wanted: Path) -> str | None:
    """Compiles into a scratch folder and renames the result; None, or the error."""
    with tempfile.TemporaryDirectory(prefix=".build-", dir=FOLDER) as scratch:
        made = Path(scratch, "kernels.so")
        command = [*compiler, *_FLAGS, "-o", str(made), *map(str, sources())]
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), scratch)
        try:
            ran = subprocess.run(
                command, env={**os.environ, **caches}, capture_output=True, text=True,
                timeout=_LIMIT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if ran.returncode != 0:
            return ran.stderr.strip()[-2000:] or f"exit code {ran.returncode}"
        made.replace(wanted)
    return None


def _remove_older(wanted: Path) -> None:
    """Removes libraries of other sources; processes that have one open keep it."""
    for path in FOLDER.glob("kernels-*.so"):
        if path != wanted:
            path.unlink(missing_ok=True)


def main() -> int:
    try:
        print(build())
    except BuildError as error:
        print(f"perseid: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
