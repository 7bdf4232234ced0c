"""A fragment's last report is sent again when the progress topic has lost it."""

from __future__ import annotations

import pytest

from perseid.engine.last_word import LastWord
from perseid.errors import RetryableError
from perseid.testing.kafka import FakeLogWriter
from perseid.testing.kafka_disk import ModelDisk
from perseid.topics import codec, names
from perseid.topics.log import ProgressLog
from perseid.topics.records import FragmentState
from support import kafka_handle

RUNNING = FragmentState("u", 1, "w", "running", 0)
AGAIN = FragmentState("u", 1, "w", "repeated", 7)
PARTS = FragmentState("u", 1, "w", "restoring", 7)  # anything that another writer reports


class Site:
    """A fragment that has reported that it runs, after three reports of others."""

    def __init__(self) -> None:
        self.kafka = kafka_handle.fake()
        assert self.kafka.model is not None
        self.model = self.kafka.model
        self.job = self.kafka.job()
        self.topic = names.progress(self.job)
        self.kafka.topics.create(self.topic, 1)
        log = ProgressLog(self.job, writer=self.kafka.writer)
        for _ in range(3):
            log.append(RUNNING)
        self.word = LastWord(self.job, log, self.kafka.topics, self.kafka.reader)
        self.word.append(RUNNING)

    def recorded(self) -> list[object]:
        return [codec.decode(value) for value in self.kafka.values(self.topic)]


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_word_that_is_there_is_not_repeated(site: Site) -> None:
    assert not site.word.look(AGAIN)
    ModelDisk(site.model).flush()
    assert not site.word.look(AGAIN)
    assert site.recorded() == [RUNNING] * 4


def test_a_word_that_was_cut_off_is_reported_again_once(site: Site) -> None:
    ModelDisk(site.model).cut((site.topic, 0), 2)
    assert not site.word.look(AGAIN)  # the producer that wrote before is refused
    assert site.word.look(AGAIN)
    assert site.word.look(AGAIN)
    assert site.word.look(AGAIN)  # up to after the one that is lost
    assert not site.word.look(AGAIN)
    assert site.recorded() == [RUNNING, RUNNING, AGAIN, AGAIN, AGAIN]


def test_a_report_in_whose_place_another_writer_wrote_is_sent_again(site: Site) -> None:
    ModelDisk(site.model).cut((site.topic, 0), 3)
    other = ProgressLog(site.job, writer=FakeLogWriter(site.model))
    assert other.append(PARTS) == 3
    assert not site.word.look(AGAIN)  # the producer that wrote before is refused
    assert site.word.look(AGAIN)
    assert not site.word.look(AGAIN)
    assert site.recorded() == [RUNNING, RUNNING, RUNNING, PARTS, AGAIN]


def test_a_word_that_came_in_place_of_a_lost_one_is_reported_again_after_it(site: Site) -> None:
    """Who has read the lost one reads on after it, and would not see the newer word."""
    site.word.append(RUNNING)  # at 4
    ModelDisk(site.model).cut((site.topic, 0), 3)
    with pytest.raises(RetryableError):
        site.word.append(AGAIN)  # the producer that wrote before is refused
    assert site.word.append(AGAIN) == 3
    assert site.word.look(AGAIN)  # at 4
    assert site.word.look(AGAIN)  # at 5, where nothing was read yet
    assert not site.word.look(AGAIN)
    assert site.recorded() == [RUNNING] * 3 + [AGAIN] * 3


@pytest.mark.parametrize("records", [0, 9])
def test_a_topic_that_was_made_again_has_not_heard_it(site: Site, records: int) -> None:
    """Also where it has grown as long as the old one was."""
    assert not site.word.look(AGAIN)
    site.kafka.topics.delete([site.topic])
    site.kafka.topics.create(site.topic, 1)
    for _ in range(records):
        site.kafka.writer.append(site.topic, 0, codec.encode(RUNNING))
    assert site.word.look(AGAIN)
    assert site.recorded()[-1] == AGAIN


def test_a_broker_that_is_away_proves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryableError("no answer")

    monkeypatch.setattr(site.kafka.topics, "identities", away)
    assert not site.word.look(AGAIN)
    monkeypatch.undo()
    assert site.recorded() == [RUNNING] * 4
