"""A job's own packages: what a lock file may contain, and environments, there or not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from perseid.errors import BadInputError, RefusedError
from perseid.jobs.environments import activating, checking, installing, loading, own
from perseid.jobs.environments.installing import Environments
from perseid.jobs.environments.lockfile import LOCK_FILE, Locked, read
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.model.spec import OperatorSpec
from perseid.testing.wait import until
from support.wheels import locked, wheel

HASH = "--hash=sha256:" + "a" * 64
CODE = """\
import colours
from perseid.jobs import Operator

class O(Operator):
    name_of_it = colours.NAME

    def process(self, batch, out):
        import colours.late
        return colours.late.NAME
"""


def lock(text: str) -> tuple[Locked, ...]:
    found, problems = read(text.encode())
    assert problems == ()
    return found


def test_what_compilers_of_lock_files_write() -> None:
    found = lock(f"""\
# This file was made by uv
Colour_Science==0.4.6 ; python_version >= "3.8" \\
    {HASH} \\
    --hash=sha512:{"b" * 128}
    # via -r requirements.in
requests[socks]==2.32.0 {HASH}   # a comment

old==1 ; python_version < "3" {HASH}
""")
    assert [(one.name, one.version, one.line) for one in found] == [
        ("colour-science", "0.4.6", 2), ("requests", "2.32.0", 6), ("old", "1", 8),
    ]  # fmt: skip
    assert found[0].hashes == ("sha256:" + "a" * 64, "sha512:" + "b" * 128)
    assert [one.applies for one in found] == [True, True, False]
    assert str(found[1]) == f"requests==2.32.0 {HASH}"


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "an index": ("--index-url https://evil.example/simple", "found the option '--index-url'"),
    "one more index": (f"--extra-index-url=https://e\nx==1 {HASH}", "'--extra-index-url'"),
    "links": ("-f /tmp/wheels", "found the option '-f'"),
    "another file": ("-r other.txt", "found the option '-r'"),
    "editable": (f"-e ./x {HASH}", "found the option '-e'"),
    "trust": ("--trusted-host evil.example", "'--trusted-host'"),
    "an address": (f"x @ https://evil.example/x.whl {HASH}", "x has an address"),
    "a bare address": (f"https://evil.example/x.whl {HASH}", "expected NAME==VERSION"),
    "git": (f"git+https://evil.example/x.git {HASH}", "expected NAME==VERSION"),
    "a path": (f"./x.whl {HASH}", "expected NAME==VERSION"),
    "no hash": ("x==1", "has no hash"),
    "a weak hash": ("x==1 --hash=md5:" + "a" * 32, "expected NAME==VERSION and --hash=sha256"),
    "a short hash": ("x==1 --hash=sha256:abc", "expected NAME==VERSION and --hash=sha256"),
    "an option of a package": (f"x==1 {HASH} --global-option=--x", "'--global-option=--x', exp"),
    "a range": (f"x>=1 {HASH}", "expected one version (==)"),
    "no version": (f"x {HASH}", "has no version"),
    "a wildcard": (f"x==1.* {HASH}", "expected one version (==)"),
    "two versions": (f"x==1,==1 {HASH}", "expected one version (==)"),
    "twice": (f"x==1 {HASH}\nX==2 {HASH}", "x stands on line 1 already"),
    "a variable": (f"${{HOME}}==1 {HASH}", "expected NAME==VERSION"),
    "no text": (b"\xff\xfe", "is no text in UTF-8"),
    "large": ("#" * ((1 << 20) + 1), "is larger than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_lock_file_may_not_contain(name: str) -> None:
    text, shown = REFUSED[name]
    _, problems = read(text if isinstance(text, bytes) else text.encode())
    assert shown in str(problems[0]), problems
    assert all(str(p).isprintable() for p in problems)


def test_another_version_of_what_perseid_runs_with_is_a_conflict() -> None:
    mine = {"numpy": "2.3.1", "pyarrow": "22.0.0"}
    found = lock(f"numpy==2.3.1 {HASH}\npyarrow==21.0.0 {HASH}\nx==1 {HASH}\n"
                 f'pyarrow==1 ; python_version < "3" {HASH}\n')  # fmt: skip
    (problem,) = own.conflicts(found, mine, "job/requirements.txt")
    assert str(problem) == (
        "job/requirements.txt:2: pyarrow==21.0.0, but perseid runs with pyarrow 22.0.0, and one "
        "process cannot have both; write pyarrow==22.0.0, or leave it out"
    )
    assert [one.name for one in own.to_install(found, mine)] == ["x"]


def test_perseids_own_packages_are_those_that_it_needs() -> None:
    assert {"perseid", "pyspark", "pyarrow", "numpy", "py4j"} <= own.packages().keys()
    assert not {"pytest", "mypy", "ruff"} & own.packages().keys()
    assert {"json", "numpy", "pyarrow"} <= own.modules()


# -- environments, with an installation that unpacks a folder ------------------------------------


class World:
    """Job folders and an environment root; `install` does what a test wants of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "environments"
        self.installed = 0
        self.environments = Environments(self.root, self.install)

    def job(self, name: str, version: str = "1") -> Path:
        """A job that needs package `colours` of a version."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "m.py").write_text(CODE)
        (folder / LOCK_FILE).write_text(f"colours=={version} {HASH}\n")
        return folder

    def install(self, requirements: Path, target: Path) -> None:
        self.installed += 1
        version = requirements.read_text().split("==")[1].split()[0]
        package = target / "colours"
        package.mkdir()
        (package / "__init__.py").write_text(f"NAME = 'colours {version}'\n")
        (package / "late.py").write_text(f"NAME = 'late {version}'\n")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names(world: World) -> set[str]:
    return {path.name for path in world.root.iterdir() if path.suffix != ".lock"}


def test_jobs_with_the_same_lock_share_one_and_it_is_made_once(world: World) -> None:
    folders = [world.job(f"j{i}") for i in range(4)]
    ready = threading.Barrier(4)

    def lease(folder: Path) -> Path | None:
        ready.wait()
        with world.environments.lease(folder) as site:
            return site

    with ThreadPoolExecutor(4) as pool:
        sites = set(pool.map(lease, folders))
    assert world.installed == 1
    (site,) = sites
    assert site is not None and (site / "colours" / "late.py").is_file()
    with world.environments.lease(world.job("other", "2")) as other:
        assert other != site
    (world.folder / "none").mkdir()
    with world.environments.lease(world.folder / "none") as none:
        assert none is None


def test_an_installation_that_fails_or_dies_leaves_nothing_that_counts(world: World) -> None:
    folder = world.job("j")

    def dies(_requirements: Path, target: Path) -> None:
        (target / "half.py").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Environments(world.root, dies).lease(folder):
        raise AssertionError("not reached")
    assert names(world) == set()
    key = installing.key_of(folder)
    (world.root / f".new-{key}-of-a-killed-one" / "site").mkdir(parents=True)
    with world.environments.lease(folder) as site:
        assert site is not None and not (site / "half.py").exists()
        assert world.environments.collect([]) == []
    assert world.environments.collect([str(key)]) == []
    assert world.environments.collect([]) == [key]
    assert list(world.root.iterdir()) == []
    with world.environments.lease(folder):
        assert world.installed == 2


def test_what_an_applied_revision_needs_stays(world: World) -> None:
    archives = world.folder / "archives"
    archives.mkdir()
    folder = world.job("j").rename(archives / "abc")
    with world.environments.lease(folder):
        pass
    assert installing.needed(archives, {"abc", "on-another-host"}) == {installing.key_of(folder)}
    collector = installing.Collector(world.environments, archives)
    collector.see({"abc"}, 0)
    collector.see(set(), 1)
    until(lambda: not list(world.root.iterdir()), 10, "the environment to be removed")


def test_a_package_without_what_it_needs_is_not_taken(tmp_path: Path) -> None:
    def lib(name: str, version: str, *needs: str) -> metadata.Distribution:
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        lines = "".join(f"Requires-Dist: {need}\n" for need in needs)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{lines}")
        return metadata.Distribution.at(info)

    mine = {"numpy": "2.3.1"}
    own.check_whole([lib("a", "1", "numpy>=2", "b>1", 'x ; extra == "x"'), lib("b", "2")], mine)
    with pytest.raises(BadInputError, match="c 1 needs d, which is not in it"):
        own.check_whole([lib("c", "1", "d")], mine)
    with pytest.raises(BadInputError, match=r"e 1 needs numpy<2, but perseid has numpy 2\.3\.1"):
        own.check_whole([lib("e", "1", "numpy<2")], mine)


@pytest.mark.parametrize("module", ["json", "pyarrow", "perseid"])
def test_modules_that_would_hide_others_are_refused(module: str, world: World) -> None:
    def install(_requirements: Path, target: Path) -> None:
        (target / module).mkdir()
        if module != "perseid":
            (target / module / "__init__.py").write_text("")

    with (
        pytest.raises(BadInputError, match=f"has a module {module}"),
        Environments(world.root, install).lease(world.job("j")),
    ):
        raise AssertionError("not reached")


# -- importing -----------------------------------------------------------------------------------


def load(world: World, folder: Path, site: Path | None) -> type:
    activating.use(folder, site)
    spec = OperatorSpec(inputs={"input": "x"}, use="m:O", parallelism=1)
    return loading.load(spec, folder)


def test_two_versions_of_a_package_in_one_process(world: World) -> None:
    path = list(sys.path)
    for version in "12":
        folder = world.job(f"j{version}", version)
        with world.environments.lease(folder) as site:
            found = load(world, folder, site)
        assert found.name_of_it == f"colours {version}"  # type: ignore[attr-defined]
        assert found().process(None, None) == f"late {version}"
    assert "colours" not in sys.modules
    assert sys.path == path
    bare = world.job("bare")
    with pytest.raises(BadInputError, match=r"No module named 'colours'; packages that perseid"):
        load(world, bare, None)


def test_a_python_worker_has_its_packages_for_good(world: World) -> None:
    folder = world.job("j")
    with world.environments.lease(folder) as site:
        code = (
            "from perseid.jobs.environments import activating\n"
            "activating.adopt(); activating.adopt()\n"
            "import sys, colours.late\n"
            "print(colours.NAME, colours.late.NAME, sys.path[0] == sys.argv[1],"
            " sys.path.count(sys.argv[1]))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, str(site)], capture_output=True, text=True, check=True,
            env=os.environ | {activating.VARIABLE: str(site)},
        )  # fmt: skip
    assert ran.stdout.strip() == "colours 1 late 1 True 1"


def test_where_no_code_may_run_none_is_installed(world: World) -> None:
    folder = world.job("j")
    with pytest.raises(RefusedError, match="installs none either"):
        checking.prepare(folder, "j/requirements.txt", allow_code=False)
    (folder / LOCK_FILE).write_text("x==1\n--index-url https://evil.example\n")
    with pytest.raises(JobFileErrors) as caught:
        checking.prepare(folder, "j/requirements.txt")
    assert [str(p).partition(" ")[0] for p in caught.value.problems] == [
        "j/requirements.txt:1:", "j/requirements.txt:2:",
    ]  # fmt: skip


def test_a_wheel_of_the_tests_has_the_hash_of_its_lock(tmp_path: Path) -> None:
    made = wheel(tmp_path, "colours", "1", {"colours.py": "NAME = 1\n"})
    (one,) = lock(locked(made))
    assert (one.name, one.version) == ("colours", "1")
