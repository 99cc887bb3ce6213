"""Names of the paper's meshes and purge policies.

Apart from the meshes: the command line offers the choice without loading them.
"""

from __future__ import annotations

from enum import StrEnum


class MeshKind(StrEnum):
    """Layouts of the paper's meshes (S-KWS paper, Sections 3.3, 4.1, 4.2)."""

    FULL = "full"
    PARTIAL = "partial"
    FOREST = "forest"


class PurgeKind(StrEnum):
    """When composite tuples leave the paper's meshes (Section 4.3)."""

    LAZY = "lazy"
    EAGER = "eager"

    @classmethod
    def usual(cls, mesh: MeshKind) -> PurgeKind:
        """The policy of the paper's experiments: lazy purging needs demand, which only the full mesh has."""
        return cls.LAZY if mesh is MeshKind.FULL else cls.EAGER
