"""How a run is laid out over shards; kept in its checkpoint, since state is where the shards have put it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from skws.queries.partitioning import Part, Partitioning
from skws_schema.errors import UsageError

MANY: Final = 16  # queries a shard, from which on shards divide queries instead of roots
MOST_SHARDS: Final = 256
_WORD: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Layout:
    """``keys``: what to group by so that every shard has a partition of its own."""

    spread: Partitioning
    keys: tuple[int, ...]

    @property
    def shards(self) -> int:
        return len(self.keys)

    @property
    def shares(self) -> dict[int, Part]:
        return {key: Part(number, self.shards, self.spread) for number, key in enumerate(self.keys)}

    def shown(self) -> dict[str, Any]:
        """As JSON, for the manifest of the checkpoint."""
        return {"spread": self.spread, "keys": self.keys}


def kept_layout(told: Any, folder: Path, wanted: int | None) -> Layout | None:
    """Inverse of ``shown``; None without one. Raises UsageError if another number of shards is ``wanted``."""
    if told is None:
        return None
    layout = Layout(Partitioning(told["spread"]), tuple(told["keys"]))
    if wanted is not None and wanted != layout.shards:
        raise UsageError(
            f"{folder}: the checkpoint is of {layout.shards} shards, not {wanted}: each keeps its own state"
            " (leave the number out, or start with a new --checkpoint)"
        )
    return layout


def new_layout(shards: int, queries: int) -> Layout:
    """For a run that begins. Raises UsageError."""
    if not 1 <= shards <= MOST_SHARDS:
        raise UsageError(f"spark.skws.shards {shards}: expected 1 to {MOST_SHARDS}")
    spread = Partitioning.QUERIES if shards > 1 and queries >= MANY * shards else Partitioning.ROOTS
    return Layout(spread, keys_for(shards))


def keys_for(shards: int) -> tuple[int, ...]:
    """The least integer that Spark brings to each of so many partitions."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(spark_hash(key) % shards, key)
        if len(found) == shards:
            return tuple(found[partition] for partition in range(shards))
    raise AssertionError


def spark_hash(key: int) -> int:
    """Spark's hash of an ``int``, by which it partitions: 32-bit Murmur 3 with seed 42, signed."""
    mixed = _rotated(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    code = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    code ^= 4  # bytes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code = (code ^ code >> shift) * factor & _WORD
    return code - (1 << 32) if code >> 31 else code


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _WORD
