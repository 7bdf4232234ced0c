"""An audit whose process is killed by SIGKILL, twice, resumes and reports the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.replay.progress import FILE, Progress, Run
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from support.audited import AUDIT_S, LOAD, audit, found, stop
from support.ranks import RankedJob

MAIN = "from perseid.cli.main import main; main()"  # as the `perseid` script
RATE = LOAD // 20  # rows/s, so that an audit of 3 * LOAD takes a minute


@pytest.mark.drawn
def test_an_audit_that_is_killed_resumes(
    running: RunningCluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job, folder = RankedJob(running, tmp_path, "cutoff"), tmp_path_factory.mktemp("audit")
    job.apply(spread=1)
    running.keep_tokens(job.name)
    for _ in range(3):
        job.feed(LOAD)
    job.judge()
    stop(running, job.name)
    whole = found(audit(running, job, "--epochs", "1:"), 0)

    first = killed(running, tmp_path_factory, folder, "--epochs", "1:", "--folder", str(folder))
    second = killed(running, tmp_path_factory, folder, "--resume", str(folder), above=first.epoch)
    assert second.epochs > first.epochs > 0
    refused = audit(running, job, "--epochs", "1:2", "--resume", str(folder))
    assert refused.code == 3, refused.stderr
    ended = audit(running, job, "--resume", str(folder))
    assert f"cutoff: resumes after epoch {second.epoch}" in ended.stderr
    resumed = found(ended, 0)
    assert resumed["verdict"] == "equal"
    for name in ("seconds", "time_ms"):
        assert resumed.pop(name) > 0 < whole.pop(name)
    assert resumed == whole
    assert not (folder / FILE).exists()
    running.do("jobs", "remove", job.name, "--purge")


def killed(
    running: RunningCluster, folders: pytest.TempPathFactory, folder: Path, *arguments: str,
    above: int = 0,
) -> Run:  # fmt: skip
    """Runs an audit, and kills its process once it keeps an epoch above that; what it kept."""

    def kept() -> Run | None:
        if not (folder / FILE).exists():
            return None
        copy = folders.mktemp("copy")  # its process has the folder's lock
        shutil.copy2(folder / FILE, copy)
        progress = Progress.resumed(copy)
        progress.close()
        run = progress.run(1)
        return run if run is not None and run.epoch > above else None

    command = [sys.executable, "-c", MAIN, "replay", "cutoff", *arguments, "--rate", str(RATE)]
    with subprocess.Popen([*command, "--data", str(running.cluster.data)]) as process:
        try:
            until(lambda: kept() is not None, AUDIT_S, f"an epoch above {above} that is kept")
            assert process.poll() is None, "the audit ended before it was killed"
        finally:
            process.kill()
    run = kept()
    assert run is not None and not run.ended
    return run
