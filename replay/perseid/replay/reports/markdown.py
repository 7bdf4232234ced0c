"""The Markdown form, for a comment on a pull request: short, and cut to what a comment holds. Pure.

Names and values come from users' data. They are written so that they cannot be Markdown, HTML, a
mention or a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perseid.replay.findings import Audit, Cause, Difference
from perseid.replay.reports import wording
from perseid.replay.reports.values import joined, key_of, values_of

CHARS_MAX = 60_000  # of the whole; GitHub takes 65,536
CAUSES_MAX = 10
SAMPLES_MAX = 3  # of a cause; the other forms have all
TOPICS_MAX = 30
CHECKPOINTS_MAX = 10  # the newest
_VALUE_MAX = 200  # characters
_SIGNS = {"equal": "✅", "input_gone": "⚠️", "input_changed": "⚠️"}
_MARKUP = re.compile(r"[&\\`*_\[\]<>#|~$]|:(?=\S)")


def as_markdown(audit: Audit) -> str:
    """The verdict first, then its reasons, how topics were compared, and the causes."""
    text = ""
    for part in _parts(audit):
        if len(text) + len(part) > CHARS_MAX:
            return text + "_The rest is left out; the other forms of the report have it._\n"
        text += part + "\n"
    return text


def _parts(audit: Audit) -> Iterator[str]:
    """The page in pieces that can each be the last."""
    sign = _SIGNS.get(audit.verdict, "❌")
    yield f"## {sign} Audit of {_code(audit.job)}: {wording.title(audit)}\n"
    yield from (f"{_text(one)}\n" for one in wording.reasons(audit))
    yield _table(("", ""), _facts(audit))
    if audit.compared:
        rows = [
            (_code(one.topic), f"{one.records:,}", f"{one.windows:,}", _text(wording.method(one)))
            for one in audit.compared[:TOPICS_MAX]
        ]
        yield _table(("topic", "records", "windows", "compared by"), rows)
    if len(audit.compared) > TOPICS_MAX:
        yield f"And {wording.count(len(audit.compared) - TOPICS_MAX, 'more topic')}.\n"
    if audit.states:
        states = [
            (f"{one.epoch:,}", f"{one.partitions:,}", f"{one.entries:,}",
             _text(wording.checkpoint(one)))
            for one in audit.states[-CHECKPOINTS_MAX:]
        ]  # fmt: skip
        yield _table(("checkpoint of epoch", "partitions", "entries", "state"), states)
    if len(audit.states) > CHECKPOINTS_MAX:
        earlier = wording.count(len(audit.states) - CHECKPOINTS_MAX, "earlier checkpoint")
        yield f"And {earlier}.\n"
    for one in audit.causes[:CAUSES_MAX]:
        yield _cause(one)
    if len(audit.causes) > CAUSES_MAX:
        yield f"And {wording.count(len(audit.causes) - CAUSES_MAX, 'more cause')}.\n"
    differing = [
        (_code(part), _code(then), _code(now))
        for part, then, now, differs in wording.environment(audit)
        if differs
    ]
    if differing:
        yield _table(("environment", "recorded", "this run"), differing)
    version = _text(wording.name(audit.version))
    yield f"<sub>perseid {version}, {wording.moment(audit.time_ms)}</sub>"


def _facts(audit: Audit) -> list[tuple[str, str]]:
    return [
        ("**epochs**", wording.epochs(audit)),
        ("**time**", wording.period(audit)),
        ("**revision**", _text(wording.revision(audit))),
        ("**run from**", _text(wording.name(audit.base))),
        ("**input**", wording.count(audit.records_in, "record")),
        ("**took**", wording.seconds(audit.seconds)),
    ]


def _cause(one: Cause) -> str:
    head = f"**{_text(wording.cause(one))}**: {_text(wording.extent(one))}\n"
    if not one.samples:
        return head
    chosen = one.samples[:SAMPLES_MAX]
    body = "\n".join(map(_sample, chosen))
    label = f"{wording.count(len(chosen), 'sample')} of {one.records:,}"
    return f"{head}\n<details><summary>{label}</summary>\n\n```diff\n{body}\n```\n</details>\n"


def _sample(one: Difference) -> str:
    """Lines of a fenced block: each begins with its sign, so no value can end the block."""
    key = key_of(one, _VALUE_MAX)
    lines = [f"@@ {wording.place(one)}{', key ' if key else ''}{key} @@"]
    values = values_of(one, _VALUE_MAX)
    lines += [f"- {joined(values[0])}"] * (one.committed is not None)
    lines += [f"+ {joined(values[1])}"] * (one.made is not None)
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _code(text: str) -> str:
    """A name as code: there neither Markdown nor mentions count."""
    return f"<code>{_entities(wording.name(text))}</code>" if text else "unknown"


def _text(text: str) -> str:
    """A sentence of which no word is a mention of a person or a team."""
    return _entities(text).replace("@", "@&#8203;")


def _entities(text: str) -> str:
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)
