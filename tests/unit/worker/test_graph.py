"""Layouts and graphs: levels, ids, ledgers, and where each node's output goes."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.jobs.model import layout as layouts
from perseid.jobs.model.layout import DEAD_LETTERS, Layout, Task
from perseid.jobs.model.spec import ErrorsSpec, JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.jobs.operator import METADATA
from perseid.worker.dataflow import graph
from perseid.worker.dataflow import source as source_stage
from perseid.worker.dataflow.edges import Route


def keyed(upstream: str | dict[str, str], parallelism: int = 2, key: str = "k") -> OperatorSpec:
    inputs = {"input": upstream} if isinstance(upstream, str) else upstream
    return OperatorSpec(inputs=inputs, use="m:C", key=(key,), parallelism=parallelism)


def python(upstream: str, parallelism: int = 2) -> OperatorSpec:
    return OperatorSpec(inputs={"input": upstream}, use="m:P", parallelism=parallelism)


def sql(upstream: str, text: str = "SELECT value FROM input") -> OperatorSpec:
    return OperatorSpec(inputs={"input": upstream}, sql=text, parallelism=2)


def sink(upstream: str) -> SinkSpec:
    return SinkSpec(input=upstream, topic=f"out-{upstream}", format="json")


def job(operators: dict[str, OperatorSpec], sinks: list[str], **changes: Any) -> JobSpec:
    spec = JobSpec(
        name="j",
        parallelism=3,
        sources={"lines": SourceSpec(topic="lines", format="text")},
        operators=operators,
        sinks={f"to-{name}": sink(name) for name in sinks},
    )
    return spec.model_copy(update=changes)


WORDCOUNT = job({"words": sql("lines"), "counts": keyed("words", 4, "word")}, ["counts"])
CHAIN = job(
    {"first": keyed("lines"), "between": python("first"), "second": keyed("between", 3)},
    ["first", "second"],
)


def built(spec: JobSpec) -> tuple[Layout, graph.Graph]:
    layout = layouts.build(spec, 1)
    return layout, graph.build(spec, layout)


def labels(layout: Layout) -> list[tuple[int, str, int, int | None]]:
    return [(t.gid, t.label, t.level, t.ledger) for t in layout.tasks]


def test_wordcount() -> None:
    layout, found = built(WORDCOUNT)
    assert labels(layout) == [(p, f"counts-{p}", 1, p) for p in range(4)]
    assert found.levels == {"lines": 0, "words": 0, "counts": 1}
    assert found.outlets["lines"] == graph.Outlets((), (), ("words",))
    route = Route((0, 1, 2, 3), 0, ("word",))
    assert found.outlets["words"] == graph.Outlets((("counts", route),), (), ())
    assert (found.sql_targets, found.letters) == ({"words": graph.SQL_BASE}, {})
    assert graph.stage_slots(layout, 1, 4) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert graph.stage_slots(layout, 1, 2) == {0: 0, 1: 1, 2: 0, 3: 1}


def test_levels_count_shuffles_and_gids_rise_with_them() -> None:
    layout, found = built(CHAIN)
    assert found.levels == {"lines": 0, "first": 1, "between": 1, "second": 2}
    assert labels(layout) == [
        (0, "first-0", 1, 0), (1, "first-1", 1, 1),
        (2, "second-0", 2, 2), (3, "second-1", 2, 3), (4, "second-2", 2, 4),
    ]  # fmt: skip
    assert layout.levels == 2
    assert graph.stage_slots(layout, 0, 1) == {}
    assert graph.stage_slots(layout, 2, 3) == {2: 0, 3: 1, 4: 2}
    assert found.outlets["first"].python == ("between",)
    assert found.outlets["between"].shuffles == (("second", Route((2, 3, 4), 0, ("k",))),)


def test_an_operator_read_by_two_others_has_an_edge_to_each() -> None:
    layout, found = built(job({"a": keyed("lines"), "b": keyed("a"), "c": keyed("a")}, ["b", "c"]))
    assert [name for name, _ in found.outlets["a"].shuffles] == ["b", "c"]
    assert found.levels == {"lines": 0, "a": 1, "b": 2, "c": 2}
    assert [t.ledger for t in layout.of("a")] == [None, None]
    assert sorted(t.ledger or 0 for t in layout.ledger_tasks) == [0, 1, 2, 3]


def test_a_join_of_different_levels_stands_above_the_highest_and_numbers_its_ports() -> None:
    join = keyed({"left": "a", "right": "lines"})
    layout, found = built(job({"a": keyed("lines"), "join": join}, ["join"]))
    assert found.levels["join"] == 2
    gids = tuple(t.gid for t in layout.of("join"))
    assert found.outlets["a"].shuffles == (("join", Route(gids, 0, ("k",))),)
    assert ("join", Route(gids, 1, ("k",))) in found.outlets["lines"].shuffles


def test_one_upstream_on_both_ports_is_two_edges() -> None:
    _, found = built(job({"self": keyed({"left": "lines", "right": "lines"})}, ["self"]))
    assert [(n, r.input) for n, r in found.outlets["lines"].shuffles] == [("self", 0), ("self", 1)]


@pytest.mark.parametrize("node", ["lines", "grep", "clean", "after"])
def test_a_sink_on_a_node_without_a_key_gets_writers_one_level_up(node: str) -> None:
    operators = {"grep": sql("lines"), "clean": python("lines"), "a": keyed("lines", 1)}
    layout, found = built(job({**operators, "after": python("a")}, [node]))
    writers = layout.of(node)
    assert len(writers) == (3 if node == "lines" else 2)
    assert all(not t.stateful and t.ledger is not None for t in writers)
    assert {t.level for t in writers} == {2 if node == "after" else 1}
    gids = tuple(t.gid for t in writers)
    assert (node, Route(gids, 0, ())) in found.outlets[node].shuffles
    assert layout.ledger_partitions == len(writers)


def test_two_sinks_of_one_operator_share_its_ledger_partition() -> None:
    both = {"one": sink("counts"), "two": sink("counts")}
    layout = layouts.build(WORDCOUNT.model_copy(update={"sinks": both}), 1)
    assert labels(layout) == labels(layouts.build(WORDCOUNT, 1))


def test_dead_letters_have_one_writer_which_commits_every_epoch() -> None:
    errors = ErrorsSpec(tolerance="all", deadletter_topic="dlq")
    layout, found = built(WORDCOUNT.model_copy(update={"errors": errors}))
    (writer,) = layout.of(DEAD_LETTERS)
    assert writer == Task(4, DEAD_LETTERS, 0, 1, stateful=False, ledger=4)
    # The query makes a frame of the source, so Spark numbers the tasks that refuse its records.
    route = Route((4,), 0, ())
    (null_keys,) = (name for name in found.letters if name != "lines")
    assert found.letters == {
        "lines": graph.Sender("lines", route, None, framed=True),
        null_keys: graph.Sender("words to counts", route, None, framed=True, number=1),
    }
    assert writer in layout.ledger_tasks
    assert layout.ledger_partitions == 5
    assert graph.stage_slots(layout, 1, 5)[4] == 4


def test_dead_letters_are_written_after_the_last_operator_that_may_send_some() -> None:
    errors = ErrorsSpec(tolerance="all", deadletter_topic="dlq")
    picky = python("first").model_copy(update={"errors": "bisect"})
    changed = CHAIN.model_copy(
        update={"errors": errors, "operators": {**CHAIN.operators, "between": picky}}
    )
    layout, _ = built(changed)
    (writer,) = layout.of(DEAD_LETTERS)
    assert (writer.level, layout.levels) == (2, built(CHAIN)[0].levels)
    stops = CHAIN.model_copy(update={"errors": errors})
    assert [t.level for t in built(stops)[0].of(DEAD_LETTERS)] == [1]


def test_dead_letters_of_a_job_without_sinks_are_its_only_ledger() -> None:
    errors = ErrorsSpec(tolerance="all", deadletter_topic="dlq")
    layout, _ = built(job({"a": keyed("lines")}, [], errors=errors))
    assert (layout.ledger_tasks, layout.ledger_partitions) == (layout.of(DEAD_LETTERS), 1)


def test_gids_are_dense_and_each_ledger_partition_is_one_tasks() -> None:
    for spec in (WORDCOUNT, CHAIN, job({"a": keyed("lines")}, ["a", "lines"])):
        layout = layouts.build(spec, 7)
        assert layout.number == 7
        assert [t.gid for t in layout.tasks] == list(range(len(layout.tasks)))
        ledgers = [t.ledger for t in layout.tasks if t.ledger is not None]
        assert ledgers == list(range(layout.ledger_partitions))
        assert layouts.build(spec, 7) == layout
        for level in range(layout.levels + 1):
            width = max(1, len(layout.level(level)))
            slots = graph.stage_slots(layout, level, width)
            assert sorted(slots.values()) == list(range(len(slots)))


def test_circles_and_unknown_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\['a', 'b'\] read each other or an unknown input"):
        layouts.build(job({"a": keyed("b"), "b": keyed("a")}, []), 1)


def test_sql_after_python_is_known_as_such() -> None:
    _, found = built(job({"p": python("lines"), "q": sql("p"), "a": keyed("q")}, ["a"]))
    assert found.outlets["p"].sql == ("q",)


def test_metadata_columns_are_those_that_somebody_reads() -> None:
    def seen(operators: dict[str, OperatorSpec], **named: tuple[str, ...]) -> tuple[str, ...]:
        spec = job(operators, ["p"])
        return graph.metadata_columns("lines", spec, ["value"], lambda name: named.get(name, ()))

    assert seen({"p": python("lines")}) == ()
    assert seen({"p": python("lines")}, p=("offset", "key")) == ("key", "offset")
    queries = {"p": python("lines"), "q": sql("lines")}
    assert seen(queries, p=("key",), q=("offset", "value", "other")) == ("key", "offset")
    assert seen({"p": keyed("lines", 1, "key")}) == (
        "key",
    )  # it is distributed by what it declares
    operators = {"p": python("lines"), "q": sql("p")}
    assert seen(operators, q=("offset",)) == ()  # not of the source
    spec = job({"p": python("lines")}, ["p"])
    assert graph.metadata_columns("lines", spec, ["key"], lambda _: METADATA) == METADATA[1:]


def test_metadata_has_the_names_that_operators_know() -> None:
    assert tuple(source_stage.METADATA) == METADATA


def test_sql_after_a_stateful_stage_is_reported_from_sql_on_a_source() -> None:
    late = job({"first": keyed("lines"), "after": sql("first")}, ["after"])
    assert built(late)[1].has_late_sql
    assert not built(WORDCOUNT)[1].has_late_sql
    assert not built(CHAIN)[1].has_late_sql
