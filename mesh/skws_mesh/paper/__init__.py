"""The paper's meshes: the forest, the full and the partial mesh (S-KWS paper, Sections 3.3, 4.1 and 4.2)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from skws_mesh.cngen import CNGen, TooManyKindsError, count_networks
from skws_mesh.kinds import MeshKind, PurgeKind
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.meshes import DemandDrivenMesh, Forest, FullMesh, PartialMesh
from skws_mesh.paper.operator import Producer
from skws_purging.policy import EagerPurging, LazyPurging, PurgePolicy
from skws_schema.errors import UsageError
from skws_windows.window import Window

MOST_NETWORKS: Final = 1_000_000
"""Networks made before the first tuple: about a gigabyte."""


def make_mesh(
    generator: CNGen,
    window: Window,
    mesh: MeshKind,
    purge: PurgeKind | None = None,
    demand: bool = True,
) -> PaperMesh:
    """A mesh without tuples.

    ``demand`` matters to the full mesh only. ``purge``: None for the policy
    usual with the mesh. Raises UsageError if all networks are to be made, and
    are too many.
    """
    by_demand = demand and mesh is MeshKind.FULL
    policy = _policy(purge or PurgeKind.usual(mesh), by_demand)
    if mesh is MeshKind.PARTIAL:
        return PartialMesh(generator, window, policy)
    _check_number(generator, mesh)
    if mesh is MeshKind.FOREST:
        return Forest(generator, window, policy)
    return (DemandDrivenMesh if by_demand else FullMesh)(generator, window, policy)


def _check_number(generator: CNGen, mesh: MeshKind) -> None:
    """Refuse too many networks; where they cannot be counted fast, the memory budget ends the run."""
    with suppress(TooManyKindsError):
        total = sum(count_networks(generator))
        if total > MOST_NETWORKS:
            raise UsageError(
                f"--mesh {mesh} builds all operators in advance, and the query has {total:,} candidate "
                f"networks: expected at most {MOST_NETWORKS:,}, by fewer keywords, a smaller --max-size or "
                "another mesh"
            )


def _policy(purge: PurgeKind, by_demand: bool) -> PurgePolicy[Producer]:
    return EagerPurging() if purge is PurgeKind.EAGER else LazyPurging(by_demand)
