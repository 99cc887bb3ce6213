"""The columnar mesh: all operators of one depth evaluated as one join per batch of tuples.

The default engine's evaluator. Same candidate networks, same results as the
tuple-at-a-time mesh; many times its speed, since Python works per batch.
"""

from mesh.columnar.columns import KeySets, TupleColumns
from mesh.columnar.labels import Labelled
from mesh.columnar.live import LiveTuples
from mesh.columnar.mesh import ColumnarMesh
from mesh.columnar.store import Partials

__all__ = ["ColumnarMesh", "KeySets", "Labelled", "LiveTuples", "Partials", "TupleColumns"]
