"""Memory limits: one warning, then a stop in front of the limit, that names all that is needed."""

from __future__ import annotations

import pytest

from perseid.errors import PermanentError
from perseid.jobs.model.layout import build
from perseid.jobs.validation import parse
from perseid.worker.epoch.memory import MIB, MemoryWatch

JOB = """
name: job
sources:
  a: {topic: a, format: json, columns: {k: string, n: int64}}
operators:
  free: {input: a, key: k, use: "m:O"}
  held: {input: a, key: k, use: "m:O", parallelism: 2, memory: "200MiB"}  # 100 each
sinks:
  s: {input: held, topic: out, format: json, key: k}
  t: {input: free, topic: out2, format: json, key: k}
"""


@pytest.fixture
def watch() -> MemoryWatch:
    spec = parse.loads(JOB)
    return MemoryWatch(spec, build(spec, 1))


def sizes(*found: int) -> dict[int, int]:
    """Bytes by gid."""
    return dict(enumerate(found))


def test_one_warning_when_four_fifths_are_reached(watch: MemoryWatch) -> None:
    assert watch.look(1, sizes(10**12, 79 * MIB, 0)) == ()
    (reported,) = watch.look(2, sizes(10**12, 81 * MIB, 0))
    assert reported.startswith("warning: operator held, partition 0: its state has 81.0 MiB")
    assert "of the 100.0 MiB that `memory:` gives it" in reported
    assert "after epoch 2" in reported
    assert watch.look(3, sizes(10**12, 82 * MIB, 0)) == ()
    assert watch.look(4, sizes(10**12, 50 * MIB, 0)) == ()
    watch.look(5, sizes(10**12, 75 * MIB, 75 * MIB))
    both = watch.look(6, sizes(10**12, 80 * MIB, 80 * MIB))
    assert [reported.split(":")[1] for reported in both] == [
        " operator held, partition 0", " operator held, partition 1",
    ]  # fmt: skip


def test_the_stop_is_in_front_of_the_limit(watch: MemoryWatch) -> None:
    for epoch, size in enumerate((60, 70, 80, 90), 1):
        watch.look(epoch, sizes(0, 0, size * MIB))
    with pytest.raises(PermanentError) as caught:
        watch.look(5, sizes(0, 0, 95 * MIB + MIB // 2 + 5 * MIB))
    text = str(caught.value)
    assert "operator held, partition 1: its state has 100.5 MiB" in text
    assert "after epoch 5" in text
    assert "the last epoch has added 10.5 MiB" in text
    assert "Raise `memory:` of operator held" in text


def test_what_would_not_fit_next_time_is_refused_now(watch: MemoryWatch) -> None:
    watch.look(1, sizes(0, 84 * MIB, 0))
    with pytest.raises(PermanentError, match="another epoch would not fit"):
        watch.look(2, sizes(0, 93 * MIB, 0))


def test_a_fragment_watches_its_own_partitions() -> None:
    spec = parse.loads(JOB)
    part = MemoryWatch(spec, build(spec, 1).part((2,)))
    with pytest.raises(PermanentError, match="operator held, partition 1: its state"):
        part.look(1, {2: 101 * MIB})


def test_state_that_no_longer_grows_may_stay(watch: MemoryWatch) -> None:
    watch.look(1, sizes(0, 99 * MIB, 0))
    assert watch.look(2, sizes(0, 99 * MIB, 0)) == ()
    assert watch.look(3, sizes(0, 98 * MIB, 0)) == ()


def test_operators_without_a_state_or_a_limit_are_left_alone(watch: MemoryWatch) -> None:
    assert watch.look(1, {0: 10**15}) == ()
