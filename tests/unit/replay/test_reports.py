"""The forms of a report: they round trip, count right, hide values, and no payload escapes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError, UsageError
from perseid.replay import reports
from perseid.replay.findings import FORMAT, Audit, Cause, Compared, Record
from perseid.replay.reports import as_html, as_json, as_junit, as_markdown, from_json, wording
from perseid.replay.reports.markdown import CHARS_MAX
from perseid.replay.reports.values import joined, key_of, redacted, shown
from support.audit_reports import AUDITS, HOSTILE, difference, example, with_states

SLOW = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
VOID = {"meta", "br"}
USED = VOID | set(
    "html head title style body main h1 h2 h3 p span dl div dt dd table caption thead tbody tr th "
    "td code mark em strong footer".split()
)


class Page(HTMLParser):
    """What a browser would read: elements, their attributes, and text; each element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *tags: str) -> str:
        return "".join(text for tag, text in self.words if not tags or tag in tags)


def hostile() -> Audit:
    """An audit whose every text of users would like to be markup."""
    one = replace(
        difference("value", 3, HOSTILE.encode(), b"2" + HOSTILE.encode(), HOSTILE),
        operator=HOSTILE, topic=HOSTILE,
        made=Record(HOSTILE.encode(), b"2" + HOSTILE.encode()),
    )  # fmt: skip
    return replace(
        example(),
        job=HOSTILE, job_uuid=HOSTILE, revision=HOSTILE, audited=HOSTILE, base=HOSTILE,
        version=HOSTILE, reasons=(HOSTILE, "a\x00\x0b\ufffe\n# b"),
        compared=(Compared(HOSTILE, "records", 1, 1, HOSTILE),),
        causes=(Cause(HOSTILE, "value", (HOSTILE,), 1, 1, 1, 1, 0.5, (one,)),),
        environment={HOSTILE: HOSTILE}, recorded={HOSTILE: "1"},
    )  # fmt: skip


@SLOW
@given(AUDITS)
def test_json_round_trips(audit: Audit) -> None:
    assert from_json(as_json(audit)) == audit


def test_json_has_the_fields_of_the_audit() -> None:
    document = json.loads(as_json(example(b"\xfb\xff")))
    assert document["format"] == FORMAT
    assert document["causes"][0]["samples"][0]["committed"] == {
        "key": "YW5u", "value": "+/8=", "offset": 8003,
    }  # fmt: skip
    assert document["causes"][1]["samples"][0]["made"] is None


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"format": FORMAT + 1}, f"format {FORMAT + 1}, and this perseid reads format {FORMAT}"),
        ({"format": "1"}, "the number `format`"),
        ({"verdict": "fine"}, "verdict: Input should be 'input_gone'"),
        ({"epochs": "71"}, "epochs: Input should be a valid integer"),
        ({"seconds": None}, "seconds: Input should be a valid number"),
        ({"unknown": 1}, "unknown: Unexpected keyword argument"),
        ({"compared": [{}]}, "compared.0.topic: Field required.*and 1 more"),
    ],
)
def test_a_report_that_is_not_of_the_format(changed: dict[str, Any], error: str) -> None:
    document = json.loads(as_json(example())) | changed
    with pytest.raises(BadInputError, match=error):
        from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "1", "[" * 100_000, '{"format": true}'])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(BadInputError, match="no report of an audit"):
        from_json(text)


def test_values_of_a_damaged_report_are_not_quoted() -> None:
    text = as_json(example()).replace('"YW5u"', '"secret*"')
    with pytest.raises(BadInputError, match=r"committed\.key") as caught:
        from_json(text)
    assert "secret" not in str(caught.value)


@SLOW
@given(AUDITS)
def test_every_audit_has_every_form(audit: Audit) -> None:
    page = Page(as_html(audit))
    assert {tag for tag, _ in page.elements} <= USED
    check_junit(audit)
    assert as_markdown(audit).startswith("## ")


