"""From `use: "module:Class"` to the class, each job folder in a package of its own.

Two revisions of a job, or two jobs with a `counts.py`, share one process without conflicts. The
folder becomes a package with a name made from its path, and an absolute import of a module next to
job.yaml (`import helpers`) resolves to that package. Nothing is put on `sys.path` and no bytecode
is written next to the sources. This isolates names, it is no sandbox: job code is trusted code.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.abc
import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs import library
from perseid.jobs.environments import activating, own_code
from perseid.jobs.model.problems import listed, nearest, shown
from perseid.jobs.model.spec import MAIN, OUTPUT_NAME, OperatorSpec
from perseid.jobs.model.trees import inside
from perseid.jobs.operator import METADATA, Operator

_PREFIX = "_perseid_job_"


def load(spec: OperatorSpec, folder: Path, *, allow_code: bool = True) -> type[Operator]:
    """The class that `spec.use` names; `folder` holds job.yaml.

    Raises BadInputError when it cannot be imported, with the place in the user's file, and
    RefusedError for own code where the deployment does not allow it.
    """
    assert spec.use is not None, "a SQL operator has no class"
    module, name = spec.use.split(":")
    if module == "library":
        return library.build(name, spec)
    if not allow_code:
        own_code.refuse_class(spec.use)
    loaded = _import(module, folder)
    found = getattr(loaded, name, None)
    if found is None:
        classes = [n for n, c in vars(loaded).items() if isinstance(c, type)]
        close = nearest(name, classes)
        hint = f"write `{module}:{close}`" if close else f"it has {listed(classes)}"
        raise BadInputError(f"{spec.use}: {module}.py has no class {name}; {hint}")
    return _checked(found, spec.use)


def load_all(operators: Mapping[str, OperatorSpec], folder: Path,
             *, allow_code: bool = True) -> dict[str, type[Operator]]:  # fmt: skip
    """The classes of all Python operators by operator name."""
    return {
        name: load(spec, folder, allow_code=allow_code)
        for name, spec in operators.items() if spec.use is not None
    }  # fmt: skip


def _checked(found: Any, use: str) -> type[Operator]:
    if not (isinstance(found, type) and issubclass(found, Operator)):
        raise BadInputError(
            f"{use}: expected a class that extends perseid.jobs.Operator, found "
            f"{type(found).__name__}; write `class {use.split(':')[1]}(Operator):`"
        )
    if found.process is Operator.process:
        raise BadInputError(
            f"{use}: has no method process; write `def process(self, batch, out): ...`"
        )
    if not isinstance(found.metadata, tuple) or not set(found.metadata) <= set(METADATA):
        raise BadInputError(
            f"{use}: metadata is {found.metadata!r}, expected a tuple of some of "
            f"{', '.join(METADATA)}; write `metadata = ()` if it reads none"
        )
    if not isinstance(found.needs_all_inputs, bool):
        raise BadInputError(
            f"{use}: needs_all_inputs is {shown(found.needs_all_inputs)}, expected True (a join) "
            "or False (each input brings output by itself)"
        )
    _check_outputs(found.outputs, use)
    return found


def _check_outputs(outputs: Any, use: str) -> None:
    write = 'write `outputs = {"late": pa.schema([("column", pa.string())])}`'
    if not isinstance(outputs, Mapping):
        found = shown(outputs)
        raise BadInputError(f"{use}: outputs is {found}, expected schemas by name; {write}")
    for name, schema in outputs.items():
        if name == MAIN:
            raise BadInputError(
                f"{use}: outputs has the name {MAIN!r}, which is the main output's; declare that "
                f"as `{MAIN} = pa.schema([...])`, or rename this one"
            )
        if not isinstance(name, str) or not re.fullmatch(OUTPUT_NAME, name):
            raise BadInputError(
                f"{use}: outputs has the name {shown(name)}, expected a-z, 0-9 and '_', beginning "
                "with a letter, 63 characters at most; rename it"
            )
        if not isinstance(schema, pa.Schema):
            raise BadInputError(
                f"{use}: outputs[{name!r}] is {shown(schema)}, expected its columns; {write}"
            )


def _import(module: str, folder: Path) -> types.ModuleType:
    package = _package(folder)
    activating.adopt()
    try:
        with activating.active(folder.resolve()):
            return importlib.import_module(f"{package}.{module}")
    except BadInputError:
        raise
    except BaseException as error:  # a user's module may raise anything on import
        raise BadInputError(_import_text(module, folder, error)) from error


def _import_text(module: str, folder: Path, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(_PREFIX):
        present = [p.stem for p in folder.glob("*.py")]
        name = (error.name or "").split(".", 1)[-1]
        return f"{module}.py: no module {name} next to job.yaml, which has {listed(present)}"
    place = f"{module}.py"
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).is_relative_to(folder.resolve()):
            place = f"{Path(frame.filename).relative_to(folder.resolve())}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        place = f"{Path(error.filename).name}:{error.lineno}"
    text = f"{place}: cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        text += "; packages that perseid does not have are locked in requirements.txt next to it"
    return text


def _package(folder: Path) -> str:
    """The name of the package for `folder`, created if it does not exist yet."""
    root = folder.resolve()
    name = _PREFIX + hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    if name not in sys.modules:
        if not any(isinstance(f, _Finder) for f in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        package = types.ModuleType(name, f"The modules of the job in {root}.")
        package.__path__ = [str(root)]
        sys.modules[name] = package
    return name


def forget(folder: Path) -> None:
    """Drops the modules of `folder`, whose files changed or are gone. Classes in use stay alive."""
    activating.use(folder, None)
    name = _PREFIX + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds only the modules of job folders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for other modules; ModuleNotFoundError for a missing module of the job folder."""
        package, _, module = fullname.partition(".")
        if not package.startswith(_PREFIX) or not module or package not in sys.modules:
            return None
        root = Path(sys.modules[package].__path__[0])
        relative = module.replace(".", "/")
        for name, is_package in ((f"{relative}/__init__.py", True), (f"{relative}.py", False)):
            file = inside(root, name)
            if file is not None:
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=_Loader(str(file), package, root),
                    submodule_search_locations=[str(file.parent)] if is_package else None,
                )  # fmt: skip
        # Not None: the path finder would then load what `inside` does not accept.
        raise ModuleNotFoundError(f"No module named {module!r}", name=fullname)


