"""Plans in ZooKeeper: those of versions that know a job as one fragment, and what these read."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest

from perseid.errors import DamagedFile
from perseid.records import WHOLE, Assignment, CheckpointPointer, Plan
from perseid.registry import codec

POINTER = CheckpointPointer(7, 2, 1, "r1", 70, "m", 1, 10, 5, 5)
# As a version without assignments wrote it, with other numbers than any default.
OLDER = {
    "job": "counts", "job_uuid": "u1", "generation": 3, "owner": "w1-a", "revision": "r1",
    "archive": "a1", "layout": 2, "base_epoch": 4, "base_offset": 40, "checkpoints": [],
    "reason": "placed", "rescaled": True,
}  # fmt: skip
STORED = (
    b'{"format":1,"kind":"Plan","crc":2442519520,"body":{"job":"counts","job_uuid":"u1",'
    b'"generation":3,"owner":"w1-a","revision":"r1","archive":"a1","layout":2,"base_epoch":4,'
    b'"base_offset":40,"checkpoints":[],"reason":"placed","rescaled":true}}'
)
PLAN = Plan.fused(
    "counts", "u1", 3, "w1-a", "r1", "a1", 2, 4, 40, reason="placed", rescaled=True
)  # fmt: skip
SPLIT = replace(
    PLAN,
    assignments=(
        Assignment("f1", (0, 2), "w1-a", 2, from_epoch=4),
        Assignment("f2", (1,), None, 3, from_epoch=9),
        Assignment("f3", (0, 2), "w2-a", 3, "replica", 6),
    ),
)


def stored(body: dict[str, Any]) -> bytes:
    raw = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    crc = zlib.crc32(raw, zlib.crc32(b"Plan"))
    return orjson.dumps({"format": 1, "kind": "Plan", "crc": crc, "body": body})


def body_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(data)["body"]
    return found


def test_an_older_plan_can_be_read_as_it_stands_in_zookeeper() -> None:
    assert codec.decode(STORED, Plan, "/plan") == PLAN
    assert body_of(STORED) == OLDER


@pytest.mark.parametrize("owner", ["w1-a", None])
def test_a_plan_of_an_older_version_is_one_fragment(owner: str | None) -> None:
    found = codec.decode(stored({**OLDER, "owner": owner}), Plan, "/plan")
    assert found == replace(PLAN, assignments=(Assignment(WHOLE, None, owner, 3, from_epoch=4),))
    assert (found.owner, found.primaries) == (owner, found.assignments)


def test_an_older_plan_without_an_owner_field_is_damaged() -> None:
    body = {name: value for name, value in OLDER.items() if name != "owner"}
    with pytest.raises(DamagedFile, match=r"/plan does not hold a Plan: 'owner'"):
        codec.decode(stored(body), Plan, "/plan")


@pytest.mark.parametrize("plan", [PLAN, SPLIT, replace(PLAN, checkpoints=(POINTER,))])
def test_what_goes_in_comes_out(plan: Plan) -> None:
    assert codec.decode(codec.encode(plan), Plan, "/plan") == plan


def test_older_versions_find_all_of_their_fields() -> None:
    body = body_of(codec.encode(PLAN))
    assert {name: body[name] for name in OLDER} == OLDER


def test_older_versions_run_nothing_of_a_job_of_several_fragments() -> None:
    assert body_of(codec.encode(SPLIT))["owner"] is None


def test_a_worker_sees_its_own_assignment_alone() -> None:
    (own,) = SPLIT.for_worker("w1-a")
    assert (own.generation, own.only) == (2, SPLIT.assignments[0])
    assert SPLIT.for_worker("w9-a") == ()
    assert PLAN.for_worker("w1-a") == (PLAN,)


def test_fragments_are_placed_again_and_the_others_continue() -> None:
    placed = SPLIT.placed({SPLIT.assignments[1].fragment: "w7-a"}, 9)
    assert (placed.generation, placed.floor) == (9, SPLIT.floor)
    assert [a for a in placed.assignments if a.generation == 9] == [placed.assignments[1]]
    assert placed.assignments[1].owner == "w7-a"
    assert placed.assignments[0] == SPLIT.assignments[0]
    renewed = placed.renewed(10)
    assert (renewed.generation, renewed.floor) == (10, 10)
    assert [a.owner for a in renewed.assignments] == [a.owner for a in placed.assignments]


def test_several_fragments_have_no_one_owner() -> None:
    assert SPLIT.owner is None
    assert Plan.fused("counts", "u", 1, "w1-a", "r", "a", 1, 0, 0).owner == "w1-a"
    with pytest.raises(ValueError, match="the plan of counts has 3 fragments"):
        _ = SPLIT.only


def test_a_plan_that_is_handed_on_begins_after_the_same_epochs() -> None:
    handed = SPLIT.handed_to("w3-a", 8)
    assert handed.generation == 8
    assert {(a.owner, a.generation) for a in handed.assignments} == {("w3-a", 8)}
    assert [a.from_epoch for a in handed.assignments] == [4, 9, 6]
    assert [a.from_epoch for a in handed.based_on(11, 110).assignments] == [11, 11, 11]
