"""Key sets: a relation has one for each set of columns on which it is joined."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skws_mesh.columnar.columns import Ints
from skws_schema.graph import edges
from skws_schema.model import Schema


class KeySets:
    """The key sets of a schema: ``columns[r][j]`` are the columns of relation r's key set j.

    ``source[e]`` and ``target[e]`` are the key sets that edge e compares, ``target_relation[e]`` is
    the relation that it leads to.
    """

    def __init__(self, schema: Schema) -> None:
        sets: list[dict[tuple[int, ...], int]] = [{} for _ in schema.relations]
        walked = edges(schema)
        self.source = np.array(
            [sets[e.source].setdefault(e.source_columns, len(sets[e.source])) for e in walked],
            dtype=np.int64,
        )
        self.target = np.array(
            [sets[e.target].setdefault(e.target_columns, len(sets[e.target])) for e in walked],
            dtype=np.int64,
        )
        self.columns = tuple(tuple(found) for found in sets)
        self.target_relation = np.array([e.target for e in walked], dtype=np.int64)

    @cached_property
    def width(self) -> int:
        """The most key sets that a relation has; at least 1."""
        return max(1, *(len(found) for found in self.columns))

    @cached_property
    def edge_index(self) -> Ints:
        """For each edge the number of the index that it probes: one for each relation and key set."""
        return (self.target_relation * self.width + self.target).astype(np.int64)
