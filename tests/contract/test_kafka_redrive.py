"""Dead letters go back once each, wherever a redrive is killed; on the model and on the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perseid.cli import redrive
from perseid.cli.dead_letters import Letter, Target, target
from perseid.cli.redrive import Outcome, Redrive, Trail
from perseid.clocks import SystemClock
from perseid.errors import PermanentError, RetryableError
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.records import Redriven
from perseid.topics.transactions import PartitionBatch, Transaction, Transactions
from perseid.worker.dead_letters import refused
from support.kafka_handle import Kafka

LETTERS = 7
BATCH = 3


class KilledError(BaseException):
    """The process is gone: no later line of the code runs."""


class Killing:
    """Gives out transactions of which the `at`-th dies before or after its commit."""

    def __init__(self, real: Transactions, at: int, *, committed: bool) -> None:
        self._real, self._at, self._committed = real, at, committed

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Nothing is prepared."""

    def longest_s(self) -> float:
        return self._real.longest_s()

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> Transaction:  # fmt: skip
        self._at -= 1
        found = self._real.acquire(transactional_id, batch_bytes, timeout_s)
        return _Mortal(found, committed=self._committed) if self._at == 0 else found


class _Mortal:
    def __init__(self, real: Transaction, *, committed: bool) -> None:
        self._real, self._committed = real, committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self, timeout_s: float) -> bool:
        if self._committed:
            self._real.commit(timeout_s)
        raise KilledError

    def close(self) -> None:
        """A process that was killed closes nothing: what is open stays open."""


class Overtaken:
    """Before its `at`-th transaction begins, another redrive does everything."""

    def __init__(self, real: Transactions, at: int, other: Callable[[], object]) -> None:
        self._real, self._at, self._other = real, at, other

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Nothing is prepared."""

    def longest_s(self) -> float:
        return self._real.longest_s()

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> Transaction:  # fmt: skip
        self._at -= 1
        found = self._real.acquire(transactional_id, batch_bytes, timeout_s)
        if self._at == 0:
            self._other()
        return found


class Post:
    """A job with dead letters of its source, all of them from partition 1."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.job = kafka.job()
        self.lines, self.dead = kafka.topic(2), kafka.topic()
        kafka.topics.create(names.redriven(self.job), 1)
        self.write(range(LETTERS))

    def write(self, numbers: Sequence[int]) -> None:
        rows = [
            {"topic": self.lines, "partition": 1, "offset": n, "kind": "BadInputError",
             "reason": "no UTF-8", "operator": None}
            for n in numbers
        ]  # fmt: skip
        self.send(
            PartitionBatch(
                self.dead, 0, [b"k%d" % n for n in numbers], [b"bad %d" % n for n in numbers],
                [refused.headers(row, self.job, 4) for row in rows],
            )
        )  # fmt: skip

    def send(self, batch: PartitionBatch) -> None:
        sender = self.kafka.transactions.acquire(f"of-{batch.topic}", 1_000_000, 20)
        sender.begin()
        sender.send(batch)
        sender.flush(20)
        sender.commit(20)
        sender.close()
        # A commit's answer comes before its markers, and `letters` ends where nothing is open.
        place = (batch.topic, batch.partition)
        end = self.kafka.topics.ends([place], committed=False)[place]
        until(lambda: self.kafka.topics.ends([place])[place] >= end, 20, f"{place} is readable")

    def trail(self) -> Trail:
        topic_id = self.kafka.topics.identities([self.dead])[self.dead]
        return Trail(self.job, topic_id, self.kafka.topics, self.kafka.reader())

    def letters(self) -> list[Letter]:
        place = (self.dead, 0)
        starts, ends = self.kafka.topics.starts([place]), self.kafka.topics.ends([place])
        return list(redrive.letters(self.kafka.ranges, starts, ends))

    def run(
        self,
        transactions: Transactions | None = None,
        made: Callable[[Letter], Target | None] = lambda letter: target(letter, good(letter)),
        *,
        dry_run: bool = False,
    ) -> Outcome:
        """One run of the command, in a process of its own as far as the trail goes."""
        info = self.kafka.topics.describe([self.dead])[self.dead]
        trail = self.trail()
        trail.read(settled=False)
        run = Redrive(
            self.job, info, trail, transactions or self.kafka.transactions, SystemClock(),
            transform="fix.py:good", batch_bytes=1_000_000,
        )  # fmt: skip
        return run.run(self.letters(), made, dry_run=dry_run)

    def sent(self) -> list[bytes]:
        return self.kafka.values(self.lines, 1)


