"""perseid.state: state of operators, its log on a host, its checkpoints in a store."""

from perseid.state.primitives.divergence import Distance
from perseid.state.primitives.members import Set
from perseid.state.primitives.pool import Pool
from perseid.state.primitives.primitive import Primitive, bind, schema_of
from perseid.state.primitives.table import Table
from perseid.state.primitives.timers import Timers
from perseid.state.primitives.value import Value
from perseid.state.primitives.vector import Matrix, Vector

__all__ = [
    "Distance",
    "Matrix",
    "Pool",
    "Primitive",
    "Set",
    "Table",
    "Timers",
    "Value",
    "Vector",
    "bind",
    "schema_of",
]
