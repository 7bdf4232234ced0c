"""What a broker answers about the sink topics of an epoch that does not end. Pure.

A writer waits half a minute for a topic that the broker does not know, or does not let it write to:
either answer may change. The writer reports nothing meanwhile, so the leader asks, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from perseid.coordinator.model import JobState
from perseid.errors import TransientAnswer, settling

ASKED_S = 5.0  # longer than most epochs, for which the leader does not ask


def asked(job: JobState) -> frozenset[str]:
    """The topics that its epoch may wait for."""
    if job.program is None or job.health.stalled_for_s < ASKED_S:
        return frozenset()
    return frozenset(job.program.spec.written_topics)


def with_answers(job: JobState, answers: Mapping[str, str]) -> JobState:
    """With an event for each answer about one of its topics, once an epoch."""
    final_s = settling.FINAL_S[TransientAnswer.__name__]
    texts = [
        f"epoch {job.done + 1} waits, and the job fails if the broker repeats this for "
        f"{final_s:.0f} s: {answers[topic]}"
        for topic in sorted(asked(job) & answers.keys())
    ]
    return job.with_events(*(text for text in texts if text not in job.health.events))
