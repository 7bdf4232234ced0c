"""Rules of the whole code base: what is installed, what is unpickled, how Spark is started."""

from __future__ import annotations

import ast
import logging
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from perseid.embedded import parts
from perseid.jobs.validation import document
from perseid.worker.spark import session

REPOSITORY = Path(__file__).parents[2]
LOCKS = [
    REPOSITORY / "platform" / f"{name}.lock"
    for name in ("requirements", "java", "compiler", "audit")
]
ROOTS = ("platform", "topics", "jobs", "coordinator", "replay")
_LOCKED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==(?P<version>[^\s;\\]+)")


def entries(lock: Path) -> list[str]:
    """Each requirement with its hashes on one line; comments are left out."""
    lines = [line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    return [e for e in "\n".join(lines).replace("\\\n", " ").splitlines() if e.strip()]


@pytest.mark.security("5.16")
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_has_one_version_and_its_hashes(lock: Path) -> None:
    found = entries(lock)
    assert found
    for entry in found:
        assert _LOCKED.match(entry), f"no exact version: {entry[:80]}"
        hashes = re.findall(r"--hash=(\S+)", entry)
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes), entry[:80]
        assert not re.search(r"--(extra-)?index-url|--find-links|git\+|://", entry), entry[:80]


@pytest.mark.security("5.16")
def test_the_lock_has_everything_that_is_asked_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    locked = {}
    for entry in entries(LOCKS[0]):
        found = _LOCKED.match(entry)
        assert found is not None
        locked[canonicalize_name(found["name"])] = Version(found["version"])
    for requirement in map(Requirement, wanted):
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: locked is {version}"


@pytest.mark.security("5.16")
def test_the_launcher_installs_with_hashes_or_without_dependencies() -> None:
    text = (REPOSITORY / "perseid").read_text()
    installs = [line.strip() for line in text.splitlines() if line.strip().startswith("install ")]
    assert len(installs) >= 3
    assert all(" --require-hashes " in i or " --no-deps -e " in i for i in installs), installs


@pytest.mark.security("5.9")
def test_nothing_unpickles() -> None:
    """Spark itself ships functions as pickles, between a driver and its own workers."""
    unsafe = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
    unsafe |= {"allow_pickle", "eval", "exec"}
    found = []
    for path in (p for root in ROOTS for p in (REPOSITORY / root / "perseid").rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            match node:
                case ast.Import():
                    names = [alias.name.partition(".")[0] for alias in node.names]
                case ast.ImportFrom():
                    names = [(node.module or "").partition(".")[0]]
                case ast.keyword(arg="allow_pickle"):
                    names = ["allow_pickle"]
                case ast.Name(id="eval" | "exec"):
                    names = [node.id]
            found += [(path.name, name) for name in names if name in unsafe]
    assert sorted(found) == [
        ("loading.py", "exec"),  # of the modules of a job, which are code
        ("progress.py", "pickle"),  # of files that this user alone can write
    ]


@pytest.mark.security("5.13")
def test_spark_opens_nothing_and_asks_no_other_host() -> None:
    assert session.SETTINGS["spark.ui.enabled"] == "false"
    ports = {"spark-master": 1, "spark-ui": 2}
    master, worker = parts.spark(Path("/java"), Path("/data"), ports, 1)
    assert "-Dspark.master.rest.enabled=false" in master.environment["SPARK_MASTER_OPTS"]
    for spec in (master, worker):
        assert spec.command[spec.command.index("--host") + 1] == "127.0.0.1"
        assert spec.environment["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.security("5.13")
@pytest.mark.parametrize(
    ("master", "authenticate", "warned"),
    [
        ("spark://spark.example:7077", "false", True),
        ("spark://spark.example:7077", "true", False),
        ("k8s://https://cluster", None, True),
        ("spark://127.0.0.1:7077", "false", False),
        ("local[2,4]", "false", False),
    ],
)
def test_a_spark_elsewhere_that_takes_code_from_everybody_is_reported(
    master: str, authenticate: str | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        session.warn_if_open(master, authenticate)
    assert ("spark.authenticate" in caplog.text) == warned


@pytest.mark.security("5.3", "5.13")
def test_only_an_operators_own_parameters_are_free_keys_of_a_job_file() -> None:
    """A mapping of any keys to any values could carry settings of a client or of Spark."""
    models = [m for m in vars(document).values() if _is_model(m)]
    assert len(models) > 10
    for model in models:
        assert model.model_config["extra"] == "forbid"
    free = {
        (model.__name__, name)
        for model in models
        for name, field in model.model_fields.items()
        if "dict[str, " in str(field.annotation)
    }
    assert free == {
        ("Source", "columns"),  # names and types, both from lists
        ("Operator", "inputs"), ("Operator", "with_"),
        ("Top", "sources"), ("Top", "operators"), ("Top", "sinks"),  # models of their own
    }  # fmt: skip


def _is_model(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, document.Document)


@pytest.mark.security("5.4")
def test_the_embedded_zookeeper_has_no_admin_server_and_few_commands() -> None:
    lines = parts.zookeeper_config(Path("/z"), 1).splitlines()
    assert {"admin.enableServer=false", "4lw.commands.whitelist=srvr,ruok"} <= set(lines)
    assert "clientPortAddress=127.0.0.1" in lines


@pytest.mark.security("5.5")
def test_the_embedded_redis_listens_only_here() -> None:
    command = parts.redis(Path("/r"), 1).command
    assert command[command.index("--bind") + 1] == "127.0.0.1"
