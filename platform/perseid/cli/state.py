"""`perseid state JOB OP`: shows an operator's state without stopping or disturbing it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perseid.cli import jobs, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from perseid.jobs.model.spec import JobSpec, OperatorSpec
    from perseid.jobs.operator import Operator
    from perseid.worker.dataflow.state_keys import Key
    from perseid.worker.inspection import Moment, Place, Read
    from perseid.worker.recovery.resplit import Share

    Found = dict[str, Any]


def state(
    job: jobs.Job,
    operator: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="A keyed operator; without: all of them.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="VALUE, COLUMN=VALUE,... or a JSON object.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Rows of each state.", min=1)] = 20,
    data: output.Data = None,
    as_json: output.Json = False,
) -> None:
    """Show the state of an operator at its last epoch; of a job with a replica the primary's."""
    from perseid.jobs.environments import checking
    from perseid.jobs.environments.loading import load
    from perseid.jobs.operations import applying

    with (
        jobs.connected(data) as cluster,
        TemporaryDirectory(prefix="perseid-state-") as scratch,
    ):
        archive = place_of(cluster.registry, job).plan.archive
        found = applying.revision(cluster, archive, Path(scratch))
        if operator is None:
            _list(found.spec, as_json)
            return
        spec = _operator(found.spec, operator)
        checking.prepare(found.folder, allow_code=cluster.allow_code)
        kind = load(spec, found.folder, allow_code=cluster.allow_code)
        asked = Asked(job, operator, spec, kind, gids_of(found.spec, operator))
        shown = asked.look(cluster, root_of(data), key, partition, limit, Path(scratch))
    if as_json:
        output.document(shown)
    else:
        _print(shown)
    if key is not None and not any(block["rows"] for block in shown["state"].values()):
        output.note(
            f"perseid: {job}: operator {operator} has no key {key!r} at epoch {shown['epoch']}; "
            f"`perseid state {job} {operator} --limit 5` shows some that it has"
        )
        raise typer.Exit(1)


class Asked:
    """One query of one operator, whose partitions are `gids` in the job's layout."""

    def __init__(
        self, job: str, name: str, spec: OperatorSpec, kind: type[Operator], gids: Sequence[int]
    ) -> None:
        self.job, self.name, self.spec, self.kind, self.gids = job, name, spec, kind, gids

    def look(
        self, cluster: Any, root: str, key: str | None, partition: int | None, limit: int,
        scratch: Path,
    ) -> Found:  # fmt: skip
        """The document of `state --json`."""
        from perseid.state.durability.files import LocalFiles
        from perseid.worker.inspection import Inspector

        keys = self._keys(key) if key is not None else {}
        wanted = self._partitions(keys, partition)
        inspector = Inspector(
            LocalFiles(), root, cluster.store, cluster.clock, self.name, self._share, self.gids
        )

        def use(moment: Moment, read: Read) -> Found:
            return self._shown(moment, read, wanted, keys, limit)

        everything = range(self.spec.parallelism)
        return inspector.look(
            lambda: place_of(cluster.registry, self.job), everything, use, scratch
        )

    def _shown(
        self, moment: Moment, read: Read, wanted: list[int], keys: dict[str, Key], limit: int
    ) -> Found:
        """Reads one partition after the other, until every state has more rows than `limit`."""
        from perseid.worker.dataflow.state_keys import rows_with

        blocks: dict[str, Any] = {}
        done = []
        for partition in wanted:
            done.append(partition)
            for name, primitive in read(partition).items():
                if keys and name not in keys:
                    continue
                rows = primitive.snapshot()
                rows = rows_with(keys[name], rows) if keys else rows
                block = blocks.setdefault(name, {"schema": primitive.schema(), "rows": []})
                shown = rows.slice(0, limit + 1).to_pylist()
                block["rows"] += [{"partition": partition, **row} for row in shown]
            if self._enough(blocks, keys, limit):
                break
        for block in blocks.values():
            block["truncated"] = len(block["rows"]) > limit
            block["rows"] = block["rows"][:limit]
        return {
            "job": self.job, "operator": self.name, "epoch": moment.epoch,
            "source": moment.source, "partitions": done, "state": blocks,
        }  # fmt: skip

    def _enough(self, blocks: dict[str, Any], keys: dict[str, Key], limit: int) -> bool:
        """Whether no other partition can add a row that is shown."""
        homes = [self._home(keys[name]) if keys else None for name in blocks]
        return all(
            len(block["rows"]) > (limit if home is None else 0)
            for block, home in zip(blocks.values(), homes, strict=True)
        )

    def _home(self, key: Key) -> int | None:
        from perseid.worker.dataflow.state_keys import partition_of

        return partition_of(key, self.spec.key, self.spec.parallelism)

    def _keys(self, text: str) -> dict[str, Key]:
        """`text` as a key of each state whose key it can be."""
        from perseid.errors import UsageError
        from perseid.worker.dataflow import state_keys

        found, wrong = {}, "it has no state with a key"
        for name, types in key_types(self.kind).items():
            try:
                found[name] = state_keys.parse(text, types)
            except UsageError as error:
                wrong = str(error)
        if not found:
            raise UsageError(f"operator {self.name}: {wrong}")
        return found

    def _partitions(self, keys: dict[str, Key], partition: int | None) -> list[int]:
        """Which to read, the keys' own first.

        A missing key is searched in all others: its partition may have been computed from another
        type than the state has.
        """
        from perseid.errors import UsageError

        count = self.spec.parallelism
        if partition is not None:
            if not 0 <= partition < count:
                raise UsageError(
                    f"operator {self.name} has partitions 0 to {count - 1}, not {partition}"
                )
            return [partition]
        homes = [self._home(key) for key in keys.values()]
        return list(dict.fromkeys([*(h for h in homes if h is not None), *range(count)]))

    def _share(self, partition: int) -> Share:
        from perseid.worker.recovery.resplit import share_of

        return share_of(self.job, self.name, self.spec, self.kind, partition)


