"""The examples of the users' pages: job files are accepted, Python runs and does what is described.

`completed` and `module` complete fragments. Not run: SQL (it needs Spark), the first block of
TESTING_JOBS.md (test_operators.py runs it), two blocks that need servers (their imports are run).
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from perseid.jobs.environments import loading
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "jobs", ROOT / "topics", ROOT / "platform/perseid/testing")
PAGES = {page.name: page.read_text() for one in FOLDERS for page in sorted(one.glob("[!R]*.md"))}
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(page, *block) for page, text in PAGES.items() for block in _FENCED.findall(text)]
JOB_FILES = [(page, text) for page, language, text in BLOCKS if language == "yaml"]
PYTHON = [(page, text) for page, language, text in BLOCKS if language == "python"]
ELSEWHERE = [text for page, text in PYTHON if page in ("TESTING_JOBS.md", "TOPICS.md")]
CALLS = [text for _, text in PYTHON if "Harness(" in text and text not in ELSEWHERE]
OPERATORS = [text for _, text in PYTHON if text not in CALLS and text not in ELSEWHERE]

STRINGS = "word user account page item country product size source target customer value id"
INTEGERS = "amount ms bytes price bought clicked age n"
COLUMNS = dict.fromkeys(STRINGS.split(), "string") | dict.fromkeys(INTEGERS.split(), "int64")
SOURCE = {"format": "json", "columns": COLUMNS, "eventTime": {"column": "ms"}}
SINK = {"format": "json", "order": "free"}
AVRO = '{"type": "record", "name": "r", "fields": [{"name": "user", "type": "string"}]}'
HEAD = """import numpy as np, pyarrow.compute as pc
from datetime import timedelta
from perseid.jobs import Emitter, Matrix, Operator, Pool, Set, Table, Value, pa
"""
PART = """
class Part(Operator):
    total, seen = Table(key=pa.string(), n=pa.int64()), Set(pa.string())
    clicks = Pool({"at": pa.int64(), "user": pa.string()}, time="at", key=["user"])
    counters = Matrix(pa.int64(), rows=4, columns=8000)
"""
BODY = """
    def process(self, batch, out):
        self.clicks.append(views := batch.rename_columns({"ms": "at"}))
        hashes, counts = np.tile(batch["n"].to_numpy(), (4, 1)), [5, 6, 7]
"""
FILL = """
    def process(self, batch, out):
        (self.total if hasattr(self, "total") else self.counts).add(batch["user"], n=1)
