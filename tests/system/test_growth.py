"""What would grow without end, on a cluster that runs: logs of a job, and of its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.embedded.rotation import LOG_BYTES_MAX
from perseid.logs.lengths import LINE_CHARS_MAX
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.admin import TopicAdmin
from perseid.topics.records import Claim, LedgerRecord, Token

JOB, LINES, COUNTS = "growth", "growth-lines", "growth-counts"
TRIMMED_S = 240.0  # 200 epochs, and the next checkpoint after 20 s
PRINTED = "what the operator has"


@pytest.fixture
def job(running: RunningCluster, tmp_path: Path) -> Iterator[str]:
    """A word count with a checkpoint every two seconds, which prints 10 MB a batch."""
    running.topic(LINES)
    texts = {
        "name: wordcount": f"name: {JOB}", "topic: lines": f"topic: {LINES}",
        "topic: word-counts": f"topic: {COUNTS}", 'period: "30s"': 'period: "2s"',
    }  # fmt: skip
    folder = example(tmp_path / JOB, "wordcount", texts)
    code = (folder / "wordcount.py").read_text()
    emits = "        out.emit(self.total"
    assert emits in code
    (folder / "wordcount.py").write_text(
        code.replace(emits, f'        print("{PRINTED}", "x" * 10_000_000, flush=True)\n{emits}')
    )
    running.do("jobs", "apply", str(folder))
    yield JOB
    running.do("jobs", "remove", JOB, "--purge")


@pytest.mark.drawn(group="field")
def test_logs_of_a_job_and_of_its_processes_stay_small(running: RunningCluster, job: str) -> None:
    topics = TopicAdmin(running.kafka)
    tokens, ledger = (names.tokens(job), 0), names.ledger(job)
    running.produce(LINES, lines(20, 0))
    running.wait_caught_up(job)
    places = [(ledger, p) for p in range(topics.describe([ledger])[ledger].partitions)]
    seed = 0

    def trimmed() -> bool:
        """Many epochs were run, and a trim has come since the ledgers were worth it."""
        nonlocal seed
        seed += 1
        running.produce(LINES, lines(20, seed))
        return min(topics.starts([tokens, *places]).values()) > 0

    until(trimmed, TRIMMED_S, "token log and ledger to be trimmed")
    running.wait_caught_up(job)
    running.do("jobs", "stop", job, "--checkpoint")
    shown = running.do("jobs", "show", job)
    oldest = min(checkpoint["epoch"] for checkpoint in shown["checkpoints"])
    first = next(iter(read_topic(running.kafka, tokens[0])))
    begins_with = codec.decode_token(tokens[0], first.offset, first.value or b"")
    assert isinstance(begins_with, Token)
    assert begins_with.checkpoint
    assert 1 < begins_with.epoch <= oldest

    starts = topics.starts(places)
    held: dict[tuple[str, int], list[int]] = {place: [] for place in places}
    for record in read_topic(running.kafka, ledger):
        entry = codec.decode(record.value or b"")
        assert isinstance(entry, LedgerRecord)
        held[ledger, record.partition].append(entry.epoch)
    for place in places:
        assert starts[place] > 0
        # A later trim of the token log may have found the ledgers too short to be worth it.
        assert 1 < held[place][0] <= begins_with.epoch + 1

    claims = [r for r in read_topic(running.kafka, tokens[0])
              if isinstance(codec.decode(r.value or b""), Claim)]  # fmt: skip
    assert len(claims) <= 1

    printed = [
        line for text in running.logs().values() for line in text.splitlines() if PRINTED in line
    ]
    assert printed
    assert max(map(len, printed)) < 2 * LINE_CHARS_MAX
    assert max(path.stat().st_size for path in running.logs()) < 2 * LOG_BYTES_MAX

    running.do("jobs", "start", job)
    running.produce(LINES, lines(300, 99))
    running.wait_caught_up(job)
    assert verify_wordcount(running.kafka, LINES, COUNTS).ok
    assert running.job(job)["state"] == "running"
