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
