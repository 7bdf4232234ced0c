"""The decision core: `decide(state, event, now)` returns the next state and the actions, in order.

Pure: no client, no clock, no randomness. An event first changes the known facts (`_observe`); then
every affected job is advanced (`_advance`), which looks only at the state. So the order of two
events does not matter, and a new leader that has loaded the same facts decides the same. Contract
of the caller:

1. Perform the actions of a job in the order of the calls and within each, and feed in outcomes.
2. When an action of a job fails, drop what was decided about that job since, and feed in
   ActionFailed. So no decision rests on an action that failed.
3. When the fence is lost, or the outcome of an append is unknown, end the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perseid.coordinator import (
    buffer_bound,
    checkpoints,
    corrections,
    epoch_timeout,
    failing,
    gating,
    issue,
    owning,
    progress,
    rebalancing,
    sink_topics,
    sources,
    stalled,
    statuses,
    switching,
    token_time,
    trimming,
    watermark,
)
from perseid.coordinator import events as ev
from perseid.coordinator.actions import (
    Action,
    AppendBegin,
    AppendRewind,
    AppendToken,
    LoadJob,
    PutFailures,
    RemoveJob,
)
from perseid.coordinator.adoption import adopted
from perseid.coordinator.lifecycle import OWNED, Phase
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.token_time import Now
from perseid.errors import (
    PermanentError,
    PerseidError,
    TransientAnswer,
    settling,
)
from perseid.errors.headline import headline
from perseid.errors.texts import EVENT_MAX, cut
from perseid.records import JobEntry
from perseid.topics.records import Begin

LOAD_RETRY_S = 0.5  # between attempts to read a job whose Kafka or store does not answer
LOAD_REPORTED_S = 60.0  # what a load takes at most, with clients that give up after 20 s
_APPENDS = {kind.__name__ for kind in (AppendBegin, AppendRewind, AppendToken)}
_OUTCOMES = (ev.BeginAppended, ev.RewindAppended, ev.TokenAppended)
_ENDED = (Phase.STOPPED, Phase.FAILED)

Step = tuple[JobState, list[Action]]


def decide(state: ClusterState, event: ev.Event, now: Now) -> tuple[ClusterState, list[Action]]:
    """The state after `event`, and the actions to perform now."""
    before = state.time
    state = replace(state, time=token_time.passed(before, now.wall_ms, now))
    now = replace(now, time_ms=state.time.ms)
    state, names, actions = _observe(state, event, now)
    if rebalancing.is_due(before, now):
        state = rebalancing.look(state, now)
    for name in names:
        job = state.jobs.get(name)
        if job is not None:
            job, more = _advance(state, job, now)
            state = state.with_job(job)
            actions += more
    return state, actions


def _observe(
    state: ClusterState, event: ev.Event, now: Now
) -> tuple[ClusterState, list[str], list[Action]]:
    """The state with the facts of `event`, the jobs to advance, and actions that it requires."""
    match event:
        case ev.RegistrySeen():
            state, actions = _registry_seen(state, event, now)
            return state, list(state.jobs), actions
        case ev.EndsSeen():
            return _ends_seen(state, event, now)
        case ev.TopicsSeen():
            return _topics_seen(state, event, now)
        case ev.Tick():
            return state, list(state.jobs), []
        case job_event:
            job = state.jobs.get(job_event.job)
            if job is None:  # removed in the meantime
                return state, [], []
            job, actions = _job_event(state, job, job_event, now)
            return state.with_job(job), [job.name], actions


def _job_event(state: ClusterState, job: JobState, event: ev.JobEvent, now: Now) -> Step:
    actions: list[Action] = []
    match event:
        case ev.JobLoaded():
            job, actions = _loaded(state, job, event, now)
        case ev.JobLoadFailed():
            job, actions = _load_failed(job, event, now)
        case ev.ProgramLoaded(program=program, starts=starts):
            job = failing.answered(job, "program")
            job = replace(job, switch=job.switch.loaded(program, starts))
        case ev.ProgramFailed():
            job = _program_failed(job, event, now)
        case ev.ProgressLost(text=text):
            job = replace(_lost_track(job, now, text), unheard=text)
        case ev.ActionFailed(action=action, text=text):
            job, actions = _action_failed(job, action, text, now)
        case _ if job.phase is not Phase.LOADING:  # otherwise the job will be read again anyway
            job, actions = _loaded_job_event(job, event, now)
    return job, actions


def _loaded_job_event(job: JobState, event: ev.JobEvent, now: Now) -> Step:
    """A job's event; what comes while an append is under way waits for the append's outcome.

    Workers read the log for themselves: they may report on a token before its append is answered.
    """
    if not isinstance(event, _OUTCOMES):
        later = _deferred(job, event)
        return (later, []) if later is not None else _reported(job, event, now)
    deferred, actions = job.chain.deferred, list[Action]()
    job = _appended(job, event, now)
    job = replace(job, chain=job.chain.without_deferred())
    for one in deferred:
        if job.phase is not Phase.LOADING:
            job, more = _reported(job, one, now)
            actions += more
    return job, actions


def _deferred(job: JobState, event: ev.JobEvent) -> JobState | None:
    """The job with `event` for later, while an append is under way."""
    return replace(job, chain=job.chain.defers(event)) if job.chain.appending else None


def _appended(job: JobState, event: ev.JobEvent, now: Now) -> JobState:
    match event:
        case ev.BeginAppended(begin=begin, offset=offset):
            chain = job.chain.begins(begin.epoch, offset)
            job = replace(job, chain=chain, ownership=job.ownership.begun(begin.epoch))
        case ev.RewindAppended(rewind=rewind):
            job = corrections.rewound(job, rewind, now)
        case ev.TokenAppended(token=token, offset=offset):
            job = issue.appended(job, token, offset, now)
    return job


def _reported(job: JobState, event: ev.JobEvent, now: Now) -> Step:
    actions: list[Action] = []
    match event:
        case ev.ProgressSeen(record=record):
            job, actions = progress.seen(job, record, now)
        case ev.ManifestWritten(job_uuid=uuid, pointer=pointer) if uuid == job.entry.uuid:
            job, actions = checkpoints.written(job, pointer, now)
        case ev.ManifestFailed(epoch=epoch, text=text):
            collecting = job.checkpointing.collecting
            if collecting is not None and collecting.epoch == epoch:
                job = checkpoints.not_stored(job, text)
        case ev.LogsTrimmed(error=error):
            job = trimming.with_result(job, error)
    return job, actions


def _advance(state: ClusterState, job: JobState, now: Now) -> Step:
    """Takes every step that is possible now."""
    if job.entry.desired == "removed":
        return job, [RemoveJob(job.name, job.entry.uuid)]
    if job.phase is Phase.LOADING:
        if job.load_at_s is None:
            return _unanswered(job, now), []
        if now.monotonic_s < job.load_at_s:
            return job, []
        job = replace(job, load_at_s=None, loading_s=now.monotonic_s)
        return job, [LoadJob(job.name, job.entry)]
    actions: list[Action] = []
    if job.phase not in _ENDED and not job.chain.appending:
        job, actions = _drive(state, _with_clock_events(job, now), now)
    elif job.phase in _ENDED and failing.has_owner(job):
        job, actions = failing.disown(job, job.phase.value)  # a leader died between two writes
    job, status = statuses.write(job, now)
    return job, actions + status


def _with_clock_events(job: JobState, now: Now) -> JobState:
    """Adds an event when the wall clock jumps away from token time or agrees with it again."""
    ahead_ms = now.wall_ms - token_time.passed(job.chain.time, now.time_ms, now).ms
    if abs(ahead_ms - job.chain.apart_ms) < token_time.JUMP_MS:
        return job
    job = job.with_events(token_time.apart_text(ahead_ms))
    return replace(job, chain=job.chain.clock_is_ahead(ahead_ms))


def _drive(state: ClusterState, job: JobState, now: Now) -> Step:
    if not job.chain.begun:
        return _begin(state, job, now)
    actions: list[Action] = []
    if job.switch.rewind_to is not None:
        if job.wants_stop:
            return switching.finish_stop(replace(job, switch=job.switch.rewind_over()), now)
        job, actions = corrections.correct(job, state.epoch, now)
        if job.switch.rewind_to is not None or job.phase in _ENDED:
            return job, actions
    job, more = owning.own(state, job, now)
    actions += more
    if job.phase not in OWNED:
        return job, actions
    job, more = gating.step(state, job, now)
    actions += more
    if epoch_timeout.is_up(job):
        job, more = epoch_timeout.fail(job, now)
        return job, actions + more
    job, more = _checkpoint(checkpoints.expired(job, now))
    actions += more
    job, more = _goal(state, job, now)
    return job, actions + more


def _begin(state: ClusterState, job: JobState, now: Now) -> Step:
    """Opens the chain of a new job UUID above every epoch ever written under the job's name."""
    if job.wants_stop:
        return switching.finish_stop(job, now)
    begin = Begin(state.epoch, job.entry.uuid, job.chain.highest_epoch)
    return replace(job, chain=job.chain.appends()), [AppendBegin(job.name, begin)]


