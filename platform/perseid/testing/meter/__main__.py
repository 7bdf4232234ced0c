"""`python -m perseid.testing.meter WHAT --kafka H:P --sink T`: JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from perseid.testing.meter.answers import AnswerCheck
from perseid.testing.meter.counted import first_news, speed
from perseid.testing.meter.live import follow, latency
from perseid.testing.payments import JOBS
from perseid.testing.verify.read import partitions, read_partition, read_topic


def _print(document: Any) -> None:
    print(json.dumps(document), flush=True)


def _answers(options: argparse.Namespace) -> dict[str, Any]:
    check = AnswerCheck(JOBS[options.job](), options.judged.encode())
    for record in read_topic(options.kafka, options.sink):
        check.output(record)
    check.input(read_topic(options.kafka, options.source), complete=options.complete)
    rate, seconds = check.rate(warm_up_s=options.warm_up, window_s=options.seconds)
    return {"answers_per_s": rate, "seconds": seconds, **check.verdict().as_dict()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perseid.testing.meter", description=__doc__)
    parser.add_argument("what", choices=["speed", "latency", "news", "follow", "answers"])
    parser.add_argument("--kafka", required=True, help="bootstrap servers")
    parser.add_argument("--sink", required=True)
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds left out")
    parser.add_argument("--seconds", type=float, default=30.0, help="of measuring")
    parser.add_argument("--words", type=int, default=10, help="words a line")
    parser.add_argument("--moments", default="", help="times in ms, with commas between")
    parser.add_argument("--source", help="answers: what the sink answers to")
    parser.add_argument("--job", choices=list(JOBS), help="answers: which are right")
    parser.add_argument("--judged", default="", help="answers: only keys that end in one of these")
    parser.add_argument("--complete", action="store_true", help="answers: to all records")
    options = parser.parse_args(arguments)
    kafka, sink = options.kafka, options.sink
    if options.what == "speed":
        found = speed(
            read_topic(kafka, sink),
            warm_up_s=options.warm_up,
            words_per_line=options.words,
            window_s=options.seconds,
        )
        _print(asdict(found))
    elif options.what == "latency":
        _print(latency(kafka, sink, warm_up_s=options.warm_up, seconds=options.seconds))
    elif options.what == "news":
        moments = [int(m) for m in options.moments.split(",")]
        everywhere = (list(read_partition(kafka, sink, p)) for p in partitions(kafka, sink))
        _print(first_news(everywhere, moments))
    elif options.what == "answers":
        _print(_answers(options))
    else:
        for document in follow(kafka, sink):
            _print(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
