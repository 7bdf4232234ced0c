"""A corpus of hostile job files: each ends in one clear error, soon, and makes no object."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.validation import parse
from perseid.jobs.validation.yamlfile import DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
SQL = 'name: a\noperators: {{o: {{input: x, sql: "{}"}}}}\n'
CORPUS = {
    "billion laughs": (BOMB, "anchor or alias"),
    "self reference": ("a: &a [*a]\n", "anchor or alias"),
    "merge key": ("a: &a {x: 1}\nb:\n  <<: *a\n", "anchor or alias"),
    "python object": ("name: !!python/object/apply:os.system ['true']\n", "uses the tag"),
    "python name": ("name: !!python/name:os.system x\n", "uses the tag"),
    "custom tag": ("name: !evil x\n", "uses the tag"),
    "binary tag": ("name: !!binary aGk=\n", "uses the tag"),
    "deep flow": ("a: " + "[" * 2000 + "]" * 2000, f"deeper than {DEPTH_MAX}"),
    "deep block": ("\n".join(" " * i + "a:" for i in range(200)), f"deeper than {DEPTH_MAX}"),
    "unclosed": ("a: " + "[" * 50_000, "job.yaml:1"),
    "wide": ("a: [" + "1," * (NODES_MAX + 5) + "]", f"more than {NODES_MAX} values"),
    "long name": (f"name: {'a' * 100_000}\n", "..."),
    "long key": (f"{'k' * 1000}: 1\n", "job.yaml:1"),
    "nul": ("name: a\0b", "is no YAML"),
    "escape": ('name: "\\x1b[2J"\n', "\\x1b[2J"),
    "newline in name": ('name: "a\\nperseid: done"\n', "a\\nperseid: done"),
    "surrogate escape": ('name: "\\ud800"\n', "job.yaml:1"),
    "twice": ("name: a\nname: b\n", "has the key 'name' twice (first on line 1)"),
    "complex key": ("? [a, b]\n: 1\n", "no plain word"),
    "two documents": ("name: a\n---\nname: b\n", "second document"),
    "directive": ("%YAML 9.9\n---\nname: a\n", "job.yaml:"),
    "list": ("- a\n- b\n", "expected a block of key: value"),
    "scalar": ("hello\n", "expected a block of key: value"),
    "empty": ("", "is empty"),
    "only comment": ("# nothing\n", "is empty"),
    "tab": ("name:\n\t- a\n", "is no YAML"),
    "huge integer": (f"name: a\nparallelism: {'9' * 5000}\n", "parallelism: found"),
    "infinite": ("name: a\nparallelism: 1e999\n", "parallelism: found '1e999'"),
    "traversal in use": (
        'name: a\noperators: {o: {input: x, use: "../../etc/passwd:X"}}\n', "module:Class",
    ),
    "traversal in schema": (
        "name: a\nsources: {x: {topic: x, format: avro, schema: ../../etc/passwd}}\n",
        "a file inside the job's folder",
    ),
    "absolute schema": (
        "name: a\nsources: {x: {topic: x, format: avro, schema: /etc/passwd}}\n",
        "a file inside the job's folder",
    ),
    "traversal in name": ("name: ../../x\n", "expected a name of"),
    "client settings": (
        "name: a\nsources: {x: {topic: x, format: text, plugin.library.paths: /tmp/x.so}}\n",
        "found an unknown key",
    ),
    "traversal in topic": ("name: a\nsources: {x: {topic: ../x, format: text}}\n", "A-Z a-z"),
    "kafka's own topic": (
        "name: a\nsources: {x: {topic: __consumer_offsets, format: text}}\n", "no leading '__'",
    ),
    "newline after a name": ('name: "a\\n"\n', "expected a name of"),
    "newline after a topic": (
        'name: a\nsources: {x: {topic: "x\\n", format: text}}\n', "A-Z a-z"
    ),
    "newline after a source": (
        'name: a\nsources: {"x\\n": {topic: x, format: text}}\n'
        'sinks: {o: {input: "x\\n", topic: y, format: text}}\n', "expected a name of",
    ),
    "newline after a file": (
        'name: a\nsources: {x: {topic: x, format: avro, schema: "x.avsc\\n"}}\n',
        "a file inside the job's folder",
    ),
    "newline after a column": (
        'name: a\nsources: {x: {topic: x, format: json, columns: {"k\\n": string}}}\n'
        "sinks: {o: {input: x, topic: y, format: json}}\n", "expected letters, digits",
    ),
    "confusable name": ("name: w\u043erdcount\n", "expected a name of"),
    "wide letters": ("name: \uff57ordcount\n", "expected a name of"),
    "confusable topic": (
        "name: a\nsources: {x: {topic: \uff0e\uff0e\u2215x, format: text}}\n", "A-Z a-z"
    ),
    "right to left": ('name: "a\\u202egpj"\n', "\\u202e"),
    "nothing to see": ('"na\\u200bme": a\n', "\\u200b"),
    "confusable key": ("name: a\n\u0455ources: {}\n", "found an unknown key"),
    "megabyte of a name": (f"name: {'a' * 1_000_000}\n", "..."),
    "megabyte of a topic": (
        f"name: a\nsources: {{x: {{topic: {'a' * 1_000_000}, format: text}}}}\n", "A-Z a-z"
    ),
    "adds a jar": (SQL.format("ADD JAR 'https://elsewhere/x.jar'"), "expected a query"),
    "sets Spark": (SQL.format("/* */ SET spark.driver.extraJavaOptions=x"), "expected a query"),
    "writes files": (SQL.format("INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT 1"), "a query"),
    "makes a function": (SQL.format("CREATE FUNCTION f AS 'X' USING JAR '/x'"), "a query"),
    "comment and a command": (SQL.format("-- SELECT\\nDROP VIEW input"), "expected a query"),
}  # fmt: skip
CLIENT_KEYS = [
    "plugin.library.paths", "sasl.jaas.config", "sasl.client.callback.handler.class",
    "interceptor.classes", "ssl.key.location", "ssl.engine.location", "ssl.ca.location",
    "sasl.oauthbearer.token.endpoint.url", "security.protocol", "bootstrap.servers", "group.id",
    "transactional.id", "client", "kafka", "config", "options", "settings", "properties",
    "kafka.bootstrap.servers", "spark", "spark.jars", "spark.driver.extraJavaOptions",
    "spark.executorEnv.X", "environment", "env", "secrets",
]  # fmt: skip
PLACES = {
    "job": "name: a\n{}: x\n",
    "source": "name: a\nsources: {{x: {{topic: x, format: text, {}: x}}}}\n",
    "operator": 'name: a\noperators: {{o: {{input: x, use: "m:O", {}: x}}}}\n',
    "sink": "name: a\nsinks: {{s: {{input: x, topic: y, format: text, {}: x}}}}\n",
    "epoch": "name: a\nepoch: {{{}: x}}\n",
    "errors": "name: a\nerrors: {{{}: x}}\n",
    "fault tolerance": "name: a\nfaultTolerance: {{{}: x}}\n",
}


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.security("5.3", "5.7", "5.10", "5.13")
def test_hostile_file(name: str) -> None:
    text, shown = CORPUS[name]
    begun = time.monotonic()
    with pytest.raises(JobFileErrors) as caught:
        parse.loads(text)
    assert shown in str(caught.value)
    assert time.monotonic() - begun < 20  # quadratic or exponential work would take minutes
    for line in str(caught.value).split("\n"):
        assert line.startswith("job.yaml:")
        assert len(line) < 700
        assert line.isprintable()


@pytest.mark.security("5.3", "5.13", "5.14")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", CLIENT_KEYS)
def test_no_setting_of_a_client_or_of_spark_is_taken(key: str, place: str) -> None:
    """The list of those that a job file may set is empty; what a job needs has a key of its own."""
    with pytest.raises(JobFileErrors) as caught:
        parse.loads(PLACES[place].format(key))
    assert f"{key}: found an unknown key" in str(caught.value)


@pytest.mark.security("5.7")
def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(JobFileErrors, match="is larger than"):
        parse.load(tmp_path)


@pytest.mark.security("5.7")
def test_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes("name: ä".encode("latin-1"))
    with pytest.raises(JobFileErrors, match="is no UTF-8"):
        parse.load(tmp_path)


@pytest.mark.security("5.7")
def test_a_symbolic_link_is_no_job_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("name: a")
    (tmp_path / "job.yaml").symlink_to(tmp_path / "real")
    with pytest.raises(JobFileErrors, match="is missing"):
        parse.load(tmp_path)


def test_words_are_words() -> None:
    """`no`, `on` and dates are strings, as in YAML 1.2."""
    job = parse.loads(
        "name: no\nsources: {on: {topic: yes, format: text}}\n"
        "sinks: {o: {input: on, topic: t, format: text}}"
    )
    assert (job.name, job.sources["on"].topic) == ("no", "yes")


KEYS = st.sampled_from(
    ["name", "sources", "operators", "sinks", "parallelism", "errors", "epoch", "faultTolerance",
     "topic", "format", "input", "inputs", "key", "use", "sql", "with", "columns", "start",
     "schema", "tolerance", "target", "mode", "a", "b", "0"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False),
    st.sampled_from(["a", "b", "json", "text", "avro", "exact", "10s", "m:O", "earliest"]),
    st.text(max_size=20),
)  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=40,
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="abk:{}[],&*!|>-? \n\t\"'#%@`~019.\\", max_size=120),
)


def only_job_file_errors(text: str) -> None:
    try:
        parse.loads(text)
    except (JobFileErrors, JobFileRefused) as error:
        assert error.problems
        assert all(p.line >= 1 and p.text for p in error.problems)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
@pytest.mark.security("5.7")
def test_any_text_gives_a_job_or_job_file_errors(text: str) -> None:
    only_job_file_errors(text)


@settings(max_examples=400, deadline=None)
@given(DOCUMENTS)
@pytest.mark.security("5.7")
def test_any_document_gives_a_job_or_job_file_errors(document: object) -> None:
    only_job_file_errors(json.dumps(document))


@settings(max_examples=200, deadline=None)
@given(st.data())
@pytest.mark.security("5.7")
def test_a_job_with_one_part_replaced(data: st.DataObject) -> None:
    document: dict[str, object] = {
        "name": "a",
        "sources": {"x": {"topic": "x", "format": "json", "columns": {"k": "string"}}},
        "operators": {"o": {"input": "x", "key": "k", "use": "m:O", "with": {"p": 1}}},
        "sinks": {"s": {"input": "o", "topic": "y", "format": "json", "key": "k"}},
        "errors": {"tolerance": "all"},
    }
    holder: dict[str, object] = document
    while True:
        key = data.draw(st.sampled_from(sorted(holder)))
        inner = holder[key]
        if not isinstance(inner, dict) or not inner or data.draw(st.booleans()):
            break
        holder = inner
    holder[key] = data.draw(DOCUMENTS)
    only_job_file_errors(json.dumps(document))
