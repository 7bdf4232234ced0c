"""Jobs with packages of their own: two versions side by side, and a worker killed on the way."""

from __future__ import annotations

from pathlib import Path

from perseid.jobs.environments.installing import Environments
from perseid.records import crashpoints
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from support.wheels import locked, wheel

JOB = """\
name: {name}
sources: {{a: {{topic: packages-in, format: text}}}}
operators: {{o: {{input: a, key: value, use: "m:O"}}}}
sinks: {{s: {{input: o, topic: {name}-out, format: json, key: value}}}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa
from perseid_test_colours import VERSION

class O(Operator):
    output = pa.schema([("value", pa.string()), ("first", pa.string()), ("later", pa.string())])
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        import perseid_test_colours.shades as shades
        self.seen.add(batch["value"], n=1)
        out.emit(pa.table({
            "value": batch["value"], "first": [VERSION] * len(batch),
            "later": [shades.VERSION] * len(batch),
        }))
"""
POINT = "environment.installed@environments"  # of workers; who applies installs somewhere else


def job(folder: Path, wheels: Path, name: str, version: str) -> str:
    text = f"VERSION = {version!r}\n"
    package = "perseid_test_colours"
    made = wheel(wheels, package, version, {
        f"{package}/__init__.py": text, f"{package}/shades.py": text
    })  # fmt: skip
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.format(name=name))
    (folder / "m.py").write_text(CODE)
    (folder / "requirements.txt").write_text(locked(made))
    return str(folder)


def test_each_job_has_its_packages_through_deaths_while_they_are_installed(
    running: RunningCluster, crash_points: Path, wheels: Path, tmp_path: Path
) -> None:
    running.topic("packages-in", 2)
    running.produce("packages-in", [b"red", b"green", b"blue"])
    crashpoints.arm(crash_points, POINT)
    for name, version in (("packages-one", "1.0"), ("packages-two", "2.0")):
        running.do("jobs", "apply", job(tmp_path / name, wheels, name, version))
        running.wait_caught_up(name)
    assert not crashpoints.armed(crash_points, POINT)
    for name, version in (("packages-one", "1.0"), ("packages-two", "2.0")):
        rows = running.rows(f"{name}-out")
        assert sorted(row["value"] for row in rows) == ["blue", "green", "red"]
        assert {(row["first"], row["later"]) for row in rows} == {(version, version)}
    root = Environments.of(running.cluster.deployment).root
    assert len([p for p in root.iterdir() if p.is_dir() and p.name[0] != "."]) == 2
    for name in ("packages-one", "packages-two"):
        running.do("jobs", "remove", name, "--purge")
    until(lambda: not any(p.is_dir() for p in root.iterdir()), 90, f"{root} to be cleared away")
