"""Performs actions: fast ones at once, slow ones in a few threads.

Each action has a crash point `coordinator.<action>` before it, so that a test can end the process
between any two writes. A failure is one of three:

- A write failed or its outcome is unknown: repeating it is harmless, so the job is read again
  (ActionFailed).
- An append got no answer: the record may still arrive, and then two records would claim one place
  in the chain. Only a higher coordinator epoch settles that, so the process ends.
- The fence is lost: the process ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from perseid import logs
from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator.loading import HigherClaim, Loader
from perseid.coordinator.loading_pool import LoadingPool
from perseid.coordinator.log_trimming import trim
from perseid.errors import (
    FencedError,
    PermanentError,
    PerseidError,
    RetryableError,
    TransientAnswer,
    UnexpectedError,
)
from perseid.errors.texts import kind_of
from perseid.errors.untyped import typed
from perseid.records import CheckpointPointer, crashpoints
from perseid.registry import FencedRegistry
from perseid.state.durability import checkpoint
from perseid.state.durability.store import Store
from perseid.topics import codec, names
from perseid.topics.log import LogWriter
from perseid.topics.records import TokenRecord

_log = logging.getLogger(__name__)

WRITING_THREADS = 3  # of manifests: all wait for one store
LOADING = (act.LoadJob, act.LoadProgram)  # each may wait for what no other job needs
TIDYING = (act.DeleteCheckpoints, act.TrimLogs)  # no job waits for it: one after the other

Emit = Callable[[ev.Event], None]


def _typed(error: Exception, job: str) -> PerseidError:
    if not isinstance(error, PerseidError):
        _log.exception("a defect in loading a job", extra={"job": job})
    return typed(error, f"loading job {job}")


class StepDown(Exception):
    """This process must stop leading. `above`: it may lead again with a higher epoch than this."""

    def __init__(self, reason: str, above: int | None = None) -> None:
        self.reason, self.above = reason, above
        super().__init__(reason, above)


class Performer:
    """Performs one leader's actions. `emit` takes the outcomes of slow ones, from any thread."""

    def __init__(
        self,
        fenced: FencedRegistry,
        writer: LogWriter,
        store: Store,
        loader: Callable[[], Loader],
        emit: Emit,
        step_down: Callable[[StepDown], None],
    ) -> None:
        """`loader` returns the calling thread's loader."""
        self._fenced, self._writer, self._store = fenced, writer, store
        self._loader, self._emit, self._step_down = loader, emit, step_down
        self._loading = LoadingPool()
        self._writing = ThreadPoolExecutor(WRITING_THREADS, thread_name_prefix="writing")
        self._tidying = ThreadPoolExecutor(1, thread_name_prefix="tidying")

    def close(self) -> None:
        self._loading.close()
        for pool in (self._writing, self._tidying):
            pool.shutdown(wait=False, cancel_futures=True)

    def perform(self, action: act.Action) -> ev.Event | None:
        """The outcome, if the action has one and it is known already. Raises StepDown."""
        crashpoints.reach(f"coordinator.{point_of(action)}")
        try:
            return self._perform(action)
        except FencedError as error:
            raise StepDown(str(error)) from error
        except PerseidError as error:
            _log.warning("%s: %s", type(action).__name__, error, extra=fields_of(action))
            return ev.ActionFailed(action.job, type(action).__name__, str(error))

    def _perform(self, action: act.Action) -> ev.Event | None:
        outcome: ev.Event | None = None
        match action:
            case act.LoadJob():
                self._later(self._load, action)
            case act.LoadProgram():
                self._later(self._load_program, action)
            case act.WriteManifest():
                self._later(self._write_manifest, action)
            case act.DeleteCheckpoints():
                self._later(self._delete_checkpoints, action)
            case act.TrimLogs():
                self._later(self._trim_logs, action)
            case act.AppendBegin(job=job, begin=begin):
                outcome = ev.BeginAppended(job, begin, self._append(job, begin))
            case act.AppendRewind(job=job, rewind=rewind):
                outcome = ev.RewindAppended(job, rewind, self._append(job, rewind))
            case act.AppendToken(job=job, token=token):
                outcome = ev.TokenAppended(job, token, self._append(job, token))
            case _:
                self._put(action)
        return outcome

    def _put(self, action: act.Action) -> None:
        match action:
            case act.PutPlan(plan=plan):
                owners = ", ".join(str(own.owner) for own in plan.assignments)
                _log.info("plan: owner %s, revision %s: %s", owners, plan.revision,
                          plan.reason, extra=fields_of(action))  # fmt: skip
                self._fenced.put_plan(plan)
            case act.PutStatus(job=job, status=status):
                self._fenced.put_status(job, status)
            case act.PutFailures(job=job, failures=failures):
                self._fenced.put_failures(job, failures)
            case act.PutPointers(job=job, pointers=pointers):
                self._fenced.put_pointers(job, pointers)
            case act.RemoveJob(job=job, job_uuid=job_uuid):
                self._fenced.remove_job(job, job_uuid)

    def _append(self, job: str, record: TokenRecord) -> int:
        try:
            return self._writer.append(names.tokens(job), 0, codec.encode(record))
        except TransientAnswer:
            raise  # the record is not in the log, and the client will not send it again
        except RetryableError as error:
            text = f"an append to the token log of {job} has an unknown outcome: {error}"
            raise StepDown(text) from error

    # -- slow ------------------------------------------------------------------------------------

    def _later(self, task: Callable[..., None], action: act.Action) -> None:
        if isinstance(action, LOADING):
            self._loading.submit(action.job, partial(self._guarded, task, action))
        else:
            pool = self._tidying if isinstance(action, TIDYING) else self._writing
            pool.submit(self._guarded, task, action)

    def _guarded(self, task: Callable[..., None], action: act.Action) -> None:
        try:
            with logs.about(**fields_of(action)):
                task(action)
        except FencedError as error:
            self._step_down(StepDown(str(error)))
        except HigherClaim as higher:
            self._step_down(StepDown("the token log has a higher claim", above=higher.epoch))
        except Exception:
            _log.exception("a defect in %s", type(action).__name__, extra=fields_of(action))
            self._step_down(StepDown(f"a defect in {type(action).__name__}"))

    def _load(self, action: act.LoadJob) -> None:
        try:
            self._emit(self._loader().load(action.entry))
        except (FencedError, HigherClaim):
            raise
        except Exception as error:  # of one job: the others continue
            found = _typed(error, action.job)
            _log.warning("the job cannot be loaded: %s", found)
            permanent, kind = isinstance(found, PermanentError), kind_of(found)
            self._emit(ev.JobLoadFailed(action.job, action.entry, kind, str(found), permanent))

    def _load_program(self, action: act.LoadProgram) -> None:
        try:
            self._emit(self._loader().program(action))
        except FencedError:
            raise
        except Exception as error:
            found = _typed(error, action.job)
            permanent = isinstance(found, PermanentError | UnexpectedError)  # needs another apply
            kind = kind_of(found)
            self._emit(ev.ProgramFailed(action.job, action.archive, kind, str(found), permanent))

    def _write_manifest(self, action: act.WriteManifest) -> None:
        parts = tuple(
            checkpoint.Part(p.operator, p.partition, p.path, p.bytes, p.crc, p.chain)
            for p in action.parts
        )
        manifest = checkpoint.Manifest(
            action.job, action.job_uuid, action.epoch, action.generation, action.layout,
            action.revision, action.token_offset, action.time_ms, parts,
        )  # fmt: skip
        try:
            path, crc = checkpoint.write_manifest(self._store, manifest)
        except PerseidError as error:
            text = f"its manifest could not be written: {error}"
            self._emit(ev.ManifestFailed(action.job, action.job_uuid, action.epoch, text))
            return
        pointer = CheckpointPointer(
            action.epoch, action.generation, action.layout, action.revision, action.token_offset,
            path, crc, sum(p.bytes for p in action.parts), action.time_ms, manifest.needs[0],
            manifest.needs,
        )  # fmt: skip
        self._emit(ev.ManifestWritten(action.job, action.job_uuid, pointer))

    def _delete_checkpoints(self, action: act.DeleteCheckpoints) -> None:
        try:
            live = [checkpoint.read_manifest(self._store, p.manifest, p.crc) for p in action.live]
            checkpoint.collect(self._store, action.job, action.job_uuid, live, action.spared)
        except PerseidError as error:
            _log.warning("old checkpoints stay: %s", error)

    def _trim_logs(self, action: act.TrimLogs) -> None:
        try:
            before = trim(self._loader().clients, action)
        except PerseidError as error:
            _log.warning("token log and ledger are not trimmed now: %s", error)
            self._emit(ev.LogsTrimmed(action.job, str(error)))
            return
        _log.info("trimmed: %d partitions of token log and ledger", len(before))
        self._emit(ev.LogsTrimmed(action.job))
        try:
            gone = self._loader().drop_buffers(action)
        except PerseidError as error:
            _log.warning("buffer topics that nothing needs stay for now: %s", error)
            return
        if gone:
            _log.info("buffer topics that nothing needs are deleted: %s", ", ".join(gone))


def point_of(action: act.Action) -> str:
    """The crash point's name: `put-plan` for PutPlan."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(action).__name__).lower()


def fields_of(action: act.Action) -> dict[str, object]:
    """The fields of a log entry about an action."""
    found: dict[str, object] = {"job": action.job}
    match action:
        case act.PutPlan(plan=plan):
            found["generation"] = plan.generation
        case act.AppendToken(token=token):
            found["epoch"] = token.epoch
        case act.WriteManifest(epoch=epoch, generation=generation):
            found |= {"epoch": epoch, "generation": generation}
    return found
