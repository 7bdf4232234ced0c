"""The job of the state benchmarks through the harness, against a count of its input."""

from __future__ import annotations

from pathlib import Path

from benches import keyed
from benches.keys import Keys, ends_of
from perseid.cli.scenario.bed import edited
from perseid.testing.operators import Harness

FOLDER = Path(keyed.__file__).parent / "jobs" / "keyed"


def test_it_counts_every_key_and_reports_how_many_records_it_has_seen(tmp_path: Path) -> None:
    keys, counts = Keys(500), Harness(FOLDER, "counts", parallelism=3)
    starts: dict[int, int] = {}
    for ends in (ends_of(keys, 0), ends_of(keys, 4_000), ends_of(keys, 4_400)):
        sent = [m for p in ends for m in keys.messages(p, starts.get(p, 0), ends[p])]
        reported = counts.epoch({"value": [m["value"].decode() for m in sent]})
        starts = ends
        assert sum(row["records"] for row in reported) == sum(ends.values())
        counts.crash()
    found = {int(row["key"]): row["n"] for row in counts.rows("total")}
    assert [found[key] for key in range(500)] == keys.counts(starts).tolist()


def test_its_folder_takes_what_a_run_changes(tmp_path: Path) -> None:
    edits = (('period: "30s"', 'period: "10s"'), ("parallelism: 4\n", "parallelism: 64\n"))
    folder = edited(FOLDER, tmp_path / "keyed", edits)
    assert Harness(folder, "counts", parallelism=64).epoch({"value": ["a"]}) != []
