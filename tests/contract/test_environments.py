"""A job's own packages with the real pip, from a folder of wheels, and a kill -9 in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.errors import BadInputError, RetryableError
from perseid.jobs.environments import installing
from perseid.jobs.environments.installing import Environments
from perseid.jobs.environments.lockfile import LOCK_FILE
from perseid.jobs.model.trees import archive, archive_path, sha256
from perseid.records import crashpoints
from perseid.state.durability.store import open_store
from support.wheels import locked, wheel

JOB = """\
name: j
sources: {a: {topic: a, format: text}}
operators: {o: {input: a, key: value, use: "m:O"}}
sinks: {s: {input: o, topic: b, format: json, key: value}}
"""
CODE = """\
import colours
from perseid.jobs import Operator, pa

class O(Operator):
    output = pa.schema([("value", pa.string())])
    limit = colours.best("red")

    def process(self, batch, out):
        out.emit(batch)
"""
TINTS = "def first(x): return x[0]\n"
MODULES = {"colours.py": "from tints import first\ndef best(x):\n    return first(x)\n"}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    folder = tmp_path / "wheels"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return {
        "colours": wheel(folder, "colours", "1.0", MODULES, ["tints>=2", "numpy>=2"]),
        "tints": wheel(folder, "tints", "2.1", {"tints/__init__.py": TINTS}),
    }


def job(folder: Path, lock: str) -> Path:
    folder.mkdir()
    for name, text in {"job.yaml": JOB, "m.py": CODE, LOCK_FILE: lock}.items():
        (folder / name).write_text(text)
    return folder


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip


def test_a_job_is_checked_with_its_packages(tmp_path: Path, wheels: dict[str, Path]) -> None:
    folder = job(tmp_path / "j", locked(*wheels.values()))
    ran = run("from perseid.cli.main import main; main()", "jobs", "validate", str(folder),
              TMPDIR=str(tmp_path))  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("perseid-")]


def test_a_file_that_is_not_the_locked_one(tmp_path: Path, wheels: dict[str, Path]) -> None:
    folder = job(tmp_path / "j", locked(*wheels.values()))
    other = MODULES["colours.py"] + "import os\n"
    wheel(tmp_path / "wheels", "colours", "1.0", {"colours.py": other}, ["tints>=2"])
    environments = Environments(tmp_path / "environments")
    with pytest.raises(BadInputError, match="is not the one that was locked"):
        environments.lease(folder).__enter__()
    newer = wheel(tmp_path / "wheels", "colours", "1.1", MODULES, ["tints>=3"])
    part = job(tmp_path / "part", locked(wheels["tints"], newer))
    with pytest.raises(BadInputError, match=r"needs tints>=3, but requirements\.txt has"):
        environments.lease(part).__enter__()
    wheels["tints"].unlink()
    with pytest.raises((RetryableError, BadInputError)):
        environments.lease(folder).__enter__()
    assert not [p for p in environments.root.iterdir() if p.suffix != ".lock"]


def test_a_killed_installation_is_none_and_the_next_one_is_whole(
    tmp_path: Path, wheels: dict[str, Path]
) -> None:
    folder, root = job(tmp_path / "j", locked(*wheels.values())), tmp_path / "environments"
    crashpoints.arm(tmp_path / "crashes", "environment.installed")
    code = (
        "import sys; from pathlib import Path\n"
        "from perseid.jobs.environments.installing import Environments\n"
        "with Environments(Path(sys.argv[1])).lease(Path(sys.argv[2])) as site: print(site)"
    )
    arguments = (code, str(root), str(folder))
    killed = run(*arguments, **{crashpoints.FOLDER: str(tmp_path / "crashes")})
    assert killed.returncode == -signal.SIGKILL
    key = str(installing.key_of(folder))
    assert not (root / key).exists()
    (left,) = root.glob(".new-*")
    assert (left / "site" / "colours.py").is_file()
    ran = run(*arguments)
    assert ran.stdout.strip() == str(root / key / "site"), ran.stderr
    assert {p.name for p in (root / key / "site").iterdir()} >= {"colours.py", "tints"}
    assert Environments(root).collect([]) == [key]
    assert list(root.iterdir()) == []


def test_an_executor_on_another_host_than_the_driver_installs_them(
    tmp_path: Path, wheels: dict[str, Path]
) -> None:
    """It has neither the code nor the packages, and the operator is found by its name alone."""
    folder = job(tmp_path / "j", locked(*wheels.values()))
    root, site = tmp_path / "environments", f"{installing.key_of(folder)}/site"
    packed = archive({path.name: path.read_bytes() for path in folder.iterdir()})
    open_store(str(tmp_path / "store")).write(archive_path(sha256(packed)), [packed])
    code = (
        "import sys; from perseid.records import Deployment\n"
        "from perseid.jobs.model.layout import Layout, Task\n"
        "from perseid.worker.epoch import flow\n"
        "from perseid.worker.dataflow.context import FragmentContext\n"
        "store, sha, here, site = sys.argv[1:]\n"
        "to = Deployment(kafka='k:1', zookeeper='z:1', redis='redis://r', store=store, state='/s',"
        " logs='/l')\n"
        "layout = Layout(1, (Task(0, 'o', 0, 1, True, 0),))\n"
        "context = FragmentContext(to, 'j', 'u', 1, 'w1-a', 'r', sha, here + '/' + sha, layout, 0,"
        " 0, False, False, site)\n"
        "print(flow.operator_class(context.job_folder, 'o').limit)"
    )
    arguments = (code, str(tmp_path / "store"), sha256(packed), str(tmp_path / "host"))
    ran = run(*arguments, str(root / site), PERSEID_JOB_ENVIRONMENT=str(root / site))
    assert ran.stdout.strip() == "r", ran.stderr
    assert (root / site / "colours.py").is_file()
    assert Environments(root).collect([]) != []  # its process is gone, and nothing holds it