def _checkpoint(job: JobState) -> Step:
    manifest = checkpoints.complete(job)
    if manifest is None:
        return job, []
    return replace(job, checkpointing=job.checkpointing.being_stored()), [manifest]


def _goal(state: ClusterState, job: JobState, now: Now) -> Step:
    """One step towards what the user wants, else the next token."""
    if job.wants_stop:
        return switching.stop(job, state.epoch, now)
    if job.wants_switch:
        return switching.switch(job, state.epoch, now)
    job, actions = switching.rename_revision(job)
    job, more = rebalancing.move(state, job, now)
    actions += more
    owner = state.workers.get(job.ownership.owner or "")
    cores = owner.cores if owner is not None else None
    job = buffer_bound.noted(job)
    token = issue.next_token(job, state.epoch, now, cores=cores)
    if token is not None:
        job = issue.appending(job, now)
        actions = [*actions, AppendToken(job.name, token)]
    return job, actions


# -- events that concern the registry, the sources or loading ------------------------------------


def _registry_seen(
    state: ClusterState, event: ev.RegistrySeen, now: Now
) -> tuple[ClusterState, list[Action]]:
    actions: list[Action] = []
    workers = {w.incarnation: w for w in event.workers}
    left = {w for w, info in state.workers.items() if info.leaving and w not in workers}
    state = replace(state, workers=workers)
    for name in [n for n in state.jobs if n not in event.entries]:
        state = state.without_job(name)
    for name, entry in event.entries.items():
        job = state.jobs.get(name)
        if job is None:
            job = JobState(name, entry, loading_s=now.monotonic_s)
            if entry.desired != "removed":
                actions.append(LoadJob(name, entry))
        elif (entry.uuid, entry.counter) != (job.entry.uuid, job.entry.counter):
            job, more = _entry_changed(job, entry, now)
            actions += more
        elif entry != job.entry:
            job = replace(job, entry=entry)  # the user asks for a checkpoint or a rebalance
        if job.phase in OWNED:
            job = owning.without_left(job, left, now)
        damage = event.damaged.get(name, "")
        if damage and damage not in job.health.events:
            job = job.with_events(damage)  # the job keeps running on its last known entry
        state = state.with_job(job)
    return state, actions


