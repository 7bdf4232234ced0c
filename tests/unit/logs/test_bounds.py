"""Logs stay small: repeats are thinned, long lines and tracebacks are cut."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys

from perseid import logs
from perseid.logs.lengths import LINE_CHARS_MAX, TRACE_LINES_MAX, CutLines, cut_line, cut_trace
from perseid.logs.thinning import SENTENCES_MAX, WHILE_S, WRITTEN_MAX, Repeats, Thinned

REFUSED = "FAIL: [thrd:127.0.0.1:{port}/1]: 127.0.0.1:{port}/1: Connect failed (after {ms}ms)"


def record(level: int, text: str, name: str = "perseid.kafka") -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, text, None, None)


def test_a_broker_that_is_away_for_half_an_hour_writes_a_few_lines_a_minute() -> None:
    now_s = 0.0
    thinned = Thinned(lambda: now_s)
    written = []
    for number in range(40 * 2 * 1800):  # forty clients, each twice a second
        now_s = number / 80
        shown = record(logging.WARNING, REFUSED.format(port=9000 + number % 40, ms=number))
        if thinned.filter(shown):
            written.append(shown.getMessage())
    assert len(written) == WRITTEN_MAX * 30
    missed = 80 * 60 - WRITTEN_MAX
    assert written[WRITTEN_MAX].endswith(f"(and {missed} like it that were not written)")
    assert sum(map(len, written)) < 100_000


def test_other_sentences_and_what_is_no_warning_are_written() -> None:
    thinned = Thinned(lambda: 0.0)
    for _ in range(WRITTEN_MAX):
        assert thinned.filter(record(logging.WARNING, "partition 3 is away"))
    assert not thinned.filter(record(logging.WARNING, "partition 4 is away"))
    assert thinned.filter(record(logging.WARNING, "the plan is away"))
    assert thinned.filter(record(logging.WARNING, "partition 3 is away", "perseid.worker"))
    assert all(thinned.filter(record(logging.INFO, "epoch 3", "perseid.worker")) for _ in range(99))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_what_cannot_be_formatted_is_left_to_the_caller() -> None:
    """A filter that raises would raise out of the line that only wanted to log."""
    entry = record(logging.WARNING, "the job failed: %s")
    entry.args = (Unspeakable(),)
    assert Thinned(lambda: 0.0).filter(entry)


def test_every_job_has_its_own_lines() -> None:
    """Thirty jobs that fail of one cause: `perseid logs JOB` shows it for each."""
    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(Thinned(lambda: 0.0, logs.job_of))
    written = []
    for number in range(30):
        entry = record(logging.ERROR, "the fragment failed: store away", "perseid.worker")
        with logs.about(job=f"job{number}"):
            written += [number] * bool(handler.filter(entry))
    assert len(written) == 30
    with logs.about(job="job1"):
        same = [handler.filter(record(logging.ERROR, "the fragment failed: store away",
                                      "perseid.worker")) for _ in range(WRITTEN_MAX)]  # fmt: skip
    assert [bool(one) for one in same] == [True] * (WRITTEN_MAX - 1) + [False]


def test_a_sentence_is_written_again_after_a_while() -> None:
    repeats = Repeats(written_max=2, while_s=10.0)
    assert [repeats.admit("a", "x", float(s)) for s in range(5)] == [0, 0, None, None, None]
    assert repeats.admit("a", "x", 10.0) == 3
    assert repeats.admit("a", "x", 11.0) == 0
    assert repeats.admit("a", "x", 30.0) == 0


def test_what_is_remembered_of_sentences_is_bounded() -> None:
    repeats = Repeats()
    for number in range(3 * SENTENCES_MAX):
        repeats.admit("a", "x" * (number % 100) + "y" * (number // 100), WHILE_S)
    assert len(repeats._known) <= SENTENCES_MAX


def test_a_long_message_and_a_long_traceback_are_cut() -> None:
    long = "x" * 10_000_000
    assert cut_line(long).endswith(f"x... ({10_000_000 - LINE_CHARS_MAX} characters more)")
    for chosen in logs.FORMATS:
        line = logs.formatter(chosen, "w1").format(record(logging.ERROR, long))
        assert len(line) < LINE_CHARS_MAX + 500
    trace = cut_trace("\n".join(f"line {n}" for n in range(10_000)))
    assert len(trace.splitlines()) == TRACE_LINES_MAX + 1
    assert trace.startswith("line 0\n")
    assert trace.endswith("line 9999")


def test_lines_that_are_printed_are_cut_one_by_one() -> None:
    to = io.StringIO()
    out = CutLines(to)
    print("short", file=out)
    print("y" * (LINE_CHARS_MAX + 5), file=out)
    out.writelines(["z" * LINE_CHARS_MAX, "z", "z\n", "next\n"])
    assert to.getvalue().splitlines() == [
        "short", "y" * LINE_CHARS_MAX + "... (5 characters more)",
        "z" * LINE_CHARS_MAX + "... (1 characters more)", "next",
    ]  # fmt: skip


def test_a_10_mb_print_of_an_operator_does_not_go_whole_into_the_log() -> None:
    code = (
        "import perseid.logs, sys\n"
        "perseid.logs.set_up_child()\n"
        "print('before'); print('x' * 10_000_000); print('after', flush=True)\n"
        "sys.stdout.buffer.write(b'bytes\\n'); sys.stdout.flush()\n"
        "raise ValueError('q' * 10_000_000)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PERSEID_LOG_PROCESS": "w1"},
    )  # fmt: skip
    begins = [line[:20] for line in ran.stdout.splitlines()]
    assert begins == ["before", "x" * 20, "after", "bytes"]
    assert len(ran.stdout) + len(ran.stderr) < 4 * LINE_CHARS_MAX
