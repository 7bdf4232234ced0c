from __future__ import annotations

import json
from pathlib import Path

import pytest

from perseid.testing.meter import __main__ as meter
from perseid.testing.meter.counted import first_progress, percentile, speed
from perseid.testing.verify.read import Record


def count(word: str, n: int, time_ms: int) -> Record:
    return Record(0, 0, word.encode(), json.dumps({"word": word, "n": n}).encode(), time_ms)


def test_speed_leaves_the_warm_up_out_and_ends_with_the_last_output() -> None:
    # 100 words at once, then 20 words a second for 20 s: only the latter is speed.
    records = [count("a", 100 + 20 * s, 1_000 * s) for s in range(21)]
    found = speed(records, warm_up_s=10, words_per_line=10)
    assert found.lines_per_s == pytest.approx(2.0)
    assert (found.seconds, found.lines, found.messages_out) == (10.0, 20.0, 10)


def test_speed_credits_only_what_was_put_out_between_two_outputs() -> None:
    # One output each 8 s: at 0, 8, 16, 24. The window starts at 8, the last before the warm-up end.
    records = [count("a", 80 * (i + 1), 8_000 * i) for i in range(4)]
    found = speed(records, warm_up_s=10, words_per_line=1)
    assert (found.lines_per_s, found.seconds) == (10.0, 16.0)


def test_speed_counts_repeats_but_not_as_progress() -> None:
    records = [count("a", 1, 0), count("a", 3, 2_000), count("a", 2, 3_000), count("a", 3, 4_000)]
    found = speed(records, warm_up_s=0, words_per_line=1)
    assert (found.lines, found.repeated, found.messages_out) == (2.0, 2, 3)


def test_speed_of_nothing_is_nothing() -> None:
    assert speed([], warm_up_s=1, words_per_line=1).lines_per_s == 0
    assert speed([count("a", 1, 5)], warm_up_s=1, words_per_line=1).lines_per_s == 0


def test_speed_stops_at_the_window() -> None:
    records = [count("a", 10 * s, 1_000 * s) for s in range(1, 60)]
    assert speed(records, warm_up_s=10, words_per_line=1, window_s=5).seconds == 5.0


def test_a_rise_is_the_first_record_that_raises_a_count() -> None:
    one = [count("a", 1, 100), count("a", 2, 200), count("a", 2, 1_100), count("a", 5, 1_500)]
    other = [count("b", 4, 150), count("b", 1, 1_050), count("b", 7, 1_700)]
    assert first_progress([one, other], [1_000, 1_600, 2_000]) == [1_500, 1_700, None]


def test_percentile_is_the_nearest_rank() -> None:
    samples = [float(i) for i in range(1, 101)]
    assert percentile(samples, 0.5) == 50.0
    assert percentile(samples, 0.99) == 99.0
    assert percentile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


@pytest.mark.parametrize(("flags", "lost"), [([], 0), (["--complete"], 3)])
def test_speed_and_verdict_come_from_one_reading(
    flags: list[str], lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sent = tmp_path / "words.json"
    sent.write_text(json.dumps({"words": {"a": 30, "b": 1}, "lines": 31}))
    output = [count("a", 10 * s, 1_000 * s)._replace(offset=s) for s in (1, 2)]
    output += [count("a", 28, 3_000), count("zz", 4, 3_000)]
    monkeypatch.setattr(meter, "read_topic", lambda *_: iter(output))
    args = ["counts", "--kafka=x", "--sink=y", f"--sent={sent}", "--warm-up=0", "--words=1"]
    assert meter.main([*args, *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["seconds"], found["messages_out"]) == (22.0, 2.0, 3)
    assert (found["wrong"], found["lost"], found["output_records"]) == (1, lost, 4)
