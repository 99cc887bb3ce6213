"""Tuples for the paper's meshes, and the joins of a mesh."""

from __future__ import annotations

from typing import Final

from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.join_operator import JoinOperator
from skws_purging.composites import MeshTuple

LENGTH: Final = 10
"""The length of the window."""


def tuple_of(relation: int, keywords: int, start: int, value: int = 1) -> MeshTuple:
    return MeshTuple(relation, (value,), start, start + LENGTH, keywords)


def joins(mesh: PaperMesh) -> list[JoinOperator]:
    return [join for source in mesh.sources.values() for join in source.above()]
