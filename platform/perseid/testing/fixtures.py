"""Fixtures for tests of jobs on a whole deployment.

In the conftest.py at the top of your tests:

    pytest_plugins = ["perseid.testing.fixtures"]

`perseid_stack` is a deployment with two coordinators and two workers (`Stack`); `kafka`,
`zookeeper` and `redis` are addresses of its parts. Each starts when a test requests it. With Docker
and the images they are containers by testcontainers, else the embedded cluster; the run's last
lines report which, and why. `--perseid-stack containers` or `embedded` requires one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perseid.embedded import Cluster
from perseid.testing import compose
from perseid.testing.running import RunningCluster
from perseid.testing.stack import Stack

_used: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("perseid").addoption(
        "--perseid-stack", choices=("auto", "containers", "embedded"), default="auto",
        help="what perseid_stack is: containers where they can be had",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "containers: needs perseid_stack in containers, and does not run without"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the containers' tests without containers, and reports that at the end."""
    needing = [item for item in items if item.get_closest_marker("containers") is not None]
    missing = _missing(config) if needing else None
    if missing is not None:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
        _used.append(f"{len(needing)} tests need containers and did not run: {missing}")


def _missing(config: pytest.Config) -> str | None:
    """Returns why there are no containers."""
    if config.getoption("--perseid-stack") == "embedded":
        return "--perseid-stack embedded"
    return compose.why_not()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _used:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def perseid_compose_files() -> tuple[str, ...]:
    """Compose files of your own in addition to perseid's, with whole paths; override it."""
    return ()


@pytest.fixture(scope="session")
def _containers(
    request: pytest.FixtureRequest, perseid_compose_files: tuple[str, ...]
) -> Iterator[compose.ComposeStack | None]:
    """The project; no container runs yet. None: the embedded cluster is used instead."""
    missing = _missing(request.config)
    if missing is not None:
        if request.config.getoption("--perseid-stack") == "containers":
            pytest.fail(f"--perseid-stack containers: {missing}")
        _used.append(f"perseid_stack fell back to the embedded cluster: {missing}")
        yield None
        return
    _used.append(f"perseid_stack: containers of {compose.image()}")
    stack = compose.ComposeStack(perseid_compose_files)
    yield stack
    stack.down()


@pytest.fixture(scope="session")
def perseid_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The embedded cluster of the fallback; override it to share one of your own."""
    cluster = Cluster(tmp_path_factory.mktemp("perseid") / "data", tied=True)
    cluster.up()
    yield cluster
    cluster.down(purge=True)


@pytest.fixture(scope="session")
def perseid_stack(
    request: pytest.FixtureRequest, _containers: compose.ComposeStack | None
) -> Stack:
    """A deployment to apply jobs to; one per session."""
    if _containers is None:
        return RunningCluster(request.getfixturevalue("perseid_embedded"))
    _containers.up(*compose.STACK)
    return _containers


def _address(
    request: pytest.FixtureRequest, containers: compose.ComposeStack | None, part: str
) -> str:
    """HOST:PORT of a part, of Redis a URL; its container is started first."""
    if containers is None:
        found: str = getattr(request.getfixturevalue("perseid_embedded").deployment, part)
        return found
    containers.up(part)
    at = f"localhost:{containers.ports[part]}"
    return f"redis://{at}/0" if part == "redis" else at


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, _containers: compose.ComposeStack | None) -> str:
    """Bootstrap servers of a Kafka without topics."""
    return _address(request, _containers, "kafka")


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest, _containers: compose.ComposeStack | None) -> str:
    """HOST:PORT of a ZooKeeper."""
    return _address(request, _containers, "zookeeper")


@pytest.fixture(scope="session")
def redis(request: pytest.FixtureRequest, _containers: compose.ComposeStack | None) -> str:
    """URL of a Redis."""
    return _address(request, _containers, "redis")
