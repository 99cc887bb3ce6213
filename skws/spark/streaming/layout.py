"""How a run is laid out over shards; kept in its checkpoint, since state is where the shards have put it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from skws.data.batch import RecordBatch
from skws.data.packing import packed
from skws.queries.keys import KeyPartitioning, plan_keys
from skws.queries.partitioning import Part, Partitioning
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_schema.errors import UsageError
from skws_windows.window import Window

MANY: Final = 16  # queries a shard, from which on shards divide queries instead of roots
MOST_SHARDS: Final = 256
_SHARDS: Final = "spark.skws.shards"
_SPREAD: Final = "spark.skws.partitioning"
_WORD: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Layout:
    """``groups``: what Spark groups by so that every shard has a partition of its own.

    ``keys``: what divides the tuples, if ``spread`` says that keys do. ``generation`` counts the layouts of a
    run, each of which has its own state at Spark; ``before``: how many micro-batches earlier ones worked on;
    ``previous``: the last one that did, whose state becomes that of this one.
    """

    spread: Partitioning
    groups: tuple[int, ...]
    keys: KeyPartitioning | None = None
    generation: int = 0
    before: int = 0
    previous: Layout | None = None

    @property
    def shards(self) -> int:
        return len(self.groups)

    @property
    def shares(self) -> dict[int, Part]:
        return {group: Part(number, self.shards, self.spread) for number, group in enumerate(self.groups)}

    def fits(self, queries: Sequence[Query], stream: Stream, window: Window) -> bool:
        """Whether the shards can answer these queries over the tuples that each of them gets."""
        return self.keys is None or plan_keys(queries, stream, window) == self.keys

    def divided(self, batch: RecordBatch) -> list[RecordBatch]:
        """What each shard reads; a single batch if all of them read all."""
        return [batch] if self.keys is None else self.keys.divided(batch, self.shards)

    def packed(self, batch: RecordBatch) -> list[bytes]:
        """The same, as shards keep it."""
        if self.keys is None:
            return [packed(batch)]
        return [packed(batch.taken(places), places) for places in self.keys.places(batch, self.shards)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for: so many shards, divided so; None leaves it to ``layout``."""

    shards: int | None = None
    spread: Partitioning | None = None

    @classmethod
    def by(cls, settings: Callable[[str], str | None]) -> Wanted:
        """By Spark's settings. Raises UsageError."""
        shards, spread = settings(_SHARDS), settings(_SPREAD)
        if shards is not None and not shards.isdecimal():
            raise UsageError(f"{_SHARDS} {shards}: expected a number")
        if spread is not None and spread not in list(Partitioning):
            raise UsageError(f"{_SPREAD} {spread}: expected {', '.join(Partitioning)}")
        return cls(None if shards is None else int(shards), None if spread is None else Partitioning(spread))

    def layout(
        self,
        queries: Sequence[Query],
        stream: Stream,
        window: Window,
        known: Layout | None = None,
        batches: int = 0,
    ) -> Layout:
        """For a run that begins, or goes on after so many micro-batches with the ``known`` one.

        By key if one divides the tuples, else by query if there are many, else by root. A known layout stays
        if it is as wanted and fits. Raises UsageError.
        """
        shards = self.shards or (known.shards if known else 1)
        if not 1 <= shards <= MOST_SHARDS:
            raise UsageError(f"{_SHARDS} {shards}: expected 1 to {MOST_SHARDS}")
        if known and known.shards == shards and (shards == 1 or self._stays(known, queries, stream, window)):
            return known
        spread, keys = Partitioning.ROOTS, None
        if shards > 1:
            spread, keys = self._divided(shards, queries, stream, window)
        if known is None:
            return Layout(spread, keys_for(shards), keys)
        previous = replace(known, previous=None) if batches > known.before else known.previous
        return Layout(spread, keys_for(shards), keys, known.generation + 1, batches, previous)

    def _stays(self, known: Layout, queries: Sequence[Query], stream: Stream, window: Window) -> bool:
        return self.spread in (None, known.spread) and known.fits(queries, stream, window)

    def _divided(
        self, shards: int, queries: Sequence[Query], stream: Stream, window: Window
    ) -> tuple[Partitioning, KeyPartitioning | None]:
        if self.spread in (None, Partitioning.KEYS):
            keys = plan_keys(queries, stream, window)
            if isinstance(keys, KeyPartitioning):
                return Partitioning.KEYS, keys
            if self.spread is not None:
                raise UsageError(f"{_SPREAD} keys: no key divides the tuples: {keys}")
        many = len(queries) >= MANY * shards
        return self.spread or (Partitioning.QUERIES if many else Partitioning.ROOTS), None


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