def _entry_changed(job: JobState, entry: JobEntry, now: Now) -> Step:
    ended = job.phase in _ENDED or entry.uuid != job.entry.uuid
    job = replace(job, entry=entry, switch=job.switch.entry_changed())
    if ended:  # the timing is of another state, or of long ago
        job = replace(job, checkpointing=job.checkpointing.timed(None))
    if job.phase is Phase.LOADING or entry.desired == "removed" or not ended:
        return job, []  # the entry is compared again when the running load ends
    return job.move(Phase.LOADING, now, "its entry changed"), [LoadJob(job.name, entry)]


def _loaded(state: ClusterState, job: JobState, loaded: ev.JobLoaded, now: Now) -> Step:
    if job.phase is not Phase.LOADING:
        return job, []
    if loaded.entry != job.entry:
        return job, [LoadJob(job.name, job.entry)]
    job = watermark.replay_reports(adopted(job, loaded, state.workers, now), loaded.progress)
    job, actions = progress.gate_replayed(job, loaded.progress, now)
    if job.phase is not Phase.RESTORING:
        return job, actions
    job, more = progress.replayed(job, loaded.progress, now)
    return job, [*actions, *more]


def _load_failed(job: JobState, event: ev.JobLoadFailed, now: Now) -> Step:
    if job.phase is not Phase.LOADING:
        return job, []
    if event.entry != job.entry:
        return job, [LoadJob(job.name, job.entry)]
    job, text, final = failing.settled(job, "load", event.kind, event.text, now)
    if final:
        return failing.permanent(job, now, PermanentError.__name__, text)
    job = replace(job, health=job.health.load_tried(event.kind))
    if event.permanent or job.health.unexpected >= failing.TRIES_MAX:
        return failing.permanent(job, now, event.kind, event.text)
    unloaded = failing.counted(job.health.unloaded, job, now, event.text)
    health = job.health.not_loaded(unloaded)
    return replace(job, load_at_s=now.monotonic_s + LOAD_RETRY_S, health=health), []


def _unanswered(job: JobState, now: Now) -> JobState:
    """A load that neither ends nor fails: a network share that is away answers never."""
    if now.monotonic_s - job.loading_s < LOAD_REPORTED_S:
        return job
    text = (
        f"job {job.name} is being read, and for {LOAD_REPORTED_S:.0f} s ZooKeeper, Kafka or the "
        "store have not answered; `perseid doctor` asks each of them"
    )
    job = job if text in job.health.events else job.with_events(text)
    unloaded = failing.counted(job.health.unloaded, job, now, text)
    return replace(job, loading_s=now.monotonic_s, health=job.health.not_loaded(unloaded))


