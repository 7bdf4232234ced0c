"""Builds packages that contain the compiled kernels; used by hatchling only (pyproject.toml)."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("platform/perseid/kernels")


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Makes wheels for one platform and every Python, since Python loads the library by ctypes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        subprocess.run([sys.executable, str(Path(self.root, FOLDER, "build.py"))], check=True)
        build_data["artifacts"].append(f"{FOLDER}/kernels-*.so")  # git ignores it
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
