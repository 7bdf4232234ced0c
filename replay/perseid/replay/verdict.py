"""The verdict of an audit and its reasons: the table in AUDITS.md. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perseid.replay.findings import Compared, ComparedState, Verdict

PLACES_MAX = 5  # that a reason names
BETWEEN = " and "  # several values of an item: the recorded epochs ran in several environments


@dataclass(frozen=True, slots=True)
class Facts:
    """What an audit has seen. Texts name the first place, as a reader of the report should.

    `gone`: what of the input or the token log was removed, "" if all is there. `input_changed`:
    where the input is not the recorded one. `sink_changed`: the places whose records are not those
    of the ledger, though the outputs were made again. `differs`: where the outputs differ from the
    committed ones. `state`: where the state differs from a checkpoint. `repeated`: where two runs
    of the recorded revision differ from each other, "" if nowhere; None: it ran once.
    """

    revision: str
    audited: str
    first_epoch: int
    last_epoch: int
    gone: str = ""
    input_changed: str = ""
    sink_changed: tuple[str, ...] = ()
    differs: str = ""
    repeated: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    compared: tuple[Compared, ...] = ()
    state: str = ""
    states: tuple[ComparedState, ...] = ()

    @property
    def deviates(self) -> bool:
        """Whether the run has other outputs, or another state, than the job had."""
        return bool(self.differs or self.state)


def judged(facts: Facts) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict and its reasons for users, of which the first explains it."""
    verdict = _verdict(facts)
    reasons = [_explained(verdict, facts), *_further(verdict, facts)]
    return verdict, tuple(reason for reason in reasons if reason)


def changes(recorded: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """What both name and have otherwise. What one does not know is no change.

    >>> changes({"numpy": "2.1.0", "libc": "glibc-2.36"}, {"numpy": "2.2.0", "python": "3.11"})
    {'numpy': '2.1.0 recorded, 2.2.0 here'}
    >>> changes({"cpu": "AVX2 AVX512F SSE"}, {"cpu": "AVX2 SSE VSX"})
    {'cpu': 'AVX512F recorded, VSX here'}
    """
    return {
        name: _change(value, environment[name])
        for name, value in sorted(recorded.items())
        if environment.get(name, value) != value
    }


def _change(recorded: str, here: str) -> str:
    """Of lists of words, as of a processor's instructions, those that one side has alone."""
    others = [value for value in recorded.split(BETWEEN) if value != here]
    one = BETWEEN.join(_words_of(value, here) for value in others)
    return f"{one} recorded, {_words_of(here, others[0])} here"


def _words_of(one: str, other: str) -> str:
    return " ".join(sorted(set(one.split()) - set(other.split()))) or "no more"


def _verdict(facts: Facts) -> Verdict:
    other_revision = facts.audited != facts.revision
    table: list[tuple[Verdict, object]] = [
        ("input_gone", facts.gone),
        ("input_changed", facts.input_changed),
        ("sink_changed", facts.sink_changed),
        ("not_deterministic", facts.repeated),
        (
            "environment_differs",
            facts.deviates
            and facts.repeated is not None
            and not other_revision
            and changes(facts.recorded, facts.environment),
        ),
        ("diverged", facts.deviates),
    ]
    return next((verdict for verdict, holds in table if holds), "equal")


def _explained(verdict: Verdict, facts: Facts) -> str:
    epochs = f"epochs {facts.first_epoch} to {facts.last_epoch}"
    texts: dict[Verdict, str] = {
        "input_gone": f"The {epochs} cannot be run again: {facts.gone}.",
        "input_changed": f"The input is not the one that was recorded: {facts.input_changed}.",
        "sink_changed": (
            "The job makes the outputs that its ledger has again, and the sink topic has other "
            f"records: {_some(facts.sink_changed)}. Another writer has changed them; where others "
            "may write, audit with --mixed TOPIC."
        ),
        "not_deterministic": (
            f"Two runs of revision {facts.revision} over the same input differ from each other: "
            f"{facts.repeated}. Look in its code for clocks, random numbers, the order of sets and "
            "other services (`perseid jobs test`)."
        ),
        "environment_differs": (
            f"Revision {facts.revision} has {_deviation(facts, 'it had')}. The environment is "
            f"another one: {_listed(facts)}."
        ),
        "diverged": f"{_who(facts)} has {_deviation(facts, 'were committed')}.",
        "equal": (
            f"{_who(facts)} makes all outputs of {epochs} again as they were committed"
            f"{_equal_states(facts)}."
        ),
    }
    return texts[verdict]


def _further(verdict: Verdict, facts: Facts) -> Iterator[str]:
    if verdict == "diverged":
        yield _of_second_run(facts)
        yield _of_environment(facts)
    if verdict in {"sink_changed", "not_deterministic"} and facts.differs:
        yield f"The outputs differ from the committed ones too: {facts.differs}."
    explained = {"input_gone", "input_changed"}
    if not facts.differs:
        explained |= {"diverged", "environment_differs"}
    if facts.state and verdict not in explained:
        yield f"The state differs from the job's: {facts.state}."
    for one in facts.compared:
        if one.why:
            alone = " was compared by the ledger alone" if one.by == "ledger" else ""
            yield f"Topic {one.topic}{alone}: {one.why}."
    for state in facts.states:
        if state.why:
            yield (
                f"Not all of the state was compared with the checkpoint of epoch {state.epoch}: "
                f"{state.why}."
            )


def _of_second_run(facts: Facts) -> str:
    if facts.repeated is None:
        return (
            f"Revision {facts.revision} was not run a second time, so it may be not deterministic."
        )
    return f"Two runs of revision {facts.revision} are equal, so chance is not the cause."


def _of_environment(facts: Facts) -> str:
    if changes(facts.recorded, facts.environment):
        return f"The environment is another one too: {_listed(facts)}."
    if not facts.recorded:
        return f"The environment of revision {facts.revision} was not recorded."
    return "The environment is the recorded one."


def _deviation(facts: Facts, than: str) -> str:
    """What is another one than the job's; `than`: in which outputs differ."""
    if facts.differs:
        return f"other outputs than {than}: {facts.differs}"
    return f"the same outputs, and another state than the job had: {facts.state}"


def _equal_states(facts: Facts) -> str:
    epochs = [str(state.epoch) for state in facts.states if state.partitions]
    if not epochs:
        return ""
    named = f"checkpoint of epoch {epochs[0]}"
    if len(epochs) > 1:
        named = f"checkpoints of epochs {_some(tuple(epochs))}"
    return f", with the state of the {named}"


def _who(facts: Facts) -> str:
    if facts.audited == facts.revision:
        return f"Revision {facts.revision}"
    return f"Revision {facts.audited} in the place of {facts.revision}"


def _listed(facts: Facts) -> str:
    found = changes(facts.recorded, facts.environment)
    return "; ".join(f"{name} {change}" for name, change in found.items())


def _some(places: tuple[str, ...]) -> str:
    more = f" and {len(places) - PLACES_MAX} more" if len(places) > PLACES_MAX else ""
    return ", ".join(places[:PLACES_MAX]) + more
