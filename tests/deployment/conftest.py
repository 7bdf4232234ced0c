"""The deployment ring: one deployment, one job on it, and what the tests do to both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseid.testing.compose import ComposeStack
from perseid.testing.stack import Stack, example
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until
from support import git_server
from support.git_server import Origin

JOB, SOURCE, SINK = "deployed", "deployed-lines", "deployed-counts"
WRITTEN_S = 180


@pytest.fixture(scope="session")
def perseid_compose_files() -> tuple[str, ...]:
    return tuple(str(Path(__file__).with_name(n)) for n in ("small-store.yaml", "git.yaml"))


class Deployed:
    """The job and its input; every test judges all that was ever sent."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.sent, self._seed = stack, 0, 0

    @contextmanager
    def fed(self, records: int, rate: float) -> Iterator[None]:
        """Lines are sent meanwhile; all of them are after it."""
        self._seed += 1
        feeding = subprocess.Popen([
            sys.executable, "-m", "perseid.testing.generator", "--kafka", self.stack.kafka,
            "--topic", SOURCE, "--records", str(records), "--rate", str(rate),
            "--seed", str(self._seed),
        ], stdout=subprocess.DEVNULL)  # fmt: skip
        try:
            yield
            until(lambda: feeding.poll() is not None, WRITTEN_S, "the input to be written")
            assert feeding.returncode == 0
        finally:
            feeding.kill()
            feeding.wait()
        self.sent += records

    def at_work(self, epochs: int = 3) -> None:
        """Returns when some more epochs are committed."""
        committed = self.stack.job(JOB).get("committed_epoch") or 0
        self.stack.wait_job(
            JOB, lambda j: (j["committed_epoch"] or 0) > committed + epochs, "at work"
        )

    def worker(self) -> str:
        """Who runs the job."""
        return self.stack.worker_of(JOB)

    def wait_another(self, than: str) -> None:
        until(lambda: self.worker() != than, 120, f"another worker than {than} to run the job")

    def checkpoint(self) -> int:
        """The epoch of the newest complete one."""
        found: int = (self.stack.job(JOB)["checkpoint"] or {"epoch": 0})["epoch"]
        return found

    def judge(self) -> None:
        """Nothing lost, nothing doubled, by who shares no code with the engine."""
        self.stack.wait_caught_up(JOB, timeout_s=240)
        verdict = verify_wordcount(self.stack.kafka, SOURCE, SINK)
        assert verdict.ok, verdict
        assert verdict.records == self.sent


@pytest.fixture(scope="session")
def deployed(perseid_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    perseid_stack.topic(SOURCE)
    folder = example(tmp_path_factory.mktemp("job") / JOB, "wordcount", {
        "name: wordcount": f"name: {JOB}", "topic: lines": f"topic: {SOURCE}",
        "topic: word-counts": f"topic: {SINK}", 'period: "30s"': 'period: "5s"',
    })  # fmt: skip
    if isinstance(perseid_stack, ComposeStack):
        follow(perseid_stack, folder, tmp_path_factory.mktemp("git"))
    else:
        perseid_stack.apply(folder)
    return Deployed(perseid_stack)


def follow(stack: ComposeStack, folder: Path, served: Path) -> None:
    """The job comes from a git repository, which a container serves by `git http-backend`."""
    served.chmod(0o755)  # the server is somebody else
    origin = Origin(served / "jobs.git")
    files: dict[str, bytes | str] = {
        f"{JOB}/{path.name}": path.read_bytes() for path in folder.glob("*.*")
    }
    origin.commit(origin.files(files))
    shutil.copy(git_server.__file__, served)  # the image has no tests
    stack.change(PERSEID_TEST_GIT=str(served))
    stack.up("git", "follower", healthy=False)


@pytest.fixture
def containers(perseid_stack: Stack) -> ComposeStack:
    """Of tests with the marker `containers`."""
    assert isinstance(perseid_stack, ComposeStack)
    return perseid_stack