def good(letter: Letter) -> bytes:
    return (letter.value or b"").replace(b"bad", b"good")


ALL = [b"good %d" % n for n in range(LETTERS)]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "BATCH_LETTERS", BATCH)


def test_letters_go_to_the_partition_of_their_record_with_a_way_back(kafka: Kafka) -> None:
    post = Post(kafka)
    outcome = post.run()
    assert post.sent() == ALL
    assert kafka.values(post.lines, 0) == []
    end = kafka.topics.ends([(post.lines, 1)], committed=False)[post.lines, 1]
    found = [m for batch in kafka.ranges.read(post.lines, 1, 0, end) for m in batch]
    for letter, message, reported in zip(post.letters(), found, outcome.redriven, strict=True):
        assert message.key() == letter.key
        headers: Any = message.headers()
        assert dict(headers) == {
            "perseid.redriven.topic": post.dead.encode(),
            "perseid.redriven.partition": b"0",
            "perseid.redriven.offset": str(letter.offset).encode(),
        }
        assert (reported.partition, reported.offset) == letter.place
        assert (reported.topic, reported.to_partition) == (post.lines, 1)
        assert reported.first == reported.last == message.offset()


def test_the_trail_forgets_letters_that_are_gone(kafka: Kafka) -> None:
    post = Post(kafka)
    post.run()
    place = names.redriven(post.job), 0
    logs, topics = kafka.reader(), kafka.topics
    assert redrive.forget(post.job, topics, logs) == 0  # all letters are there
    offsets = [letter.offset for letter in post.letters()]
    kafka.topics.delete_records({(post.dead, 0): offsets[BATCH]})  # of its first transaction
    cut = redrive.forget(post.job, topics, logs)
    assert 0 < cut == topics.starts([place])[place] < topics.ends([place])[place]
    assert post.run().redriven == []  # what is left was redriven, and is known to be
    assert post.sent() == ALL
    topics.delete([post.dead])
    until(lambda: not topics.identities([post.dead]), 20, "the topic to go")
    redrive.forget(post.job, topics, logs)
    assert kafka.values(*place) == []
    assert topics.starts([place])[place] > cut


class Starting:
    """A broker that starts: it does not know any topic yet."""

    def __init__(self, topics: Any) -> None:
        self._topics = topics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def describe(self, _: Sequence[str]) -> dict[str, Any]:
        return {}


def test_the_trail_forgets_nothing_because_a_broker_starts(kafka: Kafka) -> None:
    post = Post(kafka)
    post.run()
    logs = kafka.reader()
    assert redrive.forget(post.job, Starting(kafka.topics), logs) == 0
    assert post.run().already == LETTERS


def test_nothing_is_sent_while_a_broker_does_not_know_the_trail(kafka: Kafka) -> None:
    post = Post(kafka)
    post.run()
    topic_id = kafka.topics.identities([post.dead])[post.dead]
    trail = Trail(post.job, topic_id, Starting(kafka.topics), kafka.reader())
    trail.read(settled=False)  # it may be that there is none
    with pytest.raises(RetryableError, match="does not know"):
        trail.read(settled=True)


def test_another_run_sends_only_what_is_new(kafka: Kafka) -> None:
    post = Post(kafka)
    assert len(post.run().redriven) == LETTERS
    again = post.run()
    assert (again.redriven, again.already) == ([], LETTERS)
    post.write([LETTERS])
    later = post.run()
    assert (len(later.redriven), later.already) == (1, LETTERS)
    assert post.sent() == [*ALL, b"good %d" % LETTERS]


