"""State logs of removed jobs go, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.errors import RetryableError
from perseid.records import MAIN, PAIR, Deployment
from perseid.state.durability.files import LocalFiles
from perseid.worker.removed_jobs import FORGET_S, RemovedJobs

COPIES = (MAIN, PAIR, "main-0", "pair-0")  # of a job that is one fragment, and of another one


def deployment(state: Path, zookeeper: str = "zk:2181") -> Deployment:
    return Deployment(
        kafka="k:9092", zookeeper=zookeeper, redis="redis://r:6379/0", store=str(state / "store"),
        state=str(state), logs=str(state / "logs"),
    )  # fmt: skip


def begun(jobs: RemovedJobs, state: Path, *uuids: str) -> None:
    for job_uuid in uuids:
        jobs.begins(job_uuid)
        for copy in COPIES:
            log = state / job_uuid / "1" / copy / "g0000000001-w1-x" / "counts-0"
            log.mkdir(parents=True)
            (log / "delta").write_bytes(b"rows")


def looked(jobs: RemovedJobs, known: set[str], now_s: float) -> list[str]:
    due = jobs.due(known, now_s)
    jobs.collect(due)
    return due


def test_logs_of_a_removed_job_go_when_it_has_been_unknown_for_long(tmp_path: Path) -> None:
    jobs = RemovedJobs(deployment(tmp_path))
    begun(jobs, tmp_path, "a", "b")
    assert looked(jobs, {"a", "b"}, 0.0) == []
    assert looked(jobs, {"a"}, 100.0) == []
    assert looked(jobs, {"a"}, 100.0 + FORGET_S - 1) == []
    assert (tmp_path / "b").exists()
    assert looked(jobs, {"a"}, 100.0 + FORGET_S) == ["b"]
    assert [copy for copy in COPIES if (tmp_path / "a" / "1" / copy).is_dir()] == [*COPIES]
    assert not (tmp_path / "b").exists()
    assert looked(jobs, {"a"}, 1000.0) == []


def test_a_job_that_one_look_missed_stays(tmp_path: Path) -> None:
    jobs = RemovedJobs(deployment(tmp_path))
    begun(jobs, tmp_path, "a")
    assert looked(jobs, set(), 0.0) == []
    assert looked(jobs, {"a"}, FORGET_S) == []
    assert looked(jobs, set(), FORGET_S + 1) == []
    assert (tmp_path / "a").exists()


def test_the_next_worker_deletes_what_was_removed_while_none_ran(tmp_path: Path) -> None:
    begun(RemovedJobs(deployment(tmp_path)), tmp_path, "a")
    jobs = RemovedJobs(deployment(tmp_path))
    assert looked(jobs, set(), 5.0) == []
    assert looked(jobs, set(), 5.0 + FORGET_S) == ["a"]
    assert not (tmp_path / "a").exists()


def test_jobs_of_another_deployment_and_other_folders_stay(tmp_path: Path) -> None:
    begun(RemovedJobs(deployment(tmp_path, "other:2181")), tmp_path, "theirs")
    (tmp_path / "archives").mkdir()
    jobs = RemovedJobs(deployment(tmp_path))
    begun(jobs, tmp_path, "ours")
    assert looked(jobs, set(), 0.0) == []
    assert looked(jobs, set(), FORGET_S) == ["ours"]
    assert (tmp_path / "theirs" / "1").is_dir()
    assert (tmp_path / "archives").is_dir()


class Stubborn(LocalFiles):
    """Deletes nothing while it is stuck."""

    stuck = True

    def delete(self, path: str) -> None:
        if self.stuck:
            raise RetryableError(f"cannot delete {path}")
        super().delete(path)


def test_what_cannot_be_deleted_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Stubborn()
    jobs = RemovedJobs(deployment(tmp_path), files)
    begun(jobs, tmp_path, "a")
    looked(jobs, set(), 0.0)
    assert looked(jobs, set(), FORGET_S) == ["a"]
    assert "not deleted now: cannot delete" in caplog.text
    files.stuck = False
    looked(jobs, set(), FORGET_S + 1)
    assert looked(jobs, set(), 2 * FORGET_S + 1) == ["a"]
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_written_is_logged_and_stops_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "jobs").write_text("in the way")
    RemovedJobs(deployment(tmp_path)).begins("a")
    assert "what job a leaves here will stay" in caplog.text


def test_a_folder_that_cannot_be_read_is_logged_and_stops_no_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = RemovedJobs(deployment(tmp_path))
    (tmp_path / "jobs").symlink_to(tmp_path / "jobs")
    assert jobs.due(set(), 0.0) == []
    assert "not looked for now: cannot list" in caplog.text
