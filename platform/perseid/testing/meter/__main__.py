"""`python -m perseid.testing.meter WHAT --kafka H:P --sink T`: JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perseid.testing.meter.answers import AnswerCheck
from perseid.testing.meter.counted import first_progress, speed
from perseid.testing.meter.live import follow, latency
from perseid.testing.payments import JOBS
from perseid.testing.verify import WordcountCheck, count_words
from perseid.testing.verify.read import (
    Record,
    partitions,
    read_partition,
    read_topic,
    read_values,
)


def _print(document: Any) -> None:
    print(json.dumps(document), flush=True)


def _answers(options: argparse.Namespace) -> dict[str, Any]:
    check = AnswerCheck(JOBS[options.job](), options.judged.encode())
    for record in read_topic(options.kafka, options.sink):
        check.output(record)
    source = partitions(options.kafka, options.source)
    read = (read_partition(options.kafka, options.source, partition) for partition in source)
    check.input(read, complete=options.complete)
    rate, seconds = check.rate(warm_up_s=options.warm_up, window_s=options.seconds)
    return {"answers_per_s": rate, "seconds": seconds, **check.verdict().as_dict()}


def _words(options: argparse.Namespace) -> dict[str, Any]:
    words, lines = count_words(read_values(options.kafka, options.sink))
    return {"words": words, "lines": lines}


def _counts(options: argparse.Namespace) -> dict[str, Any]:
    """Returns speed and verdict from one reading of the sink."""
    check = WordcountCheck()
    check.counted(**json.loads(Path(options.sent).read_text()))

    def judged() -> Iterator[Record]:
        for record in read_topic(options.kafka, options.sink):
            check.output(record)
            yield record

    found = speed(
        judged(), warm_up_s=options.warm_up, words_per_line=options.words, window_s=options.seconds
    )
    verdict = check.verdict() if options.complete else check.verdict_of_cut()
    return {**asdict(found), **verdict.as_dict()}


_JUDGED = {"answers": _answers, "words": _words, "counts": _counts}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perseid.testing.meter", description=__doc__)
    whats = ["latency", "rises", "follow", "answers", "counts", "words"]
    parser.add_argument("what", choices=whats)
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--sink", required=True, help="topic to read; words: a source")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds left out")
    parser.add_argument("--seconds", type=float, default=30.0, help="of measuring")
    parser.add_argument("--words", type=int, default=10, help="words a line")
    parser.add_argument("--moments", default="", help="times in ms, with commas between")
    parser.add_argument("--source", help="answers: what the sink answers to")
    parser.add_argument("--sent", help="counts: file with what `words` printed of the source")
    parser.add_argument("--job", choices=list(JOBS), help="answers: which are right")
    parser.add_argument("--judged", default="", help="answers: only keys that end in one of these")
    parser.add_argument("--complete", action="store_true", help="answers, counts: to all records")
    options = parser.parse_args(arguments)
    kafka, sink = options.kafka, options.sink
    if options.what == "latency":
        _print(latency(kafka, sink, warm_up_s=options.warm_up, seconds=options.seconds))
    elif options.what == "rises":
        moments = [int(m) for m in options.moments.split(",")]
        everywhere = (list(read_partition(kafka, sink, p)) for p in partitions(kafka, sink))
        _print(first_progress(everywhere, moments))
    elif options.what in _JUDGED:
        _print(_JUDGED[options.what](options))
    else:
        for document in follow(kafka, sink):
            _print(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