"""
COMPUTES = {  # what a piece of `process` computes of ROWS
    "new": "new['id'].to_pylist() == ['1', '2']",
    "places": "pairs[1]['user'].to_pylist() == [*'aabaa'] and len(pairs[0]) == 5",
    "self": "estimates.tolist() == [5, 6, 7]",
}
ROWS = {"user": [*"aba"], "word": [*"xyx"], "id": [*"112"], "n": [1, 2, 3], "ms": [5, 6, 7]}
COUNTED = [{"word": "x", "n": 2}, {"word": "y", "n": 1}]
SPLIT = [{"user": "b", "n": 2}, {"user": "a", "n": 3}]
TIMED = [{"user": "b", "end": 1_800_006}, {"user": "a", "end": 1_800_007}]
ENDED = [{"user": "a", "clicks": 2, "last": 7}, {"user": "b", "clicks": 1, "last": 6}]
EMITTED = [[], [], [], COUNTED, COUNTED, SPLIT, [], [], [], [], []]  # of ROWS at watermark 6


def completed(given: dict[str, Any]) -> str:
    """A job file with a name, a source for each unknown input, a sink for what nothing reads."""
    job: dict[str, Any] = {"name": "example", "sources": {}, "operators": {}, "sinks": {}} | given
    read = {sink["input"] for sink in job["sinks"].values()}
    for operator in job["operators"].values():
        for one in operator.get("inputs", {"": operator.get("input")}).values():
            read.add(one["from"] if isinstance(one, dict) else one)
    for name in {one.partition(".")[0] for one in read} - {*job["operators"], *job["sources"]}:
        job["sources"][name] = SOURCE | {"topic": f"in-{name}"}
    for name in {*job["sources"], *job["operators"]} - read:
        job["sinks"][f"s-{name}"] = SINK | {"input": name, "topic": f"out-{name}"}
    return json.dumps(job)


def module(text: str) -> tuple[str, str]:
    """An example as a module of a job, and the name of its class."""
    if found := re.search(r"^class (\w+)", text, re.MULTILINE):
        head = "" if "import" in text else HEAD
        return head + text + ("" if "def process" in text else FILL), found[1]
    if "def process" in text:
        return HEAD + PART + textwrap.indent(text, " " * 4), "Part"
    holds = COMPUTES[re.split(r"\W", text)[0]]
    return HEAD + PART + BODY + textwrap.indent(f"{text}assert {holds}\n", " " * 8), "Part"


def folder(path: Path, text: str) -> Path:
    code, name = module(text)
    path.mkdir()
    key = "word" if 'batch["word"]' in text else "user"
    job = {"operators": {name.lower(): {"input": "rows", "key": key, "use": f"m:{name}"}}}
    (path / "m.py").write_text(code)
    sinks = {"late": SINK | {"input": "split.late", "topic": "late"}} if name == "Split" else {}
    (path / "job.yaml").write_text(completed(job | {"sinks": sinks}))
    return path


def test_no_example_is_left_out() -> None:
    counts = [len(some) for some in (BLOCKS, JOB_FILES, OPERATORS, CALLS, ELSEWHERE)]
    assert counts == [37, 20, len(EMITTED), 3, 3]
    for text in PAGES.values():  # what is only indented are commands
        assert re.findall(r"^    (?:from|class|def) .*", _FENCED.sub("", text), re.MULTILINE) == []


@pytest.mark.parametrize("text", [pytest.param(text, id=page) for page, text in JOB_FILES])
def test_a_job_file_is_accepted(text: str, tmp_path: Path) -> None:
    whole = text.startswith("name:")
    (tmp_path / "job.yaml").write_text(text if whole else completed(YAML(typ="safe").load(text)))
    for name in ("wordcount.py", "views.py", "clicks.avsc", "spent.avsc"):
        (tmp_path / name).write_text("" if name.endswith("py") else AVRO)
    for operator in parse.load(tmp_path).operators.values():
        if operator.use and operator.use.startswith("library:"):
            loading.load(operator, tmp_path)


@pytest.mark.parametrize("which", range(len(OPERATORS)))
def test_an_operator_runs(which: int, tmp_path: Path) -> None:
    text = OPERATORS[which]
    harness = Harness(folder(tmp_path / "job", text), module(text)[1].lower())
    harness.watermark = 6
    assert harness.epoch(ROWS) == EMITTED[which]
    assert harness.outputs.get("late") == ([{"user": "a"}] if "Split" in text else None)
    harness.watermark, harness.now = 2_000_000, 2_000_000
    if "on_timer" in text or "ended" in text:
        assert harness.epoch(ROWS) == (TIMED if "on_timer" in text else ENDED)


def test_the_calls_of_the_harness_run(tmp_path: Path) -> None:
    old = OPERATORS[1].replace(", last_ms=pa.int64()", "")
    texts = {"JOB": OPERATORS[0], "new_folder": OPERATORS[1], "old_folder": old}
    folders = {name: folder(tmp_path / name, text) for name, text in texts.items()}
    starter = ROOT / "jobs/perseid/jobs/examples/starter/job.yaml"
    for text in CALLS:
        exec(text, {"Harness": Harness, "__file__": str(starter), **folders})


def test_what_runs_elsewhere_compiles_and_imports_what_exists() -> None:
    for text in ELSEWHERE:
        compile(text, "example", "exec")
        exec("\n".join(re.findall(r"^from .*", text, re.MULTILINE)), {})