class _Loader(importlib.abc.SourceLoader):
    """Runs a module of a job folder with an `import` that searches the job folder first.

    Without `path_stats` and `set_data` the base class neither reads nor writes bytecode files.
    """

    def __init__(self, file: str, package: str, root: Path) -> None:
        self._file, self._package, self._root = file, package, root

    def get_filename(self, fullname: str) -> str:
        return self._file

    def get_data(self, path: str | bytes) -> bytes:
        return Path(os.fsdecode(path)).read_bytes()

    def exec_module(self, module: types.ModuleType) -> None:
        code = self.get_code(module.__name__)
        assert code is not None, "a source file always has code"
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        exec(code, vars(module))

    def _import(self, name: str, globals_: Mapping[str, object] | None = None,
                locals_: Mapping[str, object] | None = None, fromlist: Sequence[str] | None = (),
                level: int = 0) -> types.ModuleType:  # fmt: skip
        """`__import__` that maps modules next to job.yaml to names in their package."""
        top = name.partition(".")[0]
        is_local = level == 0 and (
            inside(self._root, f"{top}.py") or inside(self._root, f"{top}/__init__.py")
        )
        if not is_local:
            with activating.active(self._root):
                return __import__(name, globals_, locals_, fromlist or (), level)
        loaded = importlib.import_module(f"{self._package}.{name}")
        if not fromlist:
            return sys.modules[f"{self._package}.{top}"]
        for part in fromlist:
            if not hasattr(loaded, part) and hasattr(loaded, "__path__") and part != "*":
                importlib.import_module(f"{self._package}.{name}.{part}")
        return loaded
