"""The columnar mesh: all operators of one depth evaluated as one join per batch of tuples.

The default engine uses it. It gives the results of the paper's meshes at many
times their speed, since Python works per batch.
"""

from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import KeySets, TupleColumns
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.mesh import ColumnarMesh
from skws_mesh.columnar.store import Partials

__all__ = ["ColumnarMesh", "KeySets", "KeywordBitmaps", "LiveTuples", "Partials", "TupleColumns"]
