"""Names of the paper's meshes and purge policies.

They are in a separate file so that the command line can list them without loading the meshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MeshKind(StrEnum):
    """Layouts of the paper's meshes (S-KWS paper, Sections 3.3, 4.1, 4.2)."""

    FULL = "full"
    PARTIAL = "partial"
    FOREST = "forest"


class PurgeKind(StrEnum):
    """The time at which composite tuples leave the paper's meshes (Section 4.3)."""

    LAZY = "lazy"
    EAGER = "eager"

    @classmethod
    def usual(cls, mesh: MeshKind) -> PurgeKind:
        """The policy of the paper's experiments: lazy purging needs demand, which only the full mesh has."""
        return cls.LAZY if mesh is MeshKind.FULL else cls.EAGER


@dataclass(frozen=True, slots=True)
class MeshChoice:
    """One of the paper's meshes; results do not depend on it.

    ``purge``: None for the usual policy of the mesh. ``demand``: True if operators sleep while they cannot
    contribute to a result; only the full mesh uses it.
    """

    kind: MeshKind
    purge: PurgeKind | None = None
    demand: bool = True

    @property
    def policy(self) -> PurgeKind:
        return self.purge or PurgeKind.usual(self.kind)

    @property
    def by_demand(self) -> bool:
        return self.demand and self.kind is MeshKind.FULL
