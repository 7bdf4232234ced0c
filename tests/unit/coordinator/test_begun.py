"""Where sources begin at a load: named, taken back, and topics that had a source's name before."""

from __future__ import annotations

from perseid.coordinator import sources
from perseid.coordinator.job.positions import Position, ranges_in
from perseid.jobs.model.spec import SourceSpec
from perseid.topics.records import SourceRange, Token
from support.coordinator import job_spec

SPEC = job_spec(sources={"lines": SourceSpec(topic="new-lines", format="text")})


def token(epoch: int, topic: str, start: int) -> Token:
    split = (SourceRange("lines", topic, f"id of {topic}", 0, start, start + 10),)
    return Token(1, "u1", epoch, epoch - 1, "r1", 1, (split,), epoch)


def test_what_was_taken_back_begins_where_it_had_begun() -> None:
    back = [token(2, "new-lines", 5), token(2, "new-lines", 15)]
    assert sources.begun(SPEC, [], back) == {
        ("lines", 0): Position("new-lines", "id of new-lines", 5)
    }


def test_what_a_token_names_resumes_after_it() -> None:
    kept = token(1, "new-lines", 5)
    assert sources.begun(SPEC, [kept], [kept, token(2, "new-lines", 15)]) == {}


def test_another_topic_of_the_same_name_means_nothing_for_this_one() -> None:
    """A revision had it, one in between had none, and the one of now has another."""
    kept, back = token(1, "old-lines", 700), token(2, "new-lines", 5)
    begins = {("lines", 0): Position("new-lines", "id of new-lines", 5)}
    assert sources.begun(SPEC, [kept], [kept, back]) == begins
    assert sources.begun(SPEC, [], [kept]) == {}
    assert ranges_in(SPEC, kept) == ()
    assert [r.start for r in ranges_in(SPEC, back)] == [5]
