"""State of a revision whose operator declares other primitives, converted by `Operator.migrate`.

The switch has left a complete checkpoint of its last epoch. The first restore under the new
revision uses that checkpoint, even if the state log is available, and puts the result of `migrate`
into an empty log: from there on the whole log has the new primitives. After a crash the checkpoint
is still there, so the next restore does the same again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from perseid.errors import BadInputError, PermanentError
from perseid.jobs.operator import Operator, migrates
from perseid.state.durability.merging import STATE
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.keyed import Keyed
from perseid.state.primitives.primitive import Primitive, declared
from perseid.worker.dataflow import operators

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Migration:
    """Converts state for an operator partition of this revision; `operator` is an instance."""

    operator: Operator

    @property
    def is_written(self) -> bool:
        """Whether the class has a `migrate` method."""
        return migrates(type(self.operator))

    def run(self, sections: Mapping[str, Any], epoch: int) -> Mapping[str, Any]:
        """The sections of a snapshot of `epoch`, with one for each of this revision's primitives.

        A primitive without a section is therefore new, and never merely empty.

        Raises:
            PermanentError: they differ without a `migrate`, or it raised, or its result is wrong.
        """
        live = declared(type(self.operator))
        old = tables_of(sections)
        differences = list(_differences(live, old)) if old else []
        if not self.is_written and differences:
            raise PermanentError(
                f"{operators.who(self.operator)}: its state is of other primitives: "
                f"{'; '.join(differences)}. Give the class a method migrate(self, old), or go back "
                "to the previous revision"
            )
        found = dict(sections)
        if self.is_written and old and (differences or not live.keys() <= old.keys()):
            made = operators.migrate(self.operator, old, epoch)
            found = {name: data for name, data in sections.items() if not _is_state(name)}
            found |= self._sections(live, old, made)
        for name, primitive in live.items():
            if STATE + name not in found:
                found[STATE + name] = ipc_bytes(primitive.fresh().snapshot())
        return found

    def _sections(
        self, live: Mapping[str, Primitive], old: Tables, made: Any
    ) -> Iterator[tuple[str, Any]]:
        if not isinstance(made, dict) or not made.keys() <= live.keys():
            raise self._wrong(f"{_shown(made)}, expected a dict with some of {', '.join(live)}")
        for name, primitive in live.items():
            if name in made:
                yield STATE + name, self._checked(name, primitive.fresh(), made[name])
            elif name in old and not primitive.fits(old[name]):
                raise self._wrong(f"nothing for {name}, which is not what it was: add its rows")
            elif name in old:
                yield STATE + name, ipc_bytes(old[name])

    def _checked(self, name: str, primitive: Primitive, rows: Any) -> Any:
        """The rows in the form that the primitive itself stores."""
        if not isinstance(rows, pa.Table):
            raise self._wrong(f"{_shown(rows)} for {name}, expected a pyarrow Table")
        names = primitive.snapshot().column_names
        try:
            primitive.restore(rows.select(names) if set(names) == set(rows.column_names) else rows)
        except (BadInputError, pa.ArrowException) as error:
            raise self._wrong(f"rows that are none of {name}: {error}") from error
        if isinstance(primitive, Keyed):
            keys = list(primitive.schema()["key"])
            if len(rows.group_by(keys).aggregate([])) < len(rows):
                raise self._wrong(f"several rows of one key for {name}")
        return ipc_bytes(primitive.snapshot())

    def _wrong(self, what: str) -> PermanentError:
        return PermanentError(
            f"{operators.who(self.operator)}: migrate returned {what}. The state is kept; correct "
            "the operator and `perseid jobs apply` it again"
        )


def tables_of(sections: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The state in the sections of a snapshot, by primitive."""
    return {n.removeprefix(STATE): ipc_table(d) for n, d in sections.items() if _is_state(n)}


def _is_state(section: str) -> bool:
    return section.startswith(STATE)


def refuse_unlike(operator: Operator, live: Mapping[str, Primitive], old: Tables) -> None:
    """PermanentError when the primitives of a state log differ from the operator's.

    This happens when a changed revision completes an epoch that the previous one has begun: it
    continues the log, and only a switch has a checkpoint that can be migrated.
    """
    found = list(_differences(live, old))
    if old and migrates(type(operator)):  # a log may begin without state
        found += [f"{name} is new" for name in live.keys() - old.keys()]
    if found:
        raise PermanentError(
            f"{operators.who(operator)}: an epoch was begun with other state: {'; '.join(found)}. "
            "Only the previous state can end it: declare that, with a method migrate(self, old) "
            "that is not called yet, and apply; declare the new state when that revision runs"
        )


def _differences(live: Mapping[str, Primitive], old: Tables) -> Iterator[str]:
    """What cannot be read unchanged; a primitive that is new can start empty."""
    for name, rows in old.items():
        if name not in live:
            yield f"{name} is gone"
        elif not live[name].fits(rows):
            now = live[name].fresh().snapshot()
            yield f"{name} has {len(rows)} rows of {_columns(rows)}, and is of {_columns(now)} now"


def _columns(rows: pa.Table) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in rows.schema) + ")"


def _shown(made: Any) -> str:
    return str(list(made)) if isinstance(made, dict) else f"a {type(made).__name__}"
