"""What meshes are chosen by; apart from the meshes, so that who offers the choice need not load them."""

from __future__ import annotations

from enum import StrEnum


class MeshKind(StrEnum):
    """Layouts of the mesh. ``HASHED`` is our own, the others are the paper's (Sections 3.3, 4.1, 4.2)."""

    HASHED = "hashed"
    FULL = "full"
    PARTIAL = "partial"
    FOREST = "forest"


class PurgeKind(StrEnum):
    """When composite tuples leave the paper's meshes (Section 4.3)."""

    LAZY = "lazy"
    EAGER = "eager"

    @classmethod
    def usual(cls, mesh: MeshKind) -> PurgeKind:
        """What the paper's experiments use: lazy purging rests on demand, which only the full mesh has."""
        return cls.LAZY if mesh is MeshKind.FULL else cls.EAGER
