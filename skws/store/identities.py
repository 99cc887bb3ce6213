"""Finds the live tuple that a record replaces or deletes, by a hash index over columns.

A record ends the tuple of its identity: its key, or else its whole row (``skws_purging.lifespans``). Nearly
always only one tuple of an identity is alive, and no earlier record can come. Such a tuple is *single*: it is
found by the hash of its identity and needs no Python object. A followed database has millions of them.

Other tuples are followed as objects: equal rows, and those that a late record may still correct.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from skws.data.batch import Rows
from skws.index.values import identity_values
from skws_mesh.columnar.columns import NOTHING, Flags, Hashes, Ints, index_hashes
from skws_mesh.columnar.hash_index import HashIndex
from skws_mesh.columnar.store import Table
from skws_schema.model import AttributeType, Row, Schema

_NO_IDENTITY: Final = np.uint64(0)
_NONE: Final = np.int64(-1)


class Identities:
    """Hashes of the identities of rows, and the identities themselves."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._keys = [relation.key_columns for relation in schema.relations]
        self._wide = [tuple(range(len(relation.attributes))) for relation in schema.relations]
        self._exact = np.array([_is_integer(schema, n) for n in range(len(schema.relations))], dtype=bool)

    def of(self, rows: Rows, wanted: Collection[int] | None = None) -> tuple[Hashes, Flags]:
        """A hash for each row, and flags of the hashes that are those of keys.

        Rows without a key, or with a NULL in it, are hashed whole. Equal identities of a relation have equal
        hashes. ``wanted``: the relations that matter; other rows get some hash. Truncations have no identity.
        """
        hashes = np.full(len(rows), _NO_IDENTITY)
        keyed = np.zeros(len(rows), dtype=bool)
        for relation, blocks, mine, places in rows.by_relation():
            key = self._keys[relation]
            if not key and wanted is not None and relation not in wanted:
                continue
            number = np.full(len(mine), relation, dtype=np.int64)
            by_key: Flags = np.zeros(len(mine), dtype=bool)
            if key:
                values, there = identity_values(blocks, key)
                by_key, value_hashes = there.take(places), values.take(places)
            if not by_key.all():
                whole, _ = identity_values(blocks, self._wide[relation])
                value_hashes = (
                    np.where(by_key, value_hashes, whole.take(places)) if key else whole.take(places)
                )
            hashes[mine], keyed[mine] = index_hashes(number, value_hashes), by_key
        return hashes, keyed

    def told_apart(self, relation: Ints, keyed: Flags) -> Flags:
        """True if equal hashes of one relation imply equal identities, as for keys of one integer."""
        is_exact: Flags = self._exact.take(relation) & keyed
        return is_exact

    def values(self, rows: Rows, keyed: Flags) -> list[Row]:
        """The values of each row's key, or the whole row if it has none."""
        rows_of_values: list[Row] = [()] * len(rows)
        for block, mine, places in rows.by_block():
            for chosen, columns in ((keyed, self._keys), (~keyed, self._wide)):
                of = np.flatnonzero(chosen.take(mine))
                if len(of):
                    some = places.take(of)
                    parts = (block.values_at(column, some) for column in columns[block.relation])
                    for number, values in zip(mine.take(of).tolist(), zip(*parts, strict=True), strict=True):
                        rows_of_values[number] = values
        return rows_of_values


