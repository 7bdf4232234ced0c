"""What of a process decides results besides code and input: versions, and the processor.

It is part of a revision's identity. The process that commits an epoch knows it, and no other does:
`apply` runs on another machine, and the next epoch may run on another worker. So the writer of a
ledger partition names it in its first record there (`worker.sink.transaction`).
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from perseid.jobs.environments.lockfile import LOCK_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")


@cache
def of(folder: Path) -> Mapping[str, str]:
    """The environment in which this process runs the job in `folder`; it stays the same."""
    lock = folder / LOCK_FILE
    own = {"lock": hashlib.sha256(lock.read_bytes()).hexdigest()} if lock.is_file() else {}
    return _of_process() | own


@cache
def _of_process() -> dict[str, str]:
    return {
        "python": platform.python_version(), "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).replace(" ", "-"),
        **{name: metadata.version(name) for name in PACKAGES},
        "cpu": _instructions(), "arrow_simd": _arrow_level(),
    }  # fmt: skip


def _instructions() -> str:
    """The processor's vector instructions that numpy uses, by which it chooses its loops.

    In numpy's names: what it is forbidden by NPY_DISABLE_CPU_FEATURES is not among them.
    """
    features = import_module("numpy._core._multiarray_umath").__cpu_features__
    return " ".join(sorted(name for name, found in features.items() if found))


def _arrow_level() -> str:
    import pyarrow as pa

    return str(pa.runtime_info().simd_level)
