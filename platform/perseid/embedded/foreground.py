"""The environment of a worker without a supervisor: Java, SPARK_HOME, its class archive.

`python -m perseid.embedded.foreground` makes the files when an image is built.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from perseid.embedded import parts
from perseid.embedded.class_archive import class_archive, java_options
from perseid.embedded.java import java_home
from perseid.embedded.spark_home import lean_home


def environment(note: Callable[[str], None]) -> dict[str, str]:
    """The same as `up` gives its workers; RefusedError where there is no Java."""
    java, spark = java_home(), lean_home()
    found = parts.spark_environment(java, spark)
    return found | java_options(class_archive(java, spark, found, note))


if __name__ == "__main__":
    environment(lambda text: print(text, file=sys.stderr))
