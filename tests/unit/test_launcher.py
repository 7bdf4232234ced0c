"""The launcher's decisions, with stand-ins for Python and pip; nothing is downloaded."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TOOLS = (
    "sh", "readlink", "dirname", "cat", "cmp", "head", "flock", "awk", "rm", "mv", "mkdir", "cp",
    "chmod", "grep",
)  # fmt: skip
# Makes a .venv whose python logs what pip is asked for, and whose perseid echoes its arguments.
PYTHON = """\
#!/bin/sh
case "$*" in
    *"-m venv"*)
        for last do :; done
        mkdir -p "$last/bin"
        cp "$0" "$last/bin/python"
        printf '#!/bin/sh\\necho "ran $*"\\n' >"$last/bin/perseid"
        chmod +x "$last/bin/perseid" ;;
    *"-m pip install"*)
        echo "$*" >>"$PIP_LOG"
        [ -z "$OFFLINE" ] || exit 1 ;;
    *kernels/build.py*) [ -z "$NO_COMPILER" ] || grep -q compiler.lock "$PIP_LOG" ;;
    *-V*) echo Python 3.11.0 ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with a space in its path, and a PATH without Python."""
    root = tmp_path / "a tree"
    (root / "platform").mkdir(parents=True)
    shutil.copy(REPOSITORY / "perseid", root / "perseid")
    (root / "pyproject.toml").write_text("[project]\n")
    for lock in ("java.lock", "compiler.lock"):
        (root / "platform" / lock).touch()
    kernels = root / "platform" / "perseid" / "kernels"
    kernels.mkdir(parents=True)
    for name in ("kernels.h", "folds.c", "build.py"):
        (kernels / name).touch()
    (root / "platform" / "requirements.lock").write_text(
        "a==1 \\\n    --hash=sha256:aa\nsetuptools==2 \\\n    --hash=sha256:bb\nz==1 \\\n"
    )
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return root


def with_python(tree: Path, script: str = PYTHON) -> None:
    python = tree.parent / "bin" / "python3"
    python.write_text(script)
    python.chmod(0o755)


def launch(
    tree: Path, *arguments: str, offline: bool = False, compiler: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(tree.parent / "bin"),
        "PIP_LOG": str(tree.parent / "pip.log"),
        "OFFLINE": "1" if offline else "",
        "NO_COMPILER": "" if compiler else "1",
    }
    return subprocess.run(
        [tree / "perseid", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def installs(tree: Path) -> list[str]:
    log = tree.parent / "pip.log"
    return log.read_text().splitlines() if log.exists() else []


def test_without_python_it_names_what_to_install(tree: Path) -> None:
    ran = launch(tree, "version")
    assert ran.returncode == 1
    assert "no Python 3.11 or newer found" in ran.stderr
    assert not (tree / ".venv").exists()


def test_a_python_without_venv_is_named(tree: Path) -> None:
    with_python(tree, '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\n')
    ran = launch(tree, "version")
    assert ran.returncode == 1
    assert "python3 cannot make virtual environments" in ran.stderr
    assert "python3-venv" in ran.stderr


@pytest.mark.security("5.16")
def test_first_use_installs_only_what_the_lock_names_and_then_runs(tree: Path) -> None:
    with_python(tree)
    ran = launch(tree, "jobs", "a b")
    assert (ran.returncode, ran.stdout) == (0, "ran jobs a b\n")
    build, all_locked, project = installs(tree)
    assert "--require-hashes" in build and "--require-hashes" in all_locked
    assert all("--no-build-isolation" in line for line in installs(tree))
    assert "--no-deps" in project and project.endswith(f"-e {tree}")
    assert not (tree / ".venv" / "build.lock").exists()


def test_later_uses_install_nothing_and_print_nothing_else(tree: Path) -> None:
    with_python(tree)
    launch(tree, "version")
    before = installs(tree)
    again = launch(tree, "--json")
    assert (again.stdout, again.stderr) == ("ran --json\n", "")
    assert installs(tree) == before


CHANGED = ["platform/requirements.lock", "pyproject.toml", "platform/perseid/kernels/folds.c"]


@pytest.mark.parametrize("changed", CHANGED)
def test_a_changed_lock_is_installed(changed: str, tree: Path) -> None:
    with_python(tree)
    launch(tree, "version")
    before = len(installs(tree))
    with (tree / changed).open("a") as file:
        file.write("# new\n")
    assert launch(tree, "version").stdout == "ran version\n"
    assert len(installs(tree)) == 2 * before


@pytest.mark.security("5.16")
def test_a_machine_without_a_compiler_gets_the_locked_one(tree: Path) -> None:
    with_python(tree)
    ran = launch(tree, "version", compiler=False)
    assert (ran.returncode, ran.stdout) == (0, "ran version\n")
    assert "no C compiler works on this machine" in ran.stderr
    compiler, project = installs(tree)[-2:]
    assert "--require-hashes" in compiler and compiler.endswith("compiler.lock")
    assert "--no-deps" in project


def test_offline_is_reported_and_the_next_try_starts_again(tree: Path) -> None:
    with_python(tree)
    ran = launch(tree, "version", offline=True)
    assert ran.returncode == 1
    assert "could not install the packages" in ran.stderr
    assert launch(tree, "version").stdout == "ran version\n"


def test_a_moved_tree_is_recreated(tree: Path) -> None:
    with_python(tree)
    launch(tree, "version")
    moved = tree.rename(tree.parent / "moved")
    ran = launch(moved, "version")
    assert ran.stdout == "ran version\n"
    assert "first use" in ran.stderr


def test_it_works_through_a_link_and_from_anywhere(tree: Path) -> None:
    with_python(tree)
    link = tree.parent / "link"
    link.symlink_to(tree / "perseid")
    environment = {**os.environ, "PATH": str(tree.parent / "bin"), "PIP_LOG": os.devnull}
    ran = subprocess.run(
        [link, "x"], env={**environment, "OFFLINE": ""}, cwd="/", capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert ran.stdout == "ran x\n"
    assert (tree / ".venv" / "bin" / "perseid").exists()


def test_two_first_uses_at_once_make_one_environment(tree: Path) -> None:
    with_python(tree)
    environment = {"PATH": str(tree.parent / "bin"), "PIP_LOG": str(tree.parent / "pip.log")}
    both = [
        subprocess.Popen(
            [tree / "perseid", name], env={**environment, "OFFLINE": ""}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    assert [child.communicate(timeout=50)[0] for child in both] == ["ran one\n", "ran two\n"]
    assert len(installs(tree)) == 3
