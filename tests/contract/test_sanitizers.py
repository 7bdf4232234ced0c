"""The kernels, compiled with sanitizers: no access out of bounds, no undefined behaviour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.kernels import build

PROGRAM = Path(__file__).with_name("sanitized_kernels.py")
FLAGS = (
    "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-std=c11", "-fPIC", "-shared",
)  # fmt: skip
FUZZ_S, FUZZ_MATRIX_S = 5, 120
LIMIT_S = 280
NEEDED = "the kernels' sanitizers need gcc with libasan (Debian: apt-get install gcc libc6-dev)"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels with AddressSanitizer and UndefinedBehaviorSanitizer."""
    made = tmp_path_factory.mktemp("sanitized") / "kernels.so"
    try:
        ran = subprocess.run(
            ["gcc", *FLAGS, "-o", str(made), *map(str, build.sources())],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.fail(NEEDED)
    assert ran.returncode == 0, f"{NEEDED}: {ran.stderr}"
    return made


def ran(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program with this library; allocations of numpy and Arrow are the sanitizer's too."""
    where = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(library), *arguments],
        env={
            **os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONMALLOC": "malloc",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        },
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def test_the_sanitizers_find_a_fault_in_a_kernel(library: Path) -> None:
    found = ran(library, "overflow", "0")
    assert found.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in found.stderr
    assert "perseid_json_decode" in found.stderr


def test_the_kernels_have_no_fault(
    library: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    """Their unit tests, and mutated texts: the same columns as the general way has."""
    seconds = FUZZ_MATRIX_S if request.config.getoption("--matrix") else FUZZ_S
    found = ran(library, str(seed), str(seconds))
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]
    assert f"seed {seed}" in found.stdout
