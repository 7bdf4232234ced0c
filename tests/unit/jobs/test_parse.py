"""job.yaml: what is accepted, and that every mistake is named at once with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.jobs.model.layout import build, node_levels
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.model.spec import EpochSpec, source_columns
from perseid.jobs.validation import parse
from support.job_files import BASE, errors, refused, replaced

CONTRACT = """\
name: wordcount                       # ^[a-z][a-z0-9-]{0,62}$
parallelism: 4                        # default of its operators
sources:
  lines: {topic: lines, format: text, start: earliest}
operators:
  words:  {input: lines, sql: "SELECT explode(split(value, ' ')) AS word FROM input"}
  counts: {input: words, key: word, use: "wordcount:Counts"}
sinks:
  counts: {input: counts, topic: word-counts, format: json, key: word}
faultTolerance:
  mode: exact                         # exact | approximate | none
  checkpoint: {period: "30s", sizeTimed: true}
  approximate: {theta: 100000, l: 1000, gamma: 1000}
  replicas: {budget: 0}               # operator partitions; "all"
  recovery: {priority: 1, adaptiveBufferingAfter: 2}
errors: {tolerance: none, deadletterqueue: {topic: wordcount-dlq}}
epoch: {target: "500ms", maxRecords: 200000}
"""


def test_the_file_of_the_contract_is_accepted() -> None:
    job = parse.loads(CONTRACT)
    assert job.name == "wordcount"
    assert job.operators["words"].inputs == {"input": "lines"}
    assert job.operators["counts"].key == ("word",)
    assert job.operators["counts"].parallelism == 4
    assert job.fault_tolerance.checkpoint.period_s == 30.0
    assert job.fault_tolerance.checkpoint.size_timed
    assert job.errors.tolerance == "none"
    assert job.epoch == EpochSpec(target_s=0.5, max_records=200_000)
    assert job.written_topics == {"word-counts": 4}


def test_defaults() -> None:
    job = parse.loads(BASE)
    assert job.parallelism == 1
    assert job.sources["a"].start == "earliest"
    assert job.errors.deadletter_topic is None
    assert job.epoch == EpochSpec(
        target_s=0.5, max_records=800_000, max_bytes=256 << 20, timeout_s=3600.0
    )


def test_dead_letters_get_a_topic_of_the_jobs_own() -> None:
    job = parse.loads(BASE + "errors: {tolerance: all}\n")
    assert job.errors.deadletter_topic == "perseid.job.dlq"
    assert job.written_topics == {"out": 1, "perseid.job.dlq": 1}


def test_columns_of_sources() -> None:
    job = parse.loads(CONTRACT)
    assert source_columns(job.sources["lines"]) == {"value": "string"}
    assert source_columns(parse.loads(BASE).sources["a"]) == {"k": "string", "n": "int64"}


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("latest", "latest"),
        ('"2026-11-21T08:00:00"', "2026-11-21T08:00:00+00:00"),
        ("2026-11-21T08:00:00+02:00", "2026-11-21T06:00:00+00:00"),
        ("{0: 100, 1: 250}", {0: 100, 1: 250}),
    ],
)
def test_starts(written: str, start: object) -> None:
    text = replaced("format: json, columns", f"format: json, start: {written}, columns")
    assert parse.loads(text).sources["a"].start == start


def test_every_mistake_of_a_file_at_once_with_its_line() -> None:
    found = errors(
        "name: WordCount\n"                                                     # 1
        'paralelism: "4"\n'                                                     # 2
        "sources:\n"                                                            # 3
        "  lines: {topic: lines, format: txt, start: yesterday}\n"              # 4
        '  more: {topic: "a b", format: json, columns: {a: int}}\n'             # 5
        "  gone: {format: avro}\n"                                              # 6
        "operators:\n"                                                          # 7
        "  words: {input: linez, sql: 5}\n"                                     # 8
        '  counts: {input: words, key: word, use: "wordcount.Counts"}\n'        # 9
        '  x: {input: y, key: k, use: "a:B"}\n'                                 # 10
        '  y: {input: x, key: k, use: "a:B"}\n'                                 # 11
        "sinks:\n"                                                              # 12
        "  one: {input: counts, topic: out, format: json, key: word}\n"         # 13
        "  two: {input: x, topic: out, format: json, key: k}\n"                 # 14
        "faultTolerance:\n"                                                     # 15
        "  checkpoint: {period: 30}\n"                                          # 16
    )  # fmt: skip
    lines = [line.split(": ", 1)[0] for line in found]
    text = "\n".join(found)
    assert lines == sorted(lines, key=lambda at: int(at.split(":")[1]))
    assert {int(at.split(":")[1]) for at in lines} == {1, 2, 4, 5, 6, 8, 9, 10, 14, 16}
    assert "job.yaml:1: name: found 'WordCount', expected a name of" in text
    assert "job.yaml:2: paralelism: found an unknown key" in text
    assert "write `parallelism`" in text
    assert "write `format: text`" in text
    assert "write `start: earliest`" in text
    assert "job.yaml:6: sources.gone.topic: is missing" in text
    assert "job.yaml:8: operators.words.input: found 'linez'" in text
    assert "write `lines`" in text
    assert "job.yaml:8: operators.words.sql: found 5" in text
    assert 'write `use: "wordcount:Counts"`' in text
    assert "x <- y <- x read each other" in text
    assert "job.yaml:14: sinks.two.topic: 'out' is written by sinks.one too" in text
    assert 'write `period: "30s"`' in text


@pytest.mark.parametrize(
    ("old", "new", "line", "shown"),
    [
        ("name: job", "name: 5", 1, 'write `name: "5"` (in quotes)'),
        ("name: job", "nam: job", 1, "write `name`"),
        ("name: job\n", "", 1, "name: is missing"),
        ("  a: {", "  A: {", 3, "found the name 'A'"),
        ("  a: {", "  dead-letters: {", 3, "perseid's own"),
        ("int64", "int", 3, "found 'int', expected one of string, int64"),
        ("int64", "Double", 3, "write `float64`"),
        (", columns: {k: string, n: int64}", "", 3, "sources.a.columns: is missing"),
        ("format: json, columns", "format: text, columns", 3, "only json sources declare columns"),
        ("topic: a,", "topic: __offsets,", 3, "no leading '__'"),
        ("topic: a,", "topic: a, schema: x.avsc,", 3, "only avro has a schema"),
        ("input: a,", "input: s,", 5, "'s' is a sink"),
        ("input: a,", "", 5, "found neither of input and inputs"),
        ("input: a,", "input: a, inputs: {x: a},", 5, "found both of input and inputs"),
        ("input: a,", "inputs: {X-Y: a},", 5, "found the name 'X-Y'"),
        ("input: a,", "inputs: {x: 7},", 5, "operators.o.inputs.x: found 7"),
        ("key: k, use", "key: kk, use", 5, "expected a column of a (k, n); write `k`"),
        ("key: k, use", "key: [], use", 5, "a column name or a list"),
        ("key: k, use", "key: [k, k], use", 5, "a column name or a list"),
        ('use: "m:O"', 'use: "m:O", sql: "SELECT 1"', 5, "found both of sql and use"),
        (', use: "m:O"', "", 5, "found neither of sql and use"),
        ('use: "m:O"', 'use: "../m:O"', 5, "expected module:Class"),
        ('use: "m:O"', 'sql: "SELECT k FROM input"', 5, "has no key"),
        ('use: "m:O"', 'use: "m:O", parallelism: 0', 5, "from 1 to 256"),
        ('use: "m:O"', 'use: "m:O", parallelism: "2"', 5, "(without quotes)"),
        ('use: "m:O"', 'use: "m:O", memory: 5', 5, "a size such as"),
        ('use: "m:O"', 'use: "m:O", memory: "0B"', 5, "found 0 bytes, expected 1KiB or more"),
        ('key: k, use: "m:O"', 'use: "m:O", memory: "1MiB"', 5, "without a key holds none"),
        ('key: k, use: "m:O"', 'sql: "SELECT k", memory: "1MiB"', 5, "without a key holds none"),
        ("input: o,", "input: p,", 7, "expected the name of a source or operator"),
        ("key: k}", "key: n}", 7, "expected the key of o (k)"),
        (", key: k}", "}", 7, "`order: free` if their order does not matter"),
        ("name: job", "name: job\nepoch: {maxBytes: 5}", 2, 'write `maxBytes: "256MiB"`'),
        ("name: job", 'name: job\nepoch: {maxBytes: "1KiB"}', 2, "a size from 1MiB to 64GiB"),
        ("name: job", 'name: job\nepoch: {timeout: "5s"}', 2, "a duration from 10s to 24h"),
        ("name: job", "name: job\naudit: {horizon: 7}", 2, "a duration such as"),
        ("name: job", 'name: job\naudit: {horizon: "5s"}', 2, "a duration from 1m to 365d"),
        ("name: job", 'name: job\naudit: {horizon: "week"}', 2, 'write `horizon: "7d"`'),
        ("name: job", "name: job\naudit: {horizn: 1d}", 2, "audit.horizn"),
        ("name: job", "name: job\naudit: 7d", 2, 'write `audit: {horizon: "7d"}`'),
        ("topic: out", "topic: a", 7, "read its own output without end"),
        ("topic: out", "topic: perseid.x.tokens", 7, "perseid's own"),
        ("format: json, key", "format: avro, key", 7, "sinks.s.schema: is missing"),
    ],
)
def test_one_mistake(old: str, new: str, line: int, shown: str) -> None:
    found = errors(replaced(old, new))
    assert any(f.startswith(f"job.yaml:{line}: ") and shown in f for f in found), found


def test_several_inputs() -> None:
    two = replaced("sources:\n", "sources:\n  b: {topic: b, format: text}\n")
    joined = two.replace("input: a, key: k", "inputs: {x: a, y: b}, key: k")
    assert "expected a column of b (value)" in "\n".join(errors(joined))
    keyless = two.replace("input: a, key: k", "inputs: {x: a, y: b}")
    assert "needs a key that all of them have" in "\n".join(errors(keyless))
    sql = two.replace('input: a, key: k, use: "m:O"', 'inputs: {x: a, y: b}, sql: "SELECT 1"')
    assert "a SQL operator has one input, found 2" in "\n".join(errors(sql))


def test_an_epoch_may_be_bounded_in_bytes_and_in_time() -> None:
    text = replaced("name: job", 'name: job\nepoch: {maxBytes: "64MiB", timeout: "2m"}')
    assert parse.loads(text).epoch == EpochSpec(max_bytes=64 << 20, timeout_s=120.0)


def test_audits_may_have_a_horizon() -> None:
    assert parse.loads(BASE).audit.horizon_s is None
    text = replaced("name: job", 'name: job\naudit: {horizon: "7d"}')
    assert parse.loads(text).audit.horizon_s == 7 * 86_400


def test_order_free_permits_another_key() -> None:
    text = replaced("key: k}", "key: n, order: free}")
    assert parse.loads(text).sinks["s"].key == "n"


def test_sinks_of_one_stateless_input_share_their_key() -> None:
    text = BASE + (
        "  x: {input: a, topic: x, format: json, key: k}\n"
        "  y: {input: a, topic: y, format: json, key: n}\n"
    )
    assert "sinks.x, which has the same stateless input" in "\n".join(errors(text))
    assert parse.loads(text.replace("key: n}", "key: n, order: free}")).sinks["y"].key == "n"


def test_what_nothing_reads_is_named() -> None:
    text = replaced("sources:\n", "sources:\n  b: {topic: b, format: text}\n")
    assert "sources.b: nothing reads it" in "\n".join(errors(text))
    text = replaced("operators:\n", 'operators:\n  p: {input: a, sql: "SELECT 1"}\n')
    assert "operators.p: nothing reads it and it keeps no state" in "\n".join(errors(text))


def test_a_long_cycle_is_reported_once() -> None:
    text = replaced(
        "operators:\n",
        'operators:\n  p: {input: r, sql: "SELECT 1"}\n  q: {input: p, sql: "SELECT 1"}\n'
        '  r: {input: q, sql: "SELECT 1"}\n',
    )
    found = [e for e in errors(text) if "read each other" in e]
    assert len(found) == 1
    assert "p <- r <- q <- p" in found[0]


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("sinks:", "faultTolerance: {mode: approximate}\nsinks:", "mode approximate is not built"),
        ("sinks:", "faultTolerance: {mode: none}\nsinks:", "write `mode: exact`"),
        ("sinks:", "faultTolerance: {replicas: {budget: 3}}\nsinks:",
         "faultTolerance.replicas.budget: a budget in operator partitions is not built yet; write "
         "`all` or 0"),
        ("sinks:", "faultTolerance: {recovery: {priority: 3}}\nsinks:", "priority: 1"),
        ('"m:O"', '"m:O", edge: split', "edge split is not built yet"),
        ('key: k, use: "m:O"', 'sql: "SELECT k FROM input", errors: {operator: bisect}',
         "bisecting an SQL operator is not built"),
    ],
)  # fmt: skip
def test_what_is_not_built_is_refused(old: str, new: str, shown: str) -> None:
    found = refused(replaced(old, new))
    assert len(found) == 1
    assert shown in found[0]
    assert found[0].startswith("job.yaml:")


@pytest.mark.parametrize(
    ("block", "replicas"),
    [("{budget: all}", "all"), ('{budget: "all"}', "all"), ("{budget: 0}", 0), ("{}", 0)],
)
def test_all_operator_partitions_have_a_replica_or_none(block: str, replicas: object) -> None:
    text = replaced("sinks:", f"faultTolerance: {{replicas: {block}}}\nsinks:")
    assert parse.loads(text).fault_tolerance.replicas == replicas


def test_no_replicas_by_default() -> None:
    assert parse.loads(BASE).fault_tolerance.replicas == 0


@pytest.mark.parametrize("budget", ["-1", "All", '"0"', "true", "1.5", "[1]", "null"])
def test_other_budgets_are_mistakes(budget: str) -> None:
    text = replaced("sinks:", f"faultTolerance:\n  replicas:\n    budget: {budget}\nsinks:")
    (found,) = errors(text)
    assert found.startswith("job.yaml:8: faultTolerance.replicas.budget: found ")
    assert found.endswith(
        "expected all, or a number of operator partitions from 0 on; write `budget: all`"
    )


def test_an_operator_that_bisects_has_a_topic_and_a_ledger() -> None:
    more = ', errors: {operator: bisect}, parallelism: 2}\n  p: {input: o, key: k, use: "m:P"'
    text = replaced("input: o, topic", "input: p, topic", replaced('"m:O"', f'"m:O"{more}'))
    spec = parse.loads(text)
    assert spec.errors.deadletter_topic == "perseid.job.dlq"
    assert spec.written_topics == {"out": 1, "perseid.job.dlq": 1}
    tasks = build(spec, 1).tasks
    assert [(t.operator, t.ledger) for t in tasks] == [("o", 0), ("o", 1), ("p", 2)]
    assert {t.operator for t in build(spec, 1).ledger_tasks} == {"o", "p"}


def test_dead_letters_of_an_operator_without_a_key_have_a_writer() -> None:
    text = replaced('key: k, use: "m:O"', 'use: "m:O", errors: {operator: bisect}')
    spec = parse.loads(text)
    assert spec.dead_letters == "perseid.job.dlq"
    assert [t.operator for t in build(spec, 1).tasks] == ["dead-letters", "o"]


BACK = "{inputs: {x: a, y: {from: p, feedback: {delay: 1}}},"
TWO = BASE.replace("sinks:", '  p: {input: o, key: k, use: "m:P"}\nsinks:')


def test_feedback_is_an_input_of_the_epoch_before() -> None:
    spec = parse.loads(replaced("{input: a,", BACK, TWO))
    operator = spec.operators["o"]
    assert operator.inputs == {"x": "a", "y": "p"}
    assert (operator.feedback, operator.forward) == (("y",), {"x": "a"})
    assert node_levels(spec) == {"a": 0, "o": 1, "p": 2}
    own = replaced("{input: a,", BACK.replace("from: p", "from: o"))
    assert node_levels(parse.loads(own)) == {"a": 0, "o": 1}


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        (
            "{x: a, y: p}",
            "operators o <- p <- o read each other, expected no cycle; let one of "
            "them read a source, or the epoch before: `{from: OPERATOR, feedback: {delay: 1}}`",
        ),
        ("{x: a, y: {from: p}}", "operators.o.inputs.y: found a feedback edge without a delay"),
        ("{x: a, y: {from: p, feedback: {}}}", "a feedback edge without a delay"),
        ("{x: a, y: {from: p, feedback: {delay: 2}}}", "found {'delay': 2}, expected {delay: 1}"),
        ("{x: a, y: {from: p, feedback: {delay: 0}}}", "expected {delay: 1}, the epoch before"),
        ("{x: a, y: {from: p, feedback: {delay: 1, more: 1}}}", "expected {delay: 1}"),
        ("{x: a, y: {feedback: {delay: 1}}}", "y.from: found None, expected the name of an"),
        ("{x: a, y: {from: q, feedback: {delay: 1}}}", "y.from: found 'q', expected the name of"),
        ("{x: a, y: {from: a, feedback: {delay: 1}}}", "y.from: found 'a', expected the name of"),
        ("{x: a, y: {form: p, feedback: {delay: 1}}}", "y.form: found an unknown key"),
        ("{y: {from: p, feedback: {delay: 1}}}", "operators.o.inputs: all are feedback"),
        ("{x: a, y: 5}", "operators.o.inputs.y: found 5, expected the name of a source or"),
    ],
)
def test_mistakes_of_feedback(inputs: str, shown: str) -> None:
    found = errors(replaced("{input: a, key", f"{{inputs: {inputs}, key", TWO))
    assert any(shown in text for text in found), found


def test_feedback_comes_from_and_goes_to_operators_with_a_key() -> None:
    found = errors(replaced("{input: a, key: k,", BACK, TWO))
    assert any("operators.o: an operator with a feedback input needs a key" in e for e in found)
    stateless = replaced("p: {input: o, key: k,", "p: {input: o,", TWO)
    found = errors(replaced("{input: a,", BACK, stateless))
    assert any("y.from: 'p' has no key, and only the output" in e for e in found)


def test_a_mistake_is_reported_before_a_refusal() -> None:
    text = replaced('use: "m:O"', 'use: "m:O", edge: split, memory: 5')
    assert all("edge" not in e for e in errors(text))


def test_files_next_to_job_yaml(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        replaced("format: json, columns: {k: string, n: int64}", "format: avro, schema: a.avsc")
    )
    with pytest.raises(JobFileErrors) as caught:
        parse.load(tmp_path)
    assert "sources.a.schema: found 'a.avsc', expected a file next to job.yaml" in str(caught.value)
    assert "operators.o.use: found 'm:O', expected a module next to job.yaml" in str(caught.value)
    (tmp_path / "m.py").write_text("")
    (tmp_path / "a.avsc").write_text('{"type": "recrod"}')
    with pytest.raises(JobFileErrors, match="is no Avro schema of a record"):
        parse.load(tmp_path)
    (tmp_path / "a.avsc").write_text('"string"')
    with pytest.raises(JobFileErrors, match="its type is not record"):
        parse.load(tmp_path)
    (tmp_path / "a.avsc").write_text(
        '{"type": "record", "name": "A", "fields": [{"name": "k", "type": "string"}]}'
    )
    assert parse.load(tmp_path).sources["a"].schema_file == "a.avsc"


def test_an_unknown_library_operator_gets_its_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(replaced("m:O", "library:CountKey"))
    with pytest.raises(JobFileErrors, match="write `library:CountByKey`"):
        parse.load(tmp_path)


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(JobFileErrors, match=r"job\.yaml:1: job\.yaml is missing"):
        parse.load(tmp_path)
