"""`perseid init`: the starter job under a name of the user's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from perseid.errors import RefusedError, UsageError
from perseid.jobs.repository.job_folders import EXAMPLES

STARTER = "starter"
INPUT_FILE = "orders.jsonl"


def job_name(folder: Path) -> str:
    """A valid job name made from the folder's."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    name = re.sub(r"^[^a-z]+", "", name)[:60].strip("-")
    if not name:
        raise UsageError(
            f"{folder.name[:80]!r} gives no job name; name the folder with letters, such as my-job"
        )
    return name


def render(name: str) -> dict[str, str]:
    """The files of the job `name` by path."""
    module = name.replace("-", "_")
    if module in sys.stdlib_module_names:
        module += "_job"  # `import json` would find the job's own json.py
    source = EXAMPLES / STARTER
    files = {}
    for path in sorted(source.iterdir()):
        if not path.is_file() or path.suffix not in {".yaml", ".py", ".jsonl"}:
            continue
        text = path.read_text(encoding="utf-8").replace(f"name: {STARTER}", f"name: {name}")
        files[path.name.replace(STARTER, module)] = text.replace(STARTER, module)
    return files


def write(folder: Path) -> tuple[str, list[Path]]:
    """Creates the job folder; refused unless it is empty. Returns the job's name and files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RefusedError(f"{folder} is there already; choose a new folder: `perseid init my-job`")
    name = job_name(folder)
    files = render(name)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return name, [folder / path for path in files]


def next_steps(folder: Path) -> list[str]:
    """The commands to type after `init`, in order."""
    where = str(folder)
    return [
        f"perseid jobs validate {where}",
        f"{sys.executable} -m pytest {where}",
        "perseid up",
        "perseid topics create orders --partitions 2",
        f"perseid jobs apply {where}",
        f"perseid topics produce orders --file {where}/{INPUT_FILE}",
        "perseid topics tail orders-spent",
    ]
