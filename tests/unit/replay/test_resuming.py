"""An audit that is killed at any time resumes, and reports what one has that was never killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from perseid.errors import RefusedError
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.causes import Causes
from perseid.replay.findings import Audit
from perseid.replay.progress import FILE, SUBJECT, Progress, Unusable, dumped, loaded
from perseid.replay.watching import Watched
from support.audited_past import LAST, AuditedPast, Killed, write_job

OPTIONS = {"job": "shop", "--epochs": "1:6", "--rev": None}


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "is_due", True)


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditedPast:
    return AuditedPast(tmp_path, monkeypatch)


Run = Callable[[Auditor], Audit]


def run(past: AuditedPast, asked: Asked, how: Run, progress: Progress) -> Audit:
    with closing(progress):
        return how(past.auditor(asked, progress))


def untimed(found: Audit) -> Audit:
    """The report without times."""
    return replace(found, seconds=0.0, time_ms=0)


def deaths(monkeypatch: pytest.MonkeyPatch, number: int, *, before: bool) -> Iterator[int]:
    """Kills the process before or after the write of that number; yields how many there were."""
    write, writes = Progress._write, 0

    def counted(progress: Progress) -> None:
        nonlocal writes
        writes += 1
        if writes == number and before:
            raise Killed
        write(progress)
        if writes == number:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "_write", counted)
        yield writes
    yield writes


def audited(auditor: Auditor) -> Audit:
    return auditor.audit()


def interrupted_everywhere(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch, how: Run, *, both: bool = False,
    **others: Any,
) -> tuple[Audit, int]:  # fmt: skip
    """The report of a whole audit, after that of one killed at each write was the same.

    `both`: before and after each write, not by turns. Returns how many writes there were, too.
    """
    folder = past.folder / "whole"
    folder.mkdir()
    asked = past.asked(folder, **others)
    whole = run(past, asked, how, Progress.begun(folder, OPTIONS))
    for number in count(2):  # the first one is before the audit
        for before in (True, False) if both else (number % 2 == 0,):
            folder = past.folder / f"killed-{number}-{before}"
            folder.mkdir()
            asked = past.asked(folder, **others)
            died = deaths(monkeypatch, number, before=before)
            next(died)
            try:
                run(past, asked, how, Progress.begun(folder, OPTIONS))
            except Killed:
                next(died)
            else:
                return whole, number
            resumed = run(past, asked, how, Progress.resumed(folder))
            assert untimed(resumed) == untimed(whole), (number, before)
            shutil.rmtree(folder)
    raise AssertionError("an audit ends")


def test_an_equal_audit_with_sinks_and_states(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, writes = interrupted_everywhere(past, monkeypatch, audited, both=True)
    assert whole.verdict == "equal", whole.reasons
    assert whole.epochs == LAST
    assert [(one.epoch, one.partitions) for one in whole.states] == [(2, 2), (4, 2)]
    assert {one.topic: one.in_topic == one.windows > 0 for one in whole.compared} == {
        "out": True, "copies": True
    }  # fmt: skip
    assert writes > LAST


def test_another_revision_with_its_control_runs(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_job(past.folder / "other", "n + (n > 40)")
    whole, writes = interrupted_everywhere(
        past, monkeypatch, audited, both=True, revision=str(other)
    )
    assert whole.verdict == "diverged", whole.reasons
    assert sum(cause.records for cause in whole.causes) > 3
    assert len(whole.causes[0].samples) > 1
    assert writes > 2 * LAST


def test_a_state_that_differs(past: AuditedPast, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run had is compared with its second run after an interruption between both."""
    other = write_job(past.folder / "other")
    code = other / "sums.py"
    added = 'n=pa.array([n + 1 for n in batch["n"].to_pylist()]))'
    code.write_text(code.read_text().replace('n=batch["n"])', added))
    whole, _ = interrupted_everywhere(past, monkeypatch, audited, revision=str(other))
    assert whole.verdict == "diverged", whole.reasons
    assert {cause.state for cause in whole.causes} == {"", "total"}