def _lost_track(job: JobState, now: Now, why: str) -> JobState:
    job = job if job.phase is Phase.LOADING else job.move(Phase.LOADING, now, why)
    return replace(job, chain=job.chain.lost_track(), load_at_s=now.monotonic_s + LOAD_RETRY_S)


def _action_failed(job: JobState, action: str, text: str, now: Now) -> Step:
    """Reads the job again.

    Kafka may refuse every further append as well, so the refusal is counted as a failure, which
    users see and which spaces out the next attempts.
    """
    job = _lost_track(job, now, f"{action}: {text}")
    if action not in _APPENDS:
        return job, []
    failures = failing.counted(job.health.failures, job, now, text)
    load_at_s = now.monotonic_s + max(LOAD_RETRY_S, failing.delay_s(failures.count))
    job = replace(job, health=job.health.counted(failures), load_at_s=load_at_s)
    return job, [PutFailures(job.name, failures)]


def _program_failed(job: JobState, event: ev.ProgramFailed, now: Now) -> JobState:
    job = replace(job, switch=job.switch.load_failed(now.monotonic_s))
    if event.archive != job.entry.archive:
        return job
    job, text, final = failing.settled(job, "program", event.kind, event.text, now)
    if not (event.permanent or final):  # no input is named meanwhile, so users must see why
        line = cut(f"the applied revision cannot be read yet: {headline(text)}", EVENT_MAX)
        return job if line in job.health.events else job.with_events(line)
    line = f"the applied revision cannot run, the old one continues: {text}"
    return replace(job.with_events(line), switch=job.switch.refused(event.archive))


def _ends_seen(
    state: ClusterState, event: ev.EndsSeen, now: Now
) -> tuple[ClusterState, list[str], list[Action]]:
    concerned, actions = [], list[Action]()
    if event.all_asked:
        state = replace(state, looked_s=event.asked_s)
    for job in list(state.jobs.values()):
        read = job.inputs.partitions
        own = {key: end for key, end in event.ends.items() if key in read}
        if not own:
            continue
        seen, more = _with_ends(job, own, event.asked_s, now)
        if seen is not job:
            state = state.with_job(seen)
            actions += more
            concerned.append(job.name)
    return state, concerned, actions


def _with_ends(
    job: JobState, ends: Mapping[tuple[str, int], int], asked_s: float, now: Now
) -> Step:
    inputs = job.inputs.with_ends(ends)
    if inputs is not job.inputs:
        job = replace(job, inputs=inputs)
    if job.phase in _ENDED or job.phase is Phase.LOADING or corrections.is_under_way(job):
        return job, []
    lost = sources.truncated(job.inputs, ends, asked_s)
    if lost is not None and job.inputs.truncated is None:  # TopicsSeen shows which error it is
        job = replace(job, inputs=job.inputs.lost(lost, now.monotonic_s))
    return job, []


def _topics_seen(
    state: ClusterState, event: ev.TopicsSeen, now: Now
) -> tuple[ClusterState, list[str], list[Action]]:
    actions: list[Action] = []
    for job in list(state.jobs.values()):
        if job.phase not in _ENDED and job.phase is not Phase.LOADING:
            looked = sink_topics.with_answers(epoch_timeout.looked(job, now), event.sinks)
            checked, more = _with_topics(looked, event, now)
            state = state.with_job(checked)
            actions += more
    return state, list(state.jobs), actions


def _with_topics(job: JobState, event: ev.TopicsSeen, now: Now) -> Step:
    if job.program is None or corrections.is_under_way(job):
        return job, []  # another revision may read another topic
    error = sources.fault(job.program.spec, job.inputs.positions, event.topics)
    if error is None and event.asked_s > job.inputs.truncated_s:
        error = job.inputs.truncated
    job, error = _settled(job, error, now)
    if error is not None:
        return corrections.fail(job, now, type(error).__name__, str(error))
    job = replace(job, inputs=stalled.looked(job.inputs, event.highs, now))
    return sources.with_new_partitions(job, event.topics, now), []


def _settled(
    job: JobState, error: PerseidError | None, now: Now
) -> tuple[JobState, PerseidError | None]:
    """Holds back a transient error: a broker that is starting may not know all topics yet."""
    if not isinstance(error, TransientAnswer):
        return failing.answered(job, "topics"), error
    first = "topics" not in job.health.answers
    job, text, final = failing.settled(job, "topics", TransientAnswer.__name__, str(error), now)
    if first:
        job = job.with_events(
            f"if the broker repeats this for {settling.FINAL_S['TransientAnswer']:.0f} s, "
            f"the job fails: {error}"
        )
    return job, PermanentError(text) if final else None
