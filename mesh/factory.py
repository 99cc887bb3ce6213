"""Evaluators by name: the layout of the mesh, how it is purged, and whether operators run on demand only."""

from __future__ import annotations

from mesh.evaluator import Evaluator
from mesh.generate import CNGen
from mesh.kinds import MeshKind, PurgeKind
from mesh.mesh import Mesh
from mesh.paper.forest import Forest
from mesh.paper.full import DemandDrivenMesh, FullMesh
from mesh.paper.partial import PartialMesh
from mesh.paper.purge import EagerPurging, LazyPurging, PurgePolicy
from windows.window import Window


def make_evaluator(
    generator: CNGen,
    window: Window,
    mesh: MeshKind = MeshKind.HASHED,
    purge: PurgeKind | None = None,
    demand: bool = True,
) -> Evaluator:
    """An evaluator without tuples.

    ``demand`` matters to the full mesh only. ``purge``: None for the one usual
    with the mesh; the hashed one sweeps its buffers when that pays.
    """
    if mesh is MeshKind.HASHED:
        return Mesh(generator)
    by_demand = demand and mesh is MeshKind.FULL
    policy = _policy(purge or PurgeKind.usual(mesh), by_demand)
    if mesh is MeshKind.PARTIAL:
        return PartialMesh(generator, window, policy)
    if mesh is MeshKind.FOREST:
        return Forest(generator, window, policy)
    return (DemandDrivenMesh if by_demand else FullMesh)(generator, window, policy)


def _policy(purge: PurgeKind, by_demand: bool) -> PurgePolicy:
    return EagerPurging() if purge is PurgeKind.EAGER else LazyPurging(by_demand)
