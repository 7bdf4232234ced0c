"""The benchmarks of `perseid bench`: what is run, on both sides, and how it is measured."""

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """Of a process of its own: it finds `benches`, which is not installed."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
