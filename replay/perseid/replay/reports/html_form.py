"""The HTML form: one page that needs no network and no script. Pure.

Every text of the audit passes `_e`, and the page's policy forbids scripts and requests: a payload
stays text. Colours have a contrast of at least 4.5 in both themes, and nothing is shown by colour
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as _e

from perseid.replay.findings import Audit, Cause, Difference, Record
from perseid.replay.reports import wording
from perseid.replay.reports.values import Pieces, key_of, values_of

_VALUE_MAX = 400  # characters
_SIGNS = {"equal": ("good", "✓"), "input_gone": ("odd", "?"), "input_changed": ("odd", "?")}
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1b1f24; --soft: #57606a;
  --line: #d5d9de; --good: #116329; --bad: #b3151f; --odd: #7a4d00; --mark: #ffe08a; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1318; --card: #181e25; --text: #e6eaef;
  --soft: #a3adb8; --line: #343d47; --good: #5bd07a; --bad: #ff8a85; --odd: #f0b849;
  --mark: #6b4e00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 66rem; background: var(--back);
  color: var(--text); font: 16px/1.55 system-ui, sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.15rem; font-weight: 600; color: var(--soft); }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; }
h3 { margin: 1.75rem 0 .25rem; font-size: 1rem; }
p { margin: .35rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.verdict { margin: 0 0 .75rem; font-size: 2.1rem; line-height: 1.2; font-weight: 700; }
.good { color: var(--good); } .bad { color: var(--bad); } .odd { color: var(--odd); }
.soft, footer { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1px; margin: 1.5rem 0 0;
  background: var(--line); border: 1px solid var(--line); border-radius: .5rem;
  overflow: hidden; }
.facts div { padding: .6rem .9rem; background: var(--card); }
dt { font-size: .8rem; color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
caption { padding: .35rem 0; text-align: left; color: var(--soft); }
th, td { padding: .45rem .75rem .45rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
thead th { font-size: .8rem; color: var(--soft); } tbody th { font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: .85rem/1.5 ui-monospace, monospace; white-space: pre-wrap; }
mark { padding: 0 .1em; border-radius: .2em; background: var(--mark); color: inherit;
  text-decoration: underline; }
footer { margin-top: 3rem; font-size: .85rem; }
.samples { min-width: 46rem; table-layout: fixed; } .samples tbody th { font-weight: 400; }
.samples th:nth-child(1) { width: 26%; } .samples th:nth-child(2) { width: 17%; }
@media (max-width: 48rem) { .facts { grid-template-columns: 1fr; } }
@media print { body { max-width: none; padding: 0; } }
"""