class SingleTuples:
    """The single tuples of the relations that are ``followed``.

    An identity has a number, which its next tuple inherits: so a tuple that is updated again and again has
    one entry in the index.
    """

    def __init__(self, schema: Schema, followed: Collection[int]) -> None:
        self.identities = Identities(schema)
        self.followed = set(followed)
        self._tuples = _ByTuple()
        self._numbers = _ByNumber()
        self._index = HashIndex()  # from hashes to numbers

    def open(self, size: int, space: int) -> None:
        """Start with ``size`` tuples that no record ends, and space for ``space`` tuples in all."""
        none = np.full(space, _NONE, dtype=np.int32)
        hashes, keyed = np.zeros(space, dtype=np.uint64), np.zeros(space, dtype=bool)
        self._tuples.open((hashes, none, keyed), size)  # type: ignore[arg-type]  # of several types

    def add(
        self, first: int, relation: Ints, hashes: Hashes, keyed: Flags, single: Flags, lasting: Flags
    ) -> None:
        """Add the tuples from slot ``first`` on, by their hashes.

        ``lasting``: flags tuples that no record has ended yet; others cannot be found.
        """
        self._tuples.append((hashes, np.full(len(hashes), _NONE), keyed))  # type: ignore[arg-type]  # of several types
        self.take_back(np.flatnonzero(np.isin(relation, list(self.followed)) & single & lasting) + first)

    def make_space(self, more: int) -> None:
        """Reserve space for ``more`` tuples."""
        self._tuples.make_space(more)

    def append(self, hashes: Hashes, keyed: Flags) -> None:
        """Add the tuples of the next slots, without an index (``index``)."""
        self._tuples.append((hashes, np.full(len(hashes), _NONE, dtype=np.int32), keyed))  # type: ignore[arg-type]  # of several types

    def index(self, relation: Ints) -> Ints:
        """Index all tuples at once; no index exists yet. Returns the slots whose hash is not unique.

        ``relation``: by slot. Tuples that share a hash are not single.
        """
        slots = np.flatnonzero(np.isin(relation, list(self.followed)))
        hashes = self.hashes(slots)
        several = _repeated(hashes)
        remaining: Ints = NOTHING
        if several.any():
            remaining = slots[several]
            slots, hashes = slots[~several], hashes[~several]
        self._index.make_space(len(slots), len(slots))
        numbers = np.arange(len(slots))
        self._index.add(hashes, numbers)
        self._numbers.append((hashes, slots))  # type: ignore[arg-type]  # of two types
        self._tuples.numbers[slots] = numbers
        return remaining

    def follow(self, relation: int, slots: Ints, rows: Rows) -> Ints:
        """Start following a relation with these live tuples; returns the slots whose hash is not unique."""
        self.followed.add(relation)
        hashes, keyed = self.identities.of(rows)
        self._tuples.hashes[slots] = hashes
        self._tuples.keyed[slots] = keyed
        _, which, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        several: Flags = (counts > 1).take(which)
        self.take_back(slots[~several])
        return slots[several]

    def with_hashes(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """The single tuples with given hashes, as (position in ``hashes``, slot); some have ended."""
        position, number = self._with_hashes(hashes)
        slots = self._numbers.slots.take(number)
        there = slots != _NONE
        return position[there], slots[there]

    def of(self, slots: Ints) -> Ints:
        """The slots of single tuples among ``slots``."""
        live: Ints = slots[self._tuples.numbers.take(slots) != _NONE]
        return live

    def keyed(self, slots: Ints) -> Flags:
        """True if the hash of a tuple is that of its key."""
        return self._tuples.keyed.take(slots)

    def hashes(self, slots: Ints) -> Hashes:
        return self._tuples.hashes.take(slots)

    def release(self, slots: Ints) -> None:
        """Make tuples no longer single."""
        slots = self.of(slots)
        self._numbers.slots[self._tuples.numbers.take(slots)] = _NONE
        self._tuples.numbers[slots] = _NONE

    def take_back(self, slots: Ints) -> None:
        """Make tuples single."""
        hashes = self.hashes(slots)
        position, number = self._with_hashes(hashes)
        free = self._numbers.slots.take(number) == _NONE
        # Different identities may have one hash: each number is for one of them, and each has one number.
        number, which = np.unique(number[free], return_index=True)
        position, which = np.unique(position[free].take(which), return_index=True)
        self._assign(slots.take(position), number.take(which))
        new = np.ones(len(slots), dtype=bool)
        new[position] = False
        slots, hashes = slots[new], hashes[new]
        numbers = np.arange(len(slots)) + self._numbers.size
        self._numbers.append((hashes, numbers))  # type: ignore[arg-type]  # of two types
        self._index.add(hashes, numbers)
        self._assign(slots, numbers)

    def compact(self, slots: Ints) -> None:
        """Give tuples their new slots, in the same order; drop those with negative ones."""
        there = np.flatnonzero(self._numbers.slots != _NONE)
        moved = slots.take(self._numbers.slots.take(there))
        self._numbers.slots[there] = moved
        self._tuples.keep(slots >= 0)
        self._index.remap(self._numbers.keep(self._numbers.slots != _NONE))
        self._assign(self._numbers.slots, np.arange(self._numbers.size))

    def _with_hashes(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """The numbers of identities with given hashes, as (position in ``hashes``, number)."""
        position, number = self._index.probe(hashes)
        equal = self._numbers.hashes.take(number) == hashes.take(position)
        return position[equal], number[equal]

    def _assign(self, slots: Ints, numbers: Ints) -> None:
        self._tuples.numbers[slots] = numbers
        self._numbers.slots[numbers] = slots


def _repeated(hashes: Hashes) -> Flags:
    """True for hashes that occur more than once."""
    ordered = np.sort(hashes)
    often = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.isin(hashes, often) if len(often) else np.zeros(len(hashes), dtype=bool)


class _ByTuple(Table):
    """By slot: the hash of the identity, its number if the tuple is single, and True if that is of a key."""

    def __init__(self) -> None:
        columns = (np.empty(0, dtype=kind) for kind in (np.uint64, np.int32, bool))
        super().__init__(tuple(columns))

    @property
    def hashes(self) -> Hashes:
        return self.columns()[0].view(np.uint64)

    @property
    def numbers(self) -> Ints:
        return self.columns()[1]

    @property
    def keyed(self) -> Flags:
        return self.columns()[2].view(np.bool_)


class _ByNumber(Table):
    """By number of an identity: its hash, and the slot of its single tuple."""

    def __init__(self) -> None:
        super().__init__((NOTHING.astype(np.uint64), NOTHING))

    @property
    def hashes(self) -> Hashes:
        return self.columns()[0].view(np.uint64)

    @property
    def slots(self) -> Ints:
        return self.columns()[1]


def _is_integer(schema: Schema, number: int) -> bool:
    """True if a relation's key is one integer."""
    relation = schema.relations[number]
    types = [relation.attributes[column].type for column in relation.key_columns]
    return types == [AttributeType.INTEGER]
