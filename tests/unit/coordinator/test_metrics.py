"""/metrics: what it shows of a job's life, and the table in API.md that documents it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import perseid.coordinator
from perseid.coordinator import statuses
from perseid.coordinator.api import metrics
from perseid.coordinator.view import Look
from perseid.records import Assignment, LeaderInfo
from perseid.records.audits import AuditRequest, AuditResult
from perseid.topics.records import EpochDone, OperatorState
from support.coordinator import RECORD_BYTES, Crashed, Leader, World

JOB = "wordcount"
API = Path(perseid.coordinator.__file__).with_name("API.md")
Labels = tuple[tuple[str, str], ...]


def scraped(leader: Leader | None) -> Mapping[tuple[str, Labels], float]:
    """What Prometheus reads, by the sample's name and labels."""
    text = generate_latest(metrics.registry(lambda: look(leader) if leader else None)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def look(leader: Leader) -> Look:
    info = LeaderInfo("c1", leader.state.epoch, 1, "http://127.0.0.1:1")
    return Look(leader.state, info, leader.world.now)


def of_job(leader: Leader, name: str, job: str = JOB, **labels: str) -> float | None:
    found = scraped(leader)
    return found.get((f"perseid_{name}", tuple(sorted({"job": job, **labels}.items()))))


def run(world: World, leader: Leader, records: int, duration_ms: int = 500) -> None:
    world.produce(0, records)
    leader.poll()
    world.work(JOB, duration_ms=duration_ms)
    leader.listen()


def test_the_page_has_a_row_for_each_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(perseid_\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", API.read_text(),
                      re.MULTILINE)  # fmt: skip
    wanted = [(f.name, f.kind, ", ".join(f.labels) or "-", f.text) for f in metrics.FAMILIES]
    assert rows == wanted


def test_each_family_is_what_its_entry_declares(world: World, leader: Leader) -> None:
    world.states = (OperatorState("counts", 700, 70),)
    run(world, leader, 10)
    for family in metrics.FAMILIES:
        metric: Metric = family.collect(look(leader))
        named = metric.name + ("_total" if family.kind == "counter" else "")
        assert (named, metric.type) == (family.name, family.kind)
        assert {k for s in metric.samples for k in s.labels} - {"le"} <= set(family.labels)


def test_each_fragment_of_a_spread_job_has_its_done_epoch(world: World, leader: Leader) -> None:
    run(world, leader, 10)
    name = "perseid_fragment_done_epoch"
    assert name not in {found for found, _ in scraped(leader)}, "it is one fragment"
    job = leader.job()
    assert job.plan is not None
    made = tuple(Assignment(str(n), (n,), "w1-1", 1, split=n) for n in (0, 1))
    ownership = replace(
        job.ownership, plan=replace(job.plan, assignments=made), done_by={"0": 1, "1": 0}
    )
    leader.state = leader.state.with_job(replace(job, ownership=ownership))
    assert of_job(leader, "fragment_done_epoch", fragment="0") == 1
    assert of_job(leader, "fragment_done_epoch", fragment="1") == 0
    assert of_job(leader, "job_committed_epoch") == 0


def test_a_job_that_runs(world: World, leader: Leader) -> None:
    world.states = (OperatorState("counts", 700, 70),)
    run(world, leader, 30)
    world.time_s += 31
    run(world, leader, 12, duration_ms=1500)
    world.time_s += 4.5
    world.produce(1, 5)
    leader.poll()
    assert of_job(leader, "job_rows_in_total") == 42
    assert of_job(leader, "job_bytes_in_total") == 42 * RECORD_BYTES
    assert of_job(leader, "job_rows_out_total") == 42
    assert of_job(leader, "job_committed_epoch") == 2
    assert of_job(leader, "job_epoch") == 3
    assert of_job(leader, "job_lag_records") == 5
    assert of_job(leader, "operator_state_bytes", operator="counts") == 700
    assert of_job(leader, "job_checkpoint_epoch") == 2
    assert of_job(leader, "job_checkpoint_age_seconds") == 4.5
    assert of_job(leader, "job_checkpoint_bytes") == 20
    assert of_job(leader, "job_checkpoint_duration_seconds") == 0
    assert of_job(leader, "job_checkpoints_total") == 1
    buckets = {le: of_job(leader, "job_epoch_duration_seconds_bucket", le=le)
               for le in ("0.25", "0.5", "1.0", "2.5", "+Inf")}  # fmt: skip
    assert buckets == {"0.25": 0, "0.5": 1, "1.0": 1, "2.5": 2, "+Inf": 2}
    assert of_job(leader, "job_epoch_duration_seconds_sum") == 2.0
    assert scraped(leader)["perseid_workers", ()] == 1


def test_the_phases_are_those_of_the_status(world: World, leader: Leader) -> None:
    assert set(metrics.PHASES) >= set(statuses._NAMES.values())
    assert of_job(leader, "job_phase", phase="running") == 1
    world.entries[JOB] = replace(world.entries[JOB], desired="stopped", counter=2)
    leader.look()
    found = {phase: of_job(leader, "job_phase", phase=phase) for phase in metrics.PHASES}
    assert found == {**dict.fromkeys(metrics.PHASES, 0), statuses.name_of(leader.job()): 1}
    assert found["stopped"] == 1


def test_a_takeover_counts_as_a_restart_elsewhere(world: World, leader: Leader) -> None:
    assert of_job(leader, "job_restarts_total") == 0
    world.workers = ["w2-1"]
    leader.look()
    assert of_job(leader, "job_restarts_total") == 1
    assert of_job(leader, "job_takeovers_total") == 1
    assert of_job(leader, "job_failures") == 1
    world.report(JOB, "failed", error="the disk is full")
    leader.listen()
    leader.tick(5)
    assert of_job(leader, "job_restarts_total") == 2
    assert of_job(leader, "job_takeovers_total") == 1
    assert of_job(leader, "job_generation") == 3


def test_counters_continue_when_the_leader_reads_the_job_again(
    world: World, leader: Leader
) -> None:
    """Epochs that ended while it was being read count, those from before count once."""
    run(world, leader, 30)
    world.produce(0, 12)
    leader.poll()
    world.work(JOB)  # no listener: it is read from the progress topic
    lose_track(leader)
    assert of_job(leader, "job_rows_in_total") == 42
    leader.listen()
    assert of_job(leader, "job_rows_in_total") == 42


def test_a_new_leader_counts_from_zero(world: World, leader: Leader) -> None:
    run(world, leader, 30)
    other = Leader(world)
    other.look()
    other.listen()
    assert of_job(other, "job_rows_in_total") == 0
    run(world, other, 7)
    assert of_job(other, "job_rows_in_total") == 7
    assert scraped(other)["perseid_coordinator_epoch", ()] == 2


def test_what_is_not_known_has_no_sample(world: World) -> None:
    leader = Leader(world, writes_left=0)
    with pytest.raises(Crashed):  # in front of loading
        leader.look()
    assert of_job(leader, "job_lag_records") is None
    assert of_job(leader, "job_committed_epoch") is None
    assert of_job(leader, "job_phase", phase="waiting") == 1


def test_a_standby_reports_only_that(world: World) -> None:
    assert scraped(None) == {("perseid_leader", ()): 0}


@pytest.mark.security("5.15")
def test_labels_are_escaped(world: World, leader: Leader) -> None:
    """Names of operators are checked when a job is applied; a scrape does not rest on that."""
    odd = 'a"b\\c\nperseid_leader 7'
    totals = replace(leader.job().totals, states=(OperatorState(odd, 1, 0),))
    leader.state = leader.state.with_job(replace(leader.job(), totals=totals))
    assert of_job(leader, "operator_state_bytes", operator=odd) == 1
    assert scraped(leader)["perseid_leader", ()] == 1


def test_an_epoch_that_is_reported_twice_counts_once(world: World, leader: Leader) -> None:
    run(world, leader, 30)
    done = [r for r in world.progress[JOB] if isinstance(r, EpochDone)]
    world.progress[JOB].append(done[-1])
    leader.listen()
    assert of_job(leader, "job_rows_in_total") == 30


def lose_track(leader: Leader) -> None:
    """An action of the job fails, so the leader reads it again."""
    from perseid.coordinator import events as ev

    leader.feed(ev.ActionFailed(JOB, "PutStatus", "no answer"))
    leader.tick(1)


# -- audits --------------------------------------------------------------------------------------


def audited(leader: Leader, *audits: AuditRequest) -> Mapping[tuple[str, Labels], float]:
    found = replace(look(leader), audits=audits)
    text = generate_latest(metrics.registry(lambda: found)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("perseid_audit")
    }


def audit(id_: str, verdict: str | None, at_ms: int, job: str = JOB) -> AuditRequest:
    made = AuditRequest(id_, job, (), at_ms, "ann")
    if verdict is None:
        return made.taken("w1-1", at_ms)
    return made.ended(AuditResult("done", "", verdict, 1, 5, 5, 9), at_ms)


def test_audits_by_verdict_and_the_last_one_of_each_job(leader: Leader) -> None:
    now_ms = leader.world.now.wall_ms
    of = (("job", JOB),)
    found = audited(
        leader,
        audit("a", "equal", now_ms - 9000), audit("b", "diverged", now_ms - 4000),
        audit("c", None, now_ms - 2000), audit("d", "equal", now_ms - 1000, "other"),
        AuditRequest("e", JOB, (), now_ms, "ann"),
    )  # fmt: skip
    assert found["perseid_audit_running", ()] == 1
    assert found["perseid_audit_waiting", ()] == 1
    for result in ("equal", "diverged"):
        assert found["perseid_audit_ended", (("job", JOB), ("result", result))] == 1
    assert found["perseid_audit_epochs", of] == 10
    assert found["perseid_audit_last_equal", of] == 0
    assert found["perseid_audit_last_equal", (("job", "other"),)] == 1
    assert found["perseid_audit_last_age_seconds", of] == 4
    assert found["perseid_audit_open_seconds", of] == 2
    assert found["perseid_audit_open_seconds", (("job", "other"),)] == 0


def test_audits_without_a_verdict_have_no_last_one(leader: Leader) -> None:
    failed = AuditRequest("a", JOB, (), 0, "ann").ended(AuditResult("failed", "x"), 1)
    found = audited(leader, failed)
    assert found["perseid_audit_ended", (("job", JOB), ("result", "failed"))] == 1
    assert not [name for name, _ in found if name.startswith("perseid_audit_last")]
    assert audited(leader) == {("perseid_audit_running", ()): 0, ("perseid_audit_waiting", ()): 0}