def test_a_sample(past: AuditedPast, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_job(past.folder / "other", "n + (n > 40)")
    whole, _ = interrupted_everywhere(
        past, monkeypatch, lambda auditor: auditor.sample(Fraction(2, 3), 1), revision=str(other)
    )
    assert whole.verdict == "diverged"
    assert any("a sample of 2 of 3" in reason for reason in whole.reasons)


def test_a_bisection(past: AuditedPast, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_job(past.folder / "other", "n + (n > 90)")
    whole, _ = interrupted_everywhere(
        past, monkeypatch, Auditor.bisect, revision=str(other)
    )  # fmt: skip
    assert whole.bisection is not None
    assert len(whole.bisection.steps) >= 2


def test_a_sample_that_was_drawn_by_chance_stays(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process dies before the first part begins."""
    folder = past.folder / "killed"
    folder.mkdir()
    drawn: list[str] = []
    for kill in (True, False):
        died = deaths(monkeypatch, 3 if kill else 99, before=True)
        next(died)
        progress = Progress.begun(folder, OPTIONS) if kill else Progress.resumed(folder)
        with closing(progress), suppress(Killed):
            past.auditor(past.asked(folder), progress, drawn).sample(Fraction(1, 3), None)
        next(died)
        monkeypatch.setattr("perseid.replay.auditing.secrets.randbelow", lambda _: 5_000_000)
    seeds = {line.partition("with seed ")[2] for line in drawn if "a sample of" in line}
    assert len(seeds) == 1


def test_an_audit_that_is_killed_again_and_again_ends(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process keeps one epoch more."""
    folder = past.folder / "whole"
    folder.mkdir()
    whole = run(past, past.asked(folder), audited, Progress.begun(folder, OPTIONS))
    folder = past.folder / "killed"
    folder.mkdir()
    make: Callable[[], Progress] = lambda: Progress.begun(folder, OPTIONS)  # noqa: E731
    for attempt in range(3 * LAST):
        died = deaths(monkeypatch, 3 if attempt == 0 else 1, before=False)
        progress = make()
        next(died)
        try:
            found = run(past, past.asked(folder), audited, progress)
        except Killed:
            next(died)
            make = lambda: Progress.resumed(folder)  # noqa: E731
            continue
        break
    assert attempt >= LAST
    assert untimed(found) == untimed(whole)


def test_only_what_was_not_compared_runs_again(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where records of the compared epochs were removed meanwhile."""
    folder = past.folder / "killed"
    folder.mkdir()
    interrupt(past, monkeypatch, folder, writes=6)  # begun, subject, and four epochs
    fifth = next(t for t in past.tokens if t.epoch == 5).splits[0][0]
    past.topics.delete_records({("rows", 0): fifth.start})
    notes: list[str] = []
    with closing(Progress.resumed(folder)) as progress:
        auditor = past.auditor(past.asked(folder), progress, notes)
        ran: list[int] = []
        watch = Watched.ran

        def watched(one: Watched, order: Any, done: Any, context: Any) -> None:
            ran.append(order.token.epoch)
            watch(one, order, done, context)

        monkeypatch.setattr(Watched, "ran", watched)
        assert auditor.audit().verdict == "equal"
    assert ran == list(range(5, LAST + 1))
    assert "shop: resumes after epoch 4" in notes
    assert not (folder / "runs.1").exists()  # where the killed process may still write
    owners = [path.name[:11] for path in folder.glob("runs.2/run-1/state/u/1/main/*")]
    assert owners == ["g0000000002"]


def interrupt(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch, folder: Path, writes: int, **others: Any
) -> None:
    folder.mkdir(exist_ok=True)
    died = deaths(monkeypatch, writes, before=False)
    next(died)
    with pytest.raises(Killed):
        run(past, past.asked(folder, **others), audited, Progress.begun(folder, OPTIONS))
    next(died)


def test_state_logs_are_collected_up_to_what_is_kept_only(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkpoints after the last write, the audit is killed."""
    folder, ran, watch = past.folder / "killed", list[int](), Watched.ran
    folder.mkdir()

    def watched(one: Watched, order: Any, done: Any, context: Any) -> None:
        ran.append(order.token.epoch)
        if ran[-1] == LAST and len(ran) == LAST:
            raise Killed
        watch(one, order, done, context)

    monkeypatch.setattr(Watched, "ran", watched)
    monkeypatch.setattr(Progress, "is_due", property(lambda _: ran[-1] == 1))
    with pytest.raises(Killed):
        run(past, past.asked(folder), audited, Progress.begun(folder, OPTIONS))
    found = run(past, past.asked(folder), audited, Progress.resumed(folder))
    assert (found.verdict, found.epochs) == ("equal", LAST)
    assert ran == [*range(1, LAST + 1), *range(2, LAST + 1)]


# What is refused ------------------------------------------------------------------------------


def test_a_folder_with_an_interrupted_audit_is_not_begun_again(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=4)
    with pytest.raises(RefusedError, match=r"has an audit that was interrupted: resume it \(`pers"):
        Progress.begun(folder, OPTIONS)


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"has no audit that was interrupted \(no file progress"):
        Progress.resumed(tmp_path)


def test_other_options_are_refused_by_name(tmp_path: Path) -> None:
    with closing(Progress.begun(tmp_path, OPTIONS)) as progress:
        progress.refuse_other({"job": "shop", "--epochs": "1:6"})
        progress.refuse_other({"job": "shop", "--epochs": None})
        with pytest.raises(RefusedError, match="with --epochs '1:6', and --epochs '1:8' is given"):
            progress.refuse_other({"job": "shop", "--epochs": "1:8"})
        with pytest.raises(RefusedError, match="with job 'shop', and job 'orders' is given"):
            progress.refuse_other({"job": "orders"})
        with pytest.raises(RefusedError, match="with --rev not given, and --rev 'a' is given"):
            progress.refuse_other({"job": "shop", "--rev": "a"})


def test_two_processes_do_not_run_one_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseid.replay.progress.LOCK_S", 0.0)
    with closing(Progress.begun(tmp_path, OPTIONS)):
        with pytest.raises(RefusedError, match="another process runs an audit in this folder"):
            Progress.resumed(tmp_path)
    Progress.resumed(tmp_path).close()


def test_a_job_that_was_applied_again_is_refused(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=4)
    past.entry = replace(past.entry, uuid="v")
    with pytest.raises(RefusedError, match="shop was removed since its audit was interrupted"):
        run(past, past.asked(folder), audited, Progress.resumed(folder))


def test_a_revision_whose_files_have_changed_is_refused(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = past.folder / "killed", write_job(past.folder / "other", "n + 1")
    interrupt(past, monkeypatch, folder, writes=4, revision=str(other))
    code = other / "sums.py"
    code.write_text(code.read_text().replace("n + 1", "n + 2"))
    with pytest.raises(RefusedError, match="its files have changed since the audit was interrup"):
        run(past, past.asked(folder, revision=str(other)), audited, Progress.resumed(folder))


def test_another_environment_is_refused(past: AuditedPast, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=4)
    monkeypatch.setattr(
        "perseid.replay.programs.environment.of", lambda _: {"numpy": "1", "python": "2"}
    )
    with pytest.raises(RefusedError, match="the environment has changed since the audit of shop"):
        run(past, past.asked(folder), audited, Progress.resumed(folder))


@pytest.mark.parametrize("name", [FILE, f"{SUBJECT}0"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_file_is_refused_by_name(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=4)
    data = bytearray((folder / name).read_bytes())
    data[-7] ^= 1
    left = {"flipped": bytes(data), "cut": bytes(data[:-9]), "empty": b""}
    (folder / name).write_bytes(left[damage])
    with pytest.raises(Unusable, match=rf"{name}: .*cannot be resumed; delete .* and begin it"):
        run(past, past.asked(folder), audited, Progress.resumed(folder))


def test_a_half_written_file_does_not_count(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=6)
    (folder / f".{FILE}").write_bytes(b"perseid audit")
    found = run(past, past.asked(folder), audited, Progress.resumed(folder))
    assert (found.verdict, found.epochs) == ("equal", LAST)


def test_a_file_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    """A pickle runs code."""
    Progress.begun(tmp_path, OPTIONS).close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    os.chmod(tmp_path / FILE, 0o620)
    with pytest.raises(RefusedError, match="others than you may have written it"):
        Progress.resumed(tmp_path)


def test_a_file_of_another_build_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perseid.replay.progress.FORMAT", 0)
    Progress.begun(tmp_path, OPTIONS).close()
    monkeypatch.undo()
    with pytest.raises(Unusable, match=r"expected a file of this build \('perseid audit 1, "):
        Progress.resumed(tmp_path)


def test_state_logs_that_lost_epochs_are_refused(
    past: AuditedPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power failure leaves them: they end before what was compared."""
    folder = past.folder / "killed"
    interrupt(past, monkeypatch, folder, writes=7)
    deltas = sorted(folder.glob("runs.1/run-1/state/**/sums-0/e-*.delta"))
    assert len(deltas) > 1
    deltas[-1].unlink()
    with pytest.raises(Unusable, match=r"end with epoch 4, and it was compared up to epoch 5"):
        run(past, past.asked(folder), audited, Progress.resumed(folder))


def test_what_cannot_be_kept_fails_the_first_write() -> None:
    """Such as a client that has no name among the ports."""
    lock, data = Lock(), Causes()
    with pytest.raises(TypeError, match="cannot pickle"):
        dumped({"client": lock})
    found = loaded(dumped({"client": lock, "data": data}, {"lock": lock}), {"lock": "another"})
    assert found["client"] == "another"
    assert isinstance(found["data"], Causes)