def as_html(audit: Audit) -> str:
    """The page of one audit."""
    tone, sign = _SIGNS.get(audit.verdict, ("bad", "✗"))
    heading = f"Audit of {_e(wording.name(audit.job))}"
    sections = [_compared(audit), _states(audit), _causes(audit), _environment(audit)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{heading}: {_e(wording.title(audit))}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{heading}</h1>
<p class="verdict {tone}"><span aria-hidden="true">{sign}</span> {_e(wording.title(audit))}</p>
{"".join(f"<p>{_e(one)}</p>" for one in wording.reasons(audit))}
{_facts(audit)}
{"".join(sections)}
</main>
<footer>perseid {_e(wording.name(audit.version))}, {wording.moment(audit.time_ms)}, job
<code>{_e(wording.name(audit.job_uuid))}</code>, report format {audit.format}</footer>
</body>
</html>
"""


def _facts(audit: Audit) -> str:
    facts = {
        "Epochs": wording.epochs(audit),
        "Time": wording.period(audit),
        "Revision": wording.revision(audit),
        "Run from": wording.name(audit.base),
        "Input": wording.count(audit.records_in, "record"),
        "Took": wording.seconds(audit.seconds),
    }
    cells = (f"<div><dt>{name}</dt><dd>{_e(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _compared(audit: Audit) -> str:
    if not audit.compared:
        return ""
    rows = (
        f'<tr><th scope="row">{_e(wording.name(one.topic))}</th><td class="n">{one.records:,}</td>'
        f'<td class="n">{one.windows:,}</td><td>{_e(wording.method(one))}</td></tr>'
        for one in audit.compared
    )
    head = (("Topic", ""), ("Records", "n"), ("Windows", "n"), ("Compared by", ""))
    return f"<h2>How it was compared</h2>{_table('The sink topics of the job', head, rows)}"


def _states(audit: Audit) -> str:
    if not audit.states:
        return ""
    rows = (
        f'<tr><th scope="row">{one.epoch:,}</th><td class="n">{one.partitions:,}</td>'
        f'<td class="n">{one.entries:,}</td><td>{_e(wording.checkpoint(one))}</td></tr>'
        for one in audit.states
    )
    head = (("Checkpoint of epoch", ""), ("Partitions", "n"), ("Entries", "n"), ("State", ""))
    return _table("The state at the checkpoints of these epochs", head, rows)


def _causes(audit: Audit) -> str:
    if not audit.causes:
        return ""
    note = (
        '<p class="soft">Keys and values are redacted. Equal tags in this report are equal values.'
        "</p>"
        if audit.redacted
        else ""
    )
    return f"<h2>What differs</h2>{note}{''.join(map(_cause, audit.causes))}"


def _cause(one: Cause) -> str:
    head = f"<h3>{_e(wording.cause(one))}</h3><p>{_e(wording.extent(one))}</p>"
    if not one.samples:
        return head
    before = "In the checkpoint" if one.state else "Committed"
    columns = (("Where", ""), ("Key", ""), (before, ""), ("Made by the audit", ""))
    caption = f"{wording.count(len(one.samples), 'sample')} of {one.records:,}"
    return head + _table(caption, columns, map(_sample, one.samples), "samples")


def _sample(one: Difference) -> str:
    values = values_of(one, _VALUE_MAX)
    key = key_of(one, _VALUE_MAX)
    spot = f'<br><span class="soft">{_e(wording.spot(one))}</span>'
    fields = f"<br>differs in <strong>{_e(wording.fields(one.fields))}</strong>"
    return (
        f'<tr><th scope="row">{_e(wording.part(one))}{spot}{fields if one.fields else ""}</th>'
        f"<td>{f'<code>{_e(key)}</code>' if key else _absent('unknown')}</td>"
        f"<td>{_value(one.committed, one.made, values[0])}</td>"
        f"<td>{_value(one.made, one.committed, values[1])}</td></tr>"
    )


def _value(record: Record | None, other: Record | None, pieces: Pieces) -> str:
    if record is None:
        return _absent("no record" if other else "only its checksum is known")
    marked = (f"<mark>{_e(text)}</mark>" if differs else _e(text) for text, differs in pieces)
    return f"<code>{''.join(marked)}</code>"


def _absent(text: str) -> str:
    return f'<em class="soft">{text}</em>'


def _environment(audit: Audit) -> str:
    rows = [
        f'<tr><th scope="row">{_e(part)}</th><td>{_e(then) or _absent("unknown")}</td>'
        f"<td>{_e(now) or _absent('unknown')}</td>"
        f"<td>{'<mark>differs</mark>' if differs else ''}</td></tr>"
        for part, then, now, differs in wording.environment(audit)
    ]
    head = (("Part", ""), ("Recorded", ""), ("This run", ""), ("Note", ""))
    caption = "What the revision ran with, and what this audit ran with"
    return f"<h2>Environment</h2>{_table(caption, head, rows)}" if rows else ""


def _table(
    caption: str, head: Sequence[tuple[str, str]], rows: Iterable[str], kind: str = "plain"
) -> str:
    """`head`: the name of each column, and "n" if it has numbers."""
    cells = "".join(
        f'<th scope="col"{f" class={align}" if align else ""}>{name}</th>' for name, align in head
    )
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{_e(caption)}">'
        f'<table class="{kind}">'
        f"<caption>{_e(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )
