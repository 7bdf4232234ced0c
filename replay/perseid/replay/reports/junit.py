"""The JUnit form, for the test reports of CI. Pure.

A case for the verdict, one for each topic, and one for the state if it was compared.

Readers of the format disagree about a case with several failures: many show only the first. So a
case has at most one, whose text lists all of its topic's causes. A case's name is the topic's, so
that a reader which follows a test over many runs sees when it began to fail. XML cannot
hold all control characters: every text here is printable (`values.printable`).
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from perseid.replay.findings import Audit, Cause
from perseid.replay.reports import wording
from perseid.replay.reports.values import joined, key_of, values_of

_VALUE_MAX = 200  # characters


def as_junit(audit: Audit) -> str:
    """One suite, named after the job. An audit that is not equal has a failure or an error."""
    name = wording.name(audit.job)
    cases = [_verdict(audit), *(_topic(audit, one.topic) for one in audit.compared)]
    of_state = [one for one in audit.causes if one.state]
    if audit.states or of_state:
        cases.append(_case("state at checkpoints", of_state))
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": "0",
        "time": f"{audit.seconds:.3f}",
    }
    whole = ET.Element("testsuites", {"name": "perseid replay", **counts})
    time = wording.at(audit.time_ms).strftime("%Y-%m-%dT%H:%M:%S")  # the format has no zones
    suite = ET.SubElement(
        whole, "testsuite", {"name": f"perseid replay {name}", **counts, "timestamp": time}
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(audit):
        ET.SubElement(properties, "property", {"name": key, "value": value})
    for case in cases:
        case.set("classname", f"perseid.replay.{name}")
        case.set("time", "0")
        suite.append(case)
    ET.indent(whole)
    text = ET.tostring(whole, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _verdict(audit: Audit) -> ET.Element:
    """Fails unless equal; an error where the audit could not compare: the input is another one."""
    case = ET.Element("testcase", {"name": "verdict"})
    if audit.exit_code:
        reasons = wording.reasons(audit)
        kind = "failure" if audit.exit_code == 1 else "error"
        fault = ET.SubElement(
            case, kind, {"type": audit.verdict, "message": f"{wording.title(audit)}: {reasons[0]}"}
        )
        topics = {one.topic for one in audit.compared}
        elsewhere = [c for c in audit.causes if not c.state and not topics & wording.topics(c)]
        fault.text = "\n".join([*reasons, *map(_cause, elsewhere)])
    return case


def _topic(audit: Audit, topic: str) -> ET.Element:
    return _case(topic, [one for one in audit.causes if topic in wording.topics(one)])


def _case(name: str, causes: list[Cause]) -> ET.Element:
    """Fails if there are causes."""
    case = ET.Element("testcase", {"name": wording.name(name)})
    if causes:
        more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        message = f"{wording.cause(causes[0])}: {wording.extent(causes[0])}{more}"
        fault = ET.SubElement(case, "failure", {"type": causes[0].kind, "message": message})
        fault.text = "\n".join(map(_cause, causes))
    return case


def _cause(one: Cause) -> str:
    """A cause and its samples, as lines."""
    lines = [f"{wording.cause(one)}: {wording.extent(one)}"]
    for sample in one.samples:
        lines.append(f"  {wording.place(sample)}, key {key_of(sample, _VALUE_MAX) or 'unknown'}")
        values = values_of(sample, _VALUE_MAX)
        lines += [f"    committed: {joined(values[0])}"] * (sample.committed is not None)
        lines += [f"    made:      {joined(values[1])}"] * (sample.made is not None)
    return "\n".join(lines)


def _properties(audit: Audit) -> list[tuple[str, str]]:
    return [
        ("verdict", audit.verdict),
        ("job", wording.name(audit.job)),
        ("revision", wording.name(audit.revision)),
        ("audited", wording.name(audit.audited)),
        ("epochs", f"{audit.first_epoch}-{audit.last_epoch}"),
        ("base", wording.name(audit.base)),
        ("records_in", str(audit.records_in)),
        ("version", wording.name(audit.version)),
    ]