@pytest.mark.parametrize("committed", [False, True], ids=["open", "committed"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_redrive_that_was_killed_resumes(kafka: Kafka, at: int, committed: bool) -> None:
    post = Post(kafka)
    with pytest.raises(KilledError):
        post.run(Killing(kafka.transactions, at, committed=committed))
    done = min(BATCH * (at if committed else at - 1), LETTERS)
    again = post.run()
    assert post.sent() == ALL
    # What was committed may not be readable yet when the second run looks first, but then it
    # acquires the id, which waits for it.
    assert len(again.redriven) + again.already == LETTERS
    assert again.already <= done
    assert post.run().already == LETTERS
    assert [r.letters for r in trail_records(post)] == sorted(
        (r.letters for r in trail_records(post)), key=lambda letters: letters[0].offset
    )


def trail_records(post: Post) -> list[Redriven]:
    found = [codec.decode(v) for v in post.kafka.values(names.redriven(post.job))]
    return [record for record in found if isinstance(record, Redriven)]


def test_a_second_redrive_of_the_job_takes_over_from_the_first(kafka: Kafka) -> None:
    post = Post(kafka)
    outcome = post.run(Overtaken(kafka.transactions, 2, post.run))
    assert post.sent() == ALL
    assert len(outcome.redriven) + outcome.already == LETTERS
    assert sum(len(record.letters) for record in trail_records(post)) == LETTERS


def test_what_a_transform_leaves_out_is_sent_by_a_later_one(kafka: Kafka) -> None:
    post = Post(kafka)
    outcome = post.run(
        made=lambda letter: None if letter.value == b"bad 4" else target(letter, b"x")
    )
    assert outcome.skipped == [post.letters()[4].place]
    assert len(post.sent()) == LETTERS - 1
    later = post.run()
    assert (len(later.redriven), later.already) == (1, LETTERS - 1)
    assert post.sent()[-1] == b"good 4"


def test_when_a_transform_raises_nothing_of_its_batch_is_sent(kafka: Kafka) -> None:
    post = Post(kafka)

    def made(letter: Letter) -> Target:
        if letter.value == b"bad 4":
            raise PermanentError(f"{letter}: transform fix.py:good raised ValueError")
        return target(letter, good(letter))

    with pytest.raises(PermanentError, match=r"0:4 of .*; 3 letters before it were redriven"):
        post.run(made=made)
    assert post.sent() == ALL[:BATCH]
    post.run()
    assert post.sent() == ALL


def test_a_dry_run_sends_and_notes_nothing(kafka: Kafka) -> None:
    post = Post(kafka)
    assert len(post.run(dry_run=True).redriven) == LETTERS
    assert post.sent() == []
    assert trail_records(post) == []


def test_letters_of_a_topic_that_was_recreated_are_others(kafka: Kafka) -> None:
    post = Post(kafka)
    post.run()
    other = Trail(post.job, "another-id", kafka.topics, kafka.reader())
    other.read(settled=True)
    assert other.found == {}


def test_an_undecided_trail_is_ignored(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look at it is another thing: what is not decided is not shown."""
    monkeypatch.setattr(redrive, "ATTEMPT_S", 0.5)
    post = Post(kafka)
    topic = names.redriven(post.job)
    other = kafka.transactions.acquire(f"of-{topic}", 1_000_000, 20)
    other.begin()
    other.send(PartitionBatch(topic, 0, [None], [codec.encode(Redriven("d", "i", 0, "", ()))]))
    other.flush(20)
    post.trail().read(settled=False)
    with pytest.raises(RetryableError):
        post.trail().read(settled=True)
    other.commit(20)
    other.close()
    post.trail().read(settled=True)


def test_a_redrive_stops_and_prints_how_to_resume() -> None:
    from support import kafka_handle

    kafka = kafka_handle.fake()
    post = Post(kafka)
    assert kafka.model is not None
    for _ in range(redrive.ATTEMPTS_MAX):
        kafka.model.fail("commit", "lost")
    with pytest.raises(RetryableError, match="run the command again"):
        post.run()
    kafka.model.fail("commit", "unanswered", "lost", "unanswered")
    assert len(post.run().redriven) == LETTERS
    assert post.sent() == ALL
