"""`python -m perseid.replay`: the process of an audit that a worker runs, in the worker's folder.

Writes its progress there, then the report, with and without values, and its result last. Exits with
0 once the result is written, whatever the verdict is.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from perseid import logs
from perseid.clocks import SystemClock
from perseid.errors import PerseidError, RefusedError, UsageError
from perseid.errors.texts import named
from perseid.records import Deployment
from perseid.records.audits import (
    PROGRESS,
    REPORT,
    RESULT,
    TEXT_MAX,
    VALUES,
    AuditProgress,
    AuditResult,
)
from perseid.registry import Registry
from perseid.replay import reports, request, tolerances
from perseid.replay.auditing import Asked, Auditor
from perseid.replay.findings import Audit
from perseid.replay.progress import FILE, Progress
from perseid.replay.running import NICE
from perseid.topics.admin import TopicAdmin
from perseid.worker.process.surroundings import settle

log = logging.getLogger("perseid.replay")

PARENT_S = 0.5  # between two looks whether the worker is still there


def main(given: list[str] | None = None) -> None:
    options = _parser().parse_args(given)
    folder = Path(options.folder)
    _yield_to_jobs()
    threading.Thread(target=_end_with, args=(options.parent,), daemon=True).start()
    os.environ.setdefault(logs.LEVEL, "WARNING")  # its progress is in the audit's entry
    logs.set_up("replay")
    try:
        found = _audited(options, folder)
    except (RefusedError, UsageError) as error:
        result = AuditResult("refused", str(error)[:TEXT_MAX])
    except PerseidError as error:
        log.error("the audit failed", exc_info=error)
        result = AuditResult("failed", named(error)[:TEXT_MAX])
    else:
        _write(folder / REPORT, reports.as_json(reports.without_values(found)).encode())
        _write(folder / VALUES, reports.as_json(found).encode())
        result = result_of(found)
    _write(folder / RESULT, orjson.dumps(asdict(result)))


def result_of(found: Audit) -> AuditResult:
    return AuditResult(
        "done", (found.reasons or ("",))[0][:TEXT_MAX], found.verdict, found.first_epoch,
        found.last_epoch, found.epochs, found.records_in,
    )  # fmt: skip


def _audited(options: argparse.Namespace, folder: Path) -> Audit:
    wanted = request.parsed(
        epochs=options.epochs, from_=options.from_, to=options.to, last=options.last,
        offsets=options.offsets,
    )  # fmt: skip
    deployment = Deployment.load(Path(options.deployment))
    asked = Asked(
        options.job, wanted, folder, options.cores,
        tolerances=tolerances.of_options(options.tolerance),
    )  # fmt: skip
    with closing(Registry.connect(deployment)) as registry:
        topics = TopicAdmin(deployment.brokers())

        def audit(progress: Progress) -> Audit:
            return Auditor(
                deployment, registry, topics, SystemClock(), asked, _noting(folder), None, progress
            ).audit()

        return _resumed(folder, _given(options), audit)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """What makes two audits the same."""
    others = {"deployment", "folder", "parent", "cores"}
    return {name: value for name, value in vars(options).items() if name not in others}


def _resumed(folder: Path, given: dict[str, Any], audit: Callable[[Progress], Audit]) -> Audit:
    """Resumes what an earlier process of this worker has left; begins where it cannot."""
    left = (folder / FILE).exists()
    if left:
        try:
            with closing(Progress.resumed(folder)) as progress:
                progress.refuse_other(given)
                return audit(progress)
        except RefusedError as error:
            log.warning("the audit begins again: %s", error)
    with closing(Progress.begun(folder, given, again=left)) as progress:
        return audit(progress)


def _noting(folder: Path) -> Any:
    def note(found: str | AuditProgress) -> None:
        log.info("%s", found)
        if isinstance(found, AuditProgress):
            _write(folder / PROGRESS, orjson.dumps(asdict(found)))

    return note


def _write(path: Path, data: bytes) -> None:
    """Replaces the file, so that its reader finds it whole."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(data)
    fresh.replace(path)


def _yield_to_jobs() -> None:
    os.nice(NICE)
    with suppress(OSError):  # a kernel without memory then ends this process, and no worker
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with(parent: int) -> None:
    """Ends this process when the worker that started it is gone."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    """The options of `perseid replay` as `perseid.jobs.operations.audits.arguments` makes them."""
    parser = argparse.ArgumentParser(prog="perseid.replay", description=__doc__, allow_abbrev=False)
    for name in ("deployment", "job", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parent", type=int, required=True)
    for name in ("epochs", "to", "last", "offsets"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--tolerance", action="append", default=[])
    parser.add_argument("--cores", type=int, default=1)
    return parser


if __name__ == "__main__":
    settle()
    main()
    # Threads of clients may still wait for what nothing needs any more.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
