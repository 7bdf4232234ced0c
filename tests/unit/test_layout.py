"""The layout rules of the source roots, each of which a single misplaced file would break silently.

`platform/` must never win over the standard library's module of that name, `perseid` must stay a
namespace without __init__.py, and every folder of code states in a README what it owns.
"""

import ast
import platform
import subprocess
import sys
import sysconfig
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("platform", "topics", "jobs", "coordinator", "replay")
PACKAGES = sorted(
    path.parent for root in ROOTS for path in (REPOSITORY / root / "perseid").glob("*/__init__.py")
)
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def sources() -> list[Path]:
    folders = [*(REPOSITORY / root / "perseid" for root in ROOTS), REPOSITORY / "tests" / "support"]
    return [path for folder in folders for path in folder.rglob("*.py")]


def test_platform_is_the_standard_librarys() -> None:
    assert Path(str(platform.__file__)).is_relative_to(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("folder", [".", *ROOTS, "platform/perseid"])
def test_platform_is_the_standard_librarys_from_every_folder(folder: str) -> None:
    code = "import platform as p, sysconfig as s; print(p.__file__); print(s.get_path('stdlib'))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY / folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found, stdlib = ran.stdout.splitlines()
    assert Path(found).is_relative_to(stdlib)


@pytest.mark.parametrize("root", ROOTS)
def test_source_roots_hold_only_the_namespace(root: str) -> None:
    assert [path.name for path in (REPOSITORY / root).glob("*.py")] == []
    assert not (REPOSITORY / root / "perseid" / "__init__.py").exists()
    assert [path.name for path in (REPOSITORY / root / "perseid").glob("*.py")] == []


def test_no_package_is_named_after_platform_or_utils() -> None:
    assert not {"platform", "utils", "util", "common", "helpers"} & {p.name for p in PACKAGES}
    assert not [path for path in sources() if path.stem in {"utils", "util", "helpers"}]


def test_every_package_is_in_the_layer_rules_and_in_the_wheel() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
    layers = " | ".join(settings["importlinter"]["contracts"][0]["layers"]).split(" | ")
    named = {f"perseid.{package.name}" for package in PACKAGES}
    assert set(settings["importlinter"]["root_packages"]) == named == set(layers)
    assert settings["hatch"]["build"]["targets"]["wheel"]["sources"] == list(ROOTS)
    assert settings["hatch"]["build"]["dev-mode-dirs"] == list(ROOTS)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_states_what_it_owns(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring and len(docstring) > 20
    area = package.parents[1]  # an area that is one package may have its README at the top
    places = [package, area] if area.name == package.name else [package]
    assert any((place / "README.md").is_file() for place in places), f"{package} needs a README.md"


@pytest.mark.parametrize("folder", [*ROOTS, "tests"])
def test_every_top_level_folder_has_a_readme(folder: str) -> None:
    """An area that is one package may have it there."""
    places = [REPOSITORY / folder, REPOSITORY / folder / "perseid" / folder]
    assert any((place / "README.md").is_file() for place in places)


def test_every_module_has_a_docstring() -> None:
    bare = [p for p in sources() if p.name != "__init__.py" and _docstring(p) is None]
    assert bare == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count, those for type checkers alone do not."""
    graph = TopologicalSorter({name: imported_by(path) for name, path in modules().items()})
    graph.prepare()  # a CycleError names the modules


def test_what_is_installed_imports_nothing_that_is_not() -> None:
    product = {name: path for name, path in modules().items() if name.startswith("perseid.")}
    ours = ("import support", "from support", "import benches", "from benches")
    assert [n for n, path in product.items() if any(o in path.read_text() for o in ours)] == []


@cache
def modules() -> dict[str, Path]:
    return {_name(path): path for path in sources()}


def _name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")


def imported_by(path: Path) -> set[str]:
    known, found = set(modules()), set[str]()
    unchecked: list[ast.AST] = [ast.parse(path.read_text())]
    while unchecked:
        node = unchecked.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            one_by_one = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (one_by_one & known) or {node.module}
        unchecked += ast.iter_child_nodes(node)
    return (found & known) - {_name(path)}


def test_files_and_functions_stay_readable() -> None:
    files = {*sources(), *(REPOSITORY / "tests").rglob("*.py")}
    long_files = [p for p in files if len(p.read_text().splitlines()) > FILE_LINES_MAX]
    assert long_files == []
    long_functions = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long_functions == []


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    sleeping = [
        str(path.relative_to(REPOSITORY))
        for ring in ("unit", "contract", "simulation", "system")
        for path in (REPOSITORY / "tests" / ring).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _sleeps(node.func)
    ]
    assert sleeping == []


def _sleeps(called: ast.expr) -> bool:
    """Whether it is `sleep` or `time.sleep`; `ast.unparse` of every call took 17 s."""
    if isinstance(called, ast.Attribute):
        return called.attr == "sleep" and ast.unparse(called.value) == "time"
    return isinstance(called, ast.Name) and called.id == "sleep"


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text()))
