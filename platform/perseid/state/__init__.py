"""perseid.state: state of operators, its log on a host, its checkpoints in a store."""

from perseid.state.divergence import Distance
from perseid.state.members import Set
from perseid.state.pool import Pool
from perseid.state.primitives import Primitive, bind, schema_of
from perseid.state.table import Table
from perseid.state.timers import Timers
from perseid.state.value import Value
from perseid.state.vector import Matrix, Vector

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
