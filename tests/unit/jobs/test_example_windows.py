"""The shipped jobs with windows compute what a reader of their job.yaml expects."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from perseid.jobs.repository import job_folders
from perseid.testing.operator_checks import check
from perseid.testing.operators import Harness, Inputs

MINUTE = 60_000
VIEWS = pa.schema([("user", pa.string()), ("page", pa.string()), ("ms", pa.int64())])
VEHICLES = pa.schema(
    [("vehicle", pa.string()), ("segment", pa.string()), ("speed", pa.int64()), ("ms", pa.int64())]
)
INCIDENTS = pa.schema([("incident", pa.string()), ("segment", pa.string()), ("ms", pa.int64())])
Row = dict[str, Any]


def minutes(*times: int) -> dict[str, list[Any]]:
    return {"user": ["ann"] * len(times), "page": ["/"] * len(times),
            "ms": [time * MINUTE for time in times]}  # fmt: skip


def test_visits_are_reported_when_over_and_corrected_by_late_views() -> None:
    visits = Harness(job_folders.example("sessions"), "visits")
    visits.epoch(minutes(600, 625, 660))
    visits.watermark = 690 * MINUTE - 1
    first, *more = visits.epoch()
    assert first == {"user": "ann", "start": 600 * MINUTE, "end": 655 * MINUTE, "views": 2,
                     "last": 625 * MINUTE}  # fmt: skip
    assert more == []
    visits.crash()
    visits.watermark = 690 * MINUTE
    (second,) = visits.epoch()
    assert (second["start"], second["end"]) == (660 * MINUTE, 690 * MINUTE)
    gone, joined = visits.epoch(minutes(651))  # between the two: they were one visit
    assert (gone["start"], gone["end"], gone["views"]) == (660 * MINUTE, 660 * MINUTE, None)
    assert joined == {"user": "ann", "start": 600 * MINUTE, "end": 690 * MINUTE, "views": 4,
                      "last": 660 * MINUTE}  # fmt: skip


def test_incidents_meet_the_speeds_of_the_five_minutes_after_them() -> None:
    chance = random.Random(3)
    speeds = Harness(job_folders.example("incidents"), "speeds", parallelism=2)
    affected = Harness(job_folders.example("incidents"), "affected", parallelism=2)
    vehicles: list[Row] = []
    incidents: list[Row] = []
    emitted: list[Row] = []
    for epoch in range(60):  # 20 s each
        ms = epoch * 20_000
        came = [
            {"vehicle": f"v{i}", "segment": chance.choice("abc"), "speed": chance.randint(5, 90),
             "ms": ms + chance.randrange(20_000)}
            for i in range(8)
        ]  # fmt: skip
        seen = [{"incident": f"i{epoch}", "segment": chance.choice("abc"), "ms": ms}][
            : epoch % 7 < 1
        ]
        vehicles, incidents = vehicles + came, incidents + seen
        speeds.watermark = affected.watermark = max(0, ms - 5_000)
        windows = speeds.epoch(pa.Table.from_pylist(came, VEHICLES))
        right = pa.Table.from_pylist(windows, speeds.operator_class.output)
        emitted += affected.epoch({"left": pa.Table.from_pylist(seen, INCIDENTS), "right": right})
        if epoch % 9 == 0:
            speeds.crash()
            affected.crash()
    last = speeds.watermark or 0
    expected = []
    for incident in incidents:
        for end in range(10_000, last + 1, 10_000):
            inside = [
                vehicle["speed"] for vehicle in vehicles
                if vehicle["segment"] == incident["segment"] and end - 30_000 <= vehicle["ms"] < end
            ]  # fmt: skip
            if inside and incident["ms"] <= end <= incident["ms"] + 5 * MINUTE:
                expected.append({"segment": incident["segment"], "incident": incident["incident"],
                                 "ms": incident["ms"], "end": end, "vehicles": len(inside),
                                 "total": sum(inside), "slowest": min(inside)})  # fmt: skip
    assert len(expected) > 100
    assert sorted(emitted, key=repr) == sorted(expected, key=repr)


def test_the_join_gives_the_same_in_every_process_and_through_every_crash() -> None:
    chance = random.Random(4)

    def rows(names: pa.Schema, number: int) -> pa.Table:
        found: list[Row] = [
            {f.name: chance.choice("ab") if f.type == pa.string() else chance.randrange(99)
             for f in names}
            for _ in range(number)
        ]  # fmt: skip
        return pa.Table.from_pylist(found, names)

    speeds = Harness(job_folders.example("incidents"), "speeds").operator_class.output
    assert speeds is not None
    epochs: list[Inputs] = [
        {"left": rows(INCIDENTS, size), "right": rows(speeds, 7 - size)} for size in (7, 2, 0, 4)
    ]
    check(job_folders.example("incidents"), "affected", epochs)
    views = [rows(VIEWS, size) for size in (5, 0, 9)]
    check(job_folders.example("sessions"), "visits", views)