def test_hostile_payloads_stay_text_in_html() -> None:
    page = Page(as_html(hostile()))
    assert {tag for tag, _ in page.elements} <= USED
    allowed = {
        "lang", "charset", "http-equiv", "content", "name", "class", "scope", "tabindex", "role",
        "aria-label", "aria-hidden",
    }  # fmt: skip
    assert {name for _, attributes in page.elements for name in attributes} <= allowed
    assert '<script>alert("x")</script>' in page.text("code", "mark")
    assert "\u202e" not in page.text() and "\\u202e" in page.text()


def test_the_page_needs_no_network() -> None:
    text = as_html(example())
    assert re.findall(r"src=|href=|url\(|@import|https?:", text) == []
    (policy,) = [m for m in Page(text).named("meta") if "http-equiv" in m]
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_is_accessible() -> None:
    page = Page(as_html(example()))
    assert page.named("html") == [{"lang": "en"}]
    assert len(page.named("h1")) == len(page.named("main")) == 1
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert len(page.named("caption")) == len(page.named("table")) == 6
    assert all(cell.get("scope") in ("col", "row") for cell in page.named("th"))
    assert page.text("title") == "Audit of orders: Diverged"


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_contrast_in_both_themes(theme: int) -> None:
    style = Page(as_html(example())).text("style")
    blocks = [
        dict(re.findall(r"--(\w+): (#\w+)", one)) for one in re.findall(r":root {.*?}", style, re.S)
    ]
    colours = blocks[0] | blocks[theme]
    assert len(blocks) == 2
    for ink in ("text", "soft", "good", "bad", "odd"):
        assert contrast(colours[ink], colours["back"]) >= 4.5, ink
    for paper in ("card", "mark"):
        assert contrast(colours["text"], colours[paper]) >= 4.5, paper
    assert contrast(colours["soft"], colours["card"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours, #rgb or #rrggbb."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_the_page_has_what_the_audit_found() -> None:
    page = Page(as_html(example()))
    for text in (
        "Diverged", "Revision r8 made other outputs", "70 to 140 (71 epochs)", "checkpoint 68",
        "r7 made the outputs, r8 ran again", "1,204,332 records", "Retention removed its records.",
        "spent: another value in total", "120 records, 30 keys (1.23 % of the operator's)",
        "<0.01 %", "offset 8003", "differs in total", "only its checksum is known", "22.0.0",
    ):  # fmt: skip
        assert text in page.text(), text
    marked = [text for tag, text in page.words if tag == "mark"]
    assert marked == [" ", "02", "03", "differs"]


def check_junit(audit: Audit) -> ET.Element:
    """What readers of the format rely on."""
    whole = ET.fromstring(as_junit(audit))
    assert whole.tag == "testsuites"
    (suite,) = whole
    count = 1 + len(audit.compared) + has_states(audit)
    assert [part.tag for part in suite] == ["properties", *["testcase"] * count]
    cases = suite.findall("testcase")
    for element in (whole, suite):
        assert int(element.attrib["tests"]) == len(cases)
        assert int(element.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(element.attrib["errors"]) == len(suite.findall("testcase/error"))
        assert float(element.attrib["time"]) == pytest.approx(audit.seconds, abs=0.001, rel=1e-9)
    for case in cases:
        assert {"name", "classname", "time"} == set(case.attrib)
        assert len(case) <= 1
        assert all(set(fault.attrib) == {"type", "message"} for fault in case)
    assert bool(suite.findall("testcase/*")) == bool(
        audit.exit_code or failing_topics(audit) or any(one.state for one in audit.causes)
    )
    return suite


def has_states(audit: Audit) -> bool:
    return bool(audit.states) or any(one.state for one in audit.causes)


def failing_topics(audit: Audit) -> set[str]:
    named = {topic for cause in audit.causes for topic in wording.topics(cause)}
    return named & {one.topic for one in audit.compared}


def test_junit_has_a_case_for_the_verdict_and_each_topic() -> None:
    suite = check_junit(example())
    cases = {case.attrib["name"]: case for case in suite.findall("testcase")}
    assert list(cases) == ["verdict", "orders-spent", "orders-late"]
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("2", "0")
    (fault,) = cases["orders-spent"]
    assert fault.attrib["type"] == "value"
    assert fault.attrib["message"].endswith("(and 3 more)")
    for kind in wording.KINDS.values():
        assert f"spent: {kind}" in (fault.text or "")
    assert len(cases["orders-late"]) == 0


def test_a_difference_of_state_is_in_all_forms() -> None:
    page = Page(as_html(with_states())).text()
    for text in (
        "spent, state totals: another value than in the checkpoint in total",
        "1 entry (25 % of the keys), from epoch 120 at 1 checkpoint", "In the checkpoint",
        "state totals at the checkpoint", "1 entry differs. operator spent, partition 2: a part",
        "user=ann,day=3", "1,204",
    ):  # fmt: skip
        assert text in page, text
    text = as_markdown(with_states())
    assert "| 100 | 4 | 1,200 | equal |" in text
    place = "epoch 120, partition 1: state totals at the checkpoint"
    assert f"@@ {place}, key user=ann,day=3 @@" in text
    cases = {c.attrib["name"]: c for c in check_junit(with_states()).findall("testcase")}
    (fault,) = cases["state at checkpoints"]
    assert "spent, state totals" in fault.attrib["message"]
    assert "user=ann,day=3" in (fault.text or "")
    (verdict,) = cases["verdict"]
    assert "totals" not in (verdict.text or "")
    hidden = redacted(with_states(), bytes(16)).causes[0].samples[0]
    assert b"ann" not in ((hidden.committed and hidden.committed.key) or b"ann")


def test_junit_of_an_equal_audit_passes() -> None:
    suite = check_junit(replace(example(), verdict="equal", causes=()))
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "0")


def test_junit_has_an_error_where_nothing_could_be_compared() -> None:
    audit = replace(example(), verdict="input_gone", causes=(), compared=())
    suite = check_junit(audit)
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "1")


def test_junit_shows_a_cause_of_no_compared_topic_under_the_verdict() -> None:
    suite = check_junit(replace(example(), compared=()))
    assert "not made again" in (suite.findtext("testcase/failure") or "")


def test_hostile_payloads_stay_text_in_junit() -> None:
    fault = check_junit(hostile()).findall("testcase/failure")[1]
    assert '<script>alert("x")</script> @team' in (fault.text or "")
    assert not re.search("[\x00-\x08\x0b\x0e-\x1f\ufffe]", as_junit(hostile()))


def test_hostile_payloads_stay_text_in_markdown() -> None:
    text = as_markdown(hostile())
    outside = re.sub(r"```diff\n.*?\n```\n", "", text, flags=re.DOTALL)
    assert re.findall(r"@\w", re.sub(r"<code>.*?</code>", "", outside)) == []
    assert set(re.findall(r"</?\w+", outside)) == {
        "<code", "</code", "<details", "</details", "<summary", "</summary", "<sub", "</sub",
    }  # fmt: skip
    assert "](" not in outside and "\n# b" not in outside
    fenced = re.findall(r"```diff\n(.*?)\n```\n", text, re.DOTALL)
    assert fenced and all(
        line[:2] in ("@@", "- ", "+ ") for one in fenced for line in one.split("\n")
    )


def test_markdown_tables_have_as_many_cells_in_each_row() -> None:
    for audit in (example(), hostile()):
        for table in re.findall(r"(?:^\|.*\n)+", as_markdown(audit), re.MULTILINE):
            assert len({len(line.split("|")) for line in table.splitlines()}) == 1


def test_markdown_fits_a_comment() -> None:
    cause = example().causes[0]
    many = replace(
        example(),
        reasons=("x" * 5000,) * 30,
        compared=(Compared("t" * 249, "ledger", 1, 1, "y" * 5000),) * 300,
        causes=(cause,) * 300,
    )
    assert len(as_markdown(many)) < CHARS_MAX + 1000
    assert "left out" in as_markdown(many)
    assert "And 290 more causes." in as_markdown(replace(many, reasons=(), compared=()))


def test_values_are_redacted() -> None:
    audit = example(b'{"customer": "ann", "total": 31}')
    hidden = redacted(audit, bytes(16))
    first = hidden.causes[0].samples[0]
    assert first.committed and first.made
    assert re.fullmatch(rb"<3 bytes #[0-9a-f]{8}>", first.committed.key or b"")
    assert first.committed.key == first.made.key, "equal values have equal tags"
    assert first.committed.value != first.made.value
    assert (hidden.redacted, redacted(hidden, bytes(16))) == (True, hidden)
    assert redacted(audit, b"1" * 16) != hidden, "a tag cannot be looked up"
    for form in reports.FORMS.values():
        assert "customer" not in form.text(hidden) and "YW5u" not in form.text(hidden)


def test_null_stays_null() -> None:
    audit = example()
    sample = replace(audit.causes[0].samples[0], committed=Record(None, None, 1), made=None)
    one = replace(audit, causes=(replace(audit.causes[0], samples=(sample,)),))
    assert redacted(one, bytes(16)).causes == one.causes
    assert Page(as_html(one)).text("code").startswith("nullnull")


@pytest.mark.parametrize(
    ("committed", "made", "expected"),
    [
        (b'{"a": 1, "b": 2}', b'{"a": 1, "b": 3}', ('{"a": 1, "b": [2]}', '{"a": 1, "b": [3]}')),
        (b"same", b"same", ("same", "same")),
        (b"\x00\x01", b"\x00\x02", ("0x00[01]", "0x00[02]")),
        (b"text", b"\xff", ("0x[74657874]", "0x[ff]")),
        (b"", b"x", ("", "[x]")),
        (None, b"x", ("null", "x")),
        (b"a\nb\xe2\x80\xae", b"a\nb", ("a\\nb[\\u202e]", "a\\nb")),
        (
            b"x" * 90 + b" 1",
            b"x" * 90 + b" 2",
            ("... " + "x" * 40 + " [1]", "... " + "x" * 40 + " [2]"),
        ),
        (b"x" * 90, b"x" * 90, ("x" * 60 + " ... (30 more)", "x" * 60 + " ... (30 more)")),
    ],
)
def test_differences_are_marked(
    committed: bytes | None, made: bytes | None, expected: tuple[str, str]
) -> None:
    both = shown(committed, made, 60)
    assert (
        tuple("".join(f"[{text}]" if differs else text for text, differs in side) for side in both)
        == expected
    )


@given(st.binary() | st.text().map(str.encode), st.binary() | st.text().map(str.encode))
def test_other_values_are_marked_and_equal_ones_are_not(one: bytes, other: bytes) -> None:
    sides = shown(one, other, 10_000)
    assert any(differs for side in sides for _, differs in side) == (one != other)
    assert all(joined(side).isprintable() for side in sides)


def test_both_keys_of_another_order_are_shown() -> None:
    one = replace(difference("order", 1, b"1", b"2"), made=Record(b"bob", b"2"))
    assert key_of(one, 60) == "ann, made: bob"


def test_files(tmp_path: Path) -> None:
    written = reports.write(example(), tmp_path / "new" / "folder", ["junit", "json"])
    assert [path.name for path in written] == ["audit.json", "audit.junit.xml"]
    audit = from_json(written[0].read_text())
    assert audit.redacted and audit == replace(example(), redacted=True, causes=audit.causes)
    assert written[1].read_text() == as_junit(audit)
    (again,) = reports.write(example(), tmp_path / "new" / "folder", ["json"], show_values=True)
    assert from_json(again.read_text()) == example()
    assert sorted(path.name for path in again.parent.iterdir()) == ["audit.json", "audit.junit.xml"]


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'pdf' is no form of a report; expected json, html"):
        reports.write(example(), tmp_path, ["json", "pdf"])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written to .*file"):
        reports.write(example(), tmp_path / "file", ["json"])
