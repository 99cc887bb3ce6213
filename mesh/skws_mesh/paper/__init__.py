"""The paper's meshes: the forest, the full and the partial mesh (S-KWS paper, Sections 3.3, 4.1 and 4.2)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from skws_mesh.cngen import CNGen, TooManyKindsError, count_networks
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.join_operator import Producer
from skws_mesh.paper.paper_meshes import DemandDrivenMesh, Forest, FullMesh, PartialMesh
from skws_purging.policy import EagerPurging, LazyPurging, PurgePolicy
from skws_schema.errors import UsageError
from skws_windows.window import Window

MOST_NETWORKS: Final = 1_000_000
"""The most networks that are made before the first tuple; they take about a gigabyte."""


def make_mesh(generator: CNGen, window: Window, choice: MeshChoice) -> PaperMesh:
    """A mesh without tuples. Call ``check_networks`` before."""
    policy: PurgePolicy[Producer] = LazyPurging(choice.by_demand)
    if choice.policy is PurgeKind.EAGER:
        policy = EagerPurging()
    if choice.kind is MeshKind.PARTIAL:
        return PartialMesh(generator, window, policy)
    if choice.kind is MeshKind.FOREST:
        return Forest(generator, window, policy)
    return (DemandDrivenMesh if choice.by_demand else FullMesh)(generator, window, policy)


def check_networks(generator: CNGen, choice: MeshChoice) -> None:
    """Raises UsageError if the mesh makes all networks and there are too many.

    If they cannot be counted fast, the memory budget ends the run.
    """
    if choice.kind is MeshKind.PARTIAL:
        return
    with suppress(TooManyKindsError):
        total = sum(count_networks(generator))
        if total > MOST_NETWORKS:
            raise UsageError(
                f"--mesh {choice.kind} builds all operators in advance, and the query has {total:,} "
                f"candidate networks: expected at most {MOST_NETWORKS:,}; use fewer keywords, a smaller "
                "--max-size or another mesh"
            )
