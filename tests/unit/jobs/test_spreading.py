"""What a job on several workers cannot have is refused, with its line and what to write."""

from __future__ import annotations

import pytest

from perseid.jobs.model.layout import build
from perseid.jobs.model.spread import spread_of
from perseid.jobs.validation import parse
from support.job_files import errors, refused, replaced

JOB = replaced("name: job\n", "name: job\nparallelism: 2\nplacement: {spread: 3}\n")


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ('key: k, use: "m:O"', 'sql: "SELECT k FROM input"',
         "job.yaml:7: operators.o.sql: a job with `placement: {spread: 3}` has no SQL operators, "
         "since Spark numbers the tasks of a query; write it in Python"),
        ("input: a,", "inputs: {i: a, back: {from: o, feedback: {delay: 1}}},",
         "job.yaml:7: operators.o.inputs.back: a job with `placement: {spread: 3}` has no "
         "feedback, since its workers would wait for each other; remove the input"),
        ("parallelism: 2", "parallelism: 1",
         "job.yaml:3: placement.spread: found 3, but the job cannot be cut: it is one part, in "
         "which each operator has one partition; write `parallelism: 3`, or `spread: 1`"),
        ("sources:", "faultTolerance: {replicas: {budget: all}}\nsources:",
         "job.yaml:4: faultTolerance.replicas.budget: found all with `placement: {spread: 3}`, "
         "expected a job that one worker runs whole: replicas of a spread job are not built yet; "
         "write `budget: 0`, or `spread: 1`"),
    ],
)  # fmt: skip
def test_a_refusal_names_line_reason_and_remedy(old: str, new: str, shown: str) -> None:
    text = replaced(old, new, JOB)
    (found,) = refused(text)
    assert found.startswith(shown)
    assert parse.loads(text.replace("spread: 3", "spread: 1")).placement.spread == 1


def test_parts_that_exchange_nothing_can_be_cut_without_partitions() -> None:
    text = JOB.replace("parallelism: 2", "parallelism: 1")
    text = text.replace("operators:", "  b: {topic: b, format: text}\noperators:")
    spec = parse.loads(text + "  t: {input: b, topic: copy, format: text}\n")
    found = spread_of(spec, build(spec, 1))
    assert found is not None
    assert [share.component for share in found.shares] == [0, 1]


def test_sinks_keep_their_promise_of_order() -> None:
    copied = "  copy: {input: a, topic: copy, format: json, key: k, order: required}\n"
    spec = parse.loads(JOB + copied)
    assert (spec.placement.spread, spec.sinks["copy"].order) == (3, "required")


def test_the_bound_of_buffers_has_a_default_and_is_a_size() -> None:
    text = JOB.replace("spread: 3", 'spread: 3, bufferBytes: "2GiB"')
    assert parse.loads(text).placement.buffer_bytes == 2 << 30
    assert parse.loads(JOB).placement.buffer_bytes == 10 << 30


@pytest.mark.parametrize("size", ["5", '"1KiB"', '"lots"'])
def test_another_bound_of_buffers_is_refused_with_what_to_write(size: str) -> None:
    found = "\n".join(errors(JOB.replace("spread: 3", f"spread: 3, bufferBytes: {size}")))
    assert found.startswith("job.yaml:3: placement.bufferBytes: ")
    assert "expected a size" in found
    assert 'write `bufferBytes: "10GiB"`' in found
