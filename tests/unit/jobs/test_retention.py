"""Windows that are longer than their topic keeps its records."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.errors import RefusedError
from perseid.jobs.operations import applying
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.repository import job_folders
from perseid.jobs.repository.job_folders import example, examples
from perseid.jobs.validation import parse
from perseid.jobs.validation.retention import duration, looks_back, refusals
from perseid.topics.admin import TopicInfo

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JOB = """\
name: job
sources:
  a: {topic: in, format: json, columns: {k: string, ms: int64, v: int64},
      eventTime: {column: ms, watermark: "1m"}}
  b: {topic: other, format: json, columns: {k: string, ms: int64, v: int64}}
operators:
  o: {input: a, key: k, use: "library:Window", with: WITH}
  j: {inputs: {left: o, right: b}, key: k, use: "library:Join", with: JOIN}
sinks:
  s: {input: j, topic: out, format: json, key: k}
"""
TUMBLING = '{kind: tumbling, size: "1h", time: ms, aggregate: {n: count}}'
JOIN = (
    "{time: {left: end, right: ms}, left: {end: int64, n: int64}, right: {ms: int64, v: int64}, "
    'within: "30m"}'
)


def problems(folder: Path, window: str = TUMBLING, join: str = JOIN, *kept_ms: int) -> list[str]:
    (folder / "job.yaml").write_text(JOB.replace("WITH", window).replace("JOIN", join))
    spec = parse.load(folder)
    infos = {t: TopicInfo(t, "id", 1, retention_ms=ms)
             for t, ms in zip(("in", "other"), kept_ms, strict=True)}  # fmt: skip
    return list(refusals(spec, load_checked(spec, folder), infos))


def test_windows_and_joins_one_after_another_add_up(tmp_path: Path) -> None:
    needed_ms = HOUR_MS + HOUR_MS // 2 + 60_000  # and the watermark's delay
    assert problems(tmp_path, TUMBLING, JOIN, needed_ms, HOUR_MS // 2) == []
    (shown,) = problems(tmp_path, TUMBLING, JOIN, needed_ms - 1, DAY_MS)
    assert shown == (
        "source a: topic in keeps its records for 5459999ms (retention.ms=5459999), and operator o "
        "with operator j looks 91m back: a start from scratch or an audit would not find all rows "
        "of its window; type `kafka-configs --alter --entity-type topics --entity-name in "
        "--add-config retention.ms=5460000`, or make the window shorter"
    )
    (shown,) = problems(tmp_path, TUMBLING, JOIN, -1, 60_000)
    assert shown.startswith("source b: topic other keeps its records for 1m (retention.ms=60000), "
                           "and operator j looks 30m back")  # fmt: skip


def test_what_reads_another_output_of_a_window_adds_up_too(tmp_path: Path) -> None:
    process = "    def process(self, batch, out): ...\n\n"
    code = (
        "from perseid.jobs import Operator, pa\n\nclass Sided(Operator):\n    history_ms = 1\n"
        f'    outputs = {{"late": pa.schema([("k", pa.string())])}}\n{process}'
        f"class Later(Operator):\n    history_ms = 2\n{process}"
    )
    (tmp_path / "m.py").write_text(code)
    (tmp_path / "job.yaml").write_text(
        "name: job\nsources:\n  a: {topic: in, format: json, columns: {k: string}}\noperators:\n"
        '  o: {input: a, key: k, use: "m:Sided"}\n  p: {input: o.late, key: k, use: "m:Later"}\n'
        "sinks:\n  s: {input: p, topic: out, format: json, key: k}\n"
        "  t: {input: o, topic: more, format: json, key: k}\n"
    )
    spec = parse.load(tmp_path)
    assert looks_back("a", spec, load_checked(spec, tmp_path)) == (3, ("o", "p"))


@pytest.mark.parametrize(
    ("window", "minutes"),
    [
        ('{kind: hopping, size: "2h", step: "1m", time: ms, aggregate: {n: count}}', 120),
        ('{kind: sliding, size: "2h", time: ms, aggregate: {n: count}}', 120),
        ('{kind: session, gap: "2h", time: ms, aggregate: {n: count}}', 120),
        ('{kind: tumbling, size: "1h", correct: "3h", time: ms, aggregate: {n: count}}', 240),
        ('{kind: session, gap: "1h", correct: "3h", time: ms, aggregate: {n: count}}', 240),
    ],
)
def test_every_kind_of_window_counts(tmp_path: Path, window: str, minutes: int) -> None:
    needed_ms = (minutes + 31) * 60_000
    assert problems(tmp_path, window, JOIN, needed_ms, -1) == []
    assert len(problems(tmp_path, window, JOIN, needed_ms - 1, -1)) == 1


@pytest.mark.parametrize(
    ("way", "minutes"),
    [('before: "10m", after: "20m"', 20), ('before: "10m"', 10), ('window: "45m"', 45)],
)
def test_every_kind_of_join_counts(tmp_path: Path, way: str, minutes: int) -> None:
    join = JOIN.replace('within: "30m"', way)
    assert problems(tmp_path, TUMBLING, join, -1, minutes * 60_000) == []
    assert len(problems(tmp_path, TUMBLING, join, -1, minutes * 60_000 - 1)) == 1


def test_what_a_replay_needs_counts_without_windows(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: job\nsources: {a: {topic: in, format: text}}\n"
        "sinks: {s: {input: a, topic: out, format: text}}\n"
    )
    spec = parse.load(tmp_path)
    infos = [{"in": TopicInfo("in", "id", 1, retention_ms=ms)} for ms in (59_999, 60_000)]
    (shown,) = refusals(spec, {}, infos[0])
    assert "a replay may need the records of two checkpoint periods (1m)" in shown
    assert list(refusals(spec, {}, infos[1])) == []


def test_applying_refuses_it(tmp_path: Path) -> None:
    from perseid.clocks import ManualClock
    from perseid.registry.facade import Registry
    from perseid.state.durability.store import LocalStore
    from perseid.testing.kafka import FakeTopics, ModelKafka
    from perseid.testing.registry import FakeZooKeeper

    topics = FakeTopics(ModelKafka())
    topics.create("in", 1, {"retention.ms": str(HOUR_MS)})
    topics.create("other", 1)
    cluster = applying.Cluster(
        Registry(FakeZooKeeper().session()), topics, LocalStore(tmp_path / "store"), ManualClock()
    )
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.replace("WITH", TUMBLING).replace("JOIN", JOIN))
    with (
        job_folders.validated(job_folders.find(str(folder))) as jobs,
        pytest.raises(RefusedError, match=r"job: source a: topic in keeps its records for 1h"),
    ):
        applying.prepare(cluster, jobs)


def test_shipped_jobs_fit_into_a_week() -> None:
    """So that none is refused on a broker with Kafka's defaults; and some do look back."""
    found = {}
    for name in examples():
        spec = parse.load(example(name))
        classes = load_checked(spec, example(name))
        found[name] = max(looks_back(source, spec, classes)[0] for source in spec.sources)
    assert max(found.values()) < 7 * DAY_MS
    assert found["tmi"] > 0
    assert found["sessions"] > 0
    assert found["wordcount"] == 0


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0ms"), (1, "1ms"), (90_000, "90s"), (DAY_MS, "1d"), (2 * HOUR_MS, "2h")]
)
def test_durations_as_people_write_them(ms: int, text: str) -> None:
    assert duration(ms) == text
