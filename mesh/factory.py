"""Evaluators by name: the layout of the mesh, how it is purged, and whether operators run on demand only."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from mesh.count import TooManyKindsError, count_networks
from mesh.evaluator import Evaluator
from mesh.generate import CNGen
from mesh.kinds import MeshKind, PurgeKind
from mesh.mesh import Mesh
from mesh.paper.forest import Forest
from mesh.paper.full import DemandDrivenMesh, FullMesh
from mesh.paper.partial import PartialMesh
from mesh.paper.purge import EagerPurging, LazyPurging, PurgePolicy
from schema.errors import UsageError
from windows.window import Window

MOST_NETWORKS: Final = 1_000_000
"""That are made before the first tuple: about a gigabyte."""


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
    Raises UsageError if all networks are to be made, and are too many.
    """
    if mesh is MeshKind.HASHED:
        return Mesh(generator)
    by_demand = demand and mesh is MeshKind.FULL
    policy = _policy(purge or PurgeKind.usual(mesh), by_demand)
    if mesh is MeshKind.PARTIAL:
        return PartialMesh(generator, window, policy)
    _check_number(generator, mesh)
    if mesh is MeshKind.FOREST:
        return Forest(generator, window, policy)
    return (DemandDrivenMesh if by_demand else FullMesh)(generator, window, policy)


def _check_number(generator: CNGen, mesh: MeshKind) -> None:
    """Where it cannot be counted fast, networks are made, and the memory budget holds."""
    with suppress(TooManyKindsError):
        total = sum(count_networks(generator))
        if total > MOST_NETWORKS:
            raise UsageError(
                f"--mesh {mesh} makes all operators beforehand, and the query has {total:,} candidate "
                f"networks: expected at most {MOST_NETWORKS:,}, by fewer keywords, a smaller --max-size or "
                "another mesh"
            )


def _policy(purge: PurgeKind, by_demand: bool) -> PurgePolicy:
    return EagerPurging() if purge is PurgeKind.EAGER else LazyPurging(by_demand)