def gids_of(spec: JobSpec, operator: str) -> tuple[int, ...]:
    """Of the operator's partitions, in their order. They are the same in every layout."""
    from perseid.jobs.model.layout import build

    return tuple(task.gid for task in build(spec, 0).of(operator))


def place_of(registry: Any, job: str) -> Place:
    """The job's plan and checkpoints now; RefusedError when it has not begun."""
    from perseid.errors import RefusedError
    from perseid.jobs.operations import steering
    from perseid.worker.inspection import Place

    entry = steering.stored_entry(registry, job).value
    plan, pointers = registry.plan(job), registry.pointers(job)
    if plan is None or plan.job_uuid != entry.uuid:
        raise RefusedError(f"{job} has not begun; `perseid jobs show {job}` shows it")
    ours = pointers is not None and pointers.job_uuid == entry.uuid
    return Place(plan, pointers.pointers if ours else ())


def key_types(kind: type[Operator]) -> dict[str, dict[str, pa.DataType]]:
    """The key columns, with types, of each state of the operator that has a key."""
    from perseid.state.primitives.primitive import declared

    found = {}
    for name, primitive in declared(kind).items():
        key = primitive.schema().get("key")  # columns, of some primitives with their types
        if key:
            columns = primitive.fresh().snapshot().schema
            found[name] = {column: columns.field(column).type for column in key}
    return found


def _operator(spec: JobSpec, name: str) -> OperatorSpec:
    from perseid.errors import UsageError
    from perseid.jobs.model.layout import is_keyed
    from perseid.jobs.model.problems import listed, nearest

    keyed = [n for n, o in spec.operators.items() if is_keyed(o)]
    if name in keyed:
        return spec.operators[name]
    if name in spec.operators:
        raise UsageError(f"operator {name} has no key, so it holds no state; {listed(keyed)} do")
    close = nearest(name, keyed)
    hint = f"did you mean {close}?" if close else f"with state there are {listed(keyed)}"
    raise UsageError(f"{spec.name} has no operator {name[:80]!r}; {hint}")


def root_of(data: Path | None) -> str:
    """The folder of this host's state logs."""
    from perseid.embedded import deployment

    return str(deployment(data).state)


def _list(spec: JobSpec, as_json: bool) -> None:
    from perseid.jobs.model.layout import is_keyed

    found: list[Found] = [
        {"operator": n, "key": list(o.key), "partitions": o.parallelism}
        for n, o in spec.operators.items() if is_keyed(o)
    ]  # fmt: skip
    if as_json:
        output.document({"job": spec.name, "operators": found})
    else:
        rows = [[o["operator"], ", ".join(o["key"]), o["partitions"]] for o in found]
        output.table(("operator", "key", "partitions"), rows)


def _print(shown: Found) -> None:
    where = {
        "log": "the state log",
        "checkpoint": "the newest checkpoint (the state log is not on this host)",
    }[shown["source"]]
    output.lines([f"{shown['job']}/{shown['operator']} at epoch {shown['epoch']}, from {where}"])
    for name, block in shown["state"].items():
        rows = block["rows"]
        columns = list(rows[0]) if rows else []
        output.table(columns, [list(row.values()) for row in rows], title=f"\n{name}")
        if block["truncated"]:
            output.note(f"{name}: there may be more; `--limit`, `--partition` or `--key` show it")
