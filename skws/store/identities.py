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
        self._all_columns = [tuple(range(len(relation.attributes))) for relation in schema.relations]
        self._is_integer_key = np.array(
            [_is_integer(schema, n) for n in range(len(schema.relations))], dtype=bool
        )

    def of(self, rows: Rows, relations: Collection[int] | None = None) -> tuple[Hashes, Flags]:
        """A hash for each row, and flags of the hashes that are those of keys.

        Rows without a key, or with a NULL in it, are hashed whole. Equal identities of a relation have equal
        hashes. ``relations``: those that matter; other rows get some hash. Truncations have no identity.
        """
        hashes = np.full(len(rows), _NO_IDENTITY)
        is_keyed = np.zeros(len(rows), dtype=bool)
        for relation, blocks, positions, places in rows.by_relation():
            key = self._keys[relation]
            if not key and relations is not None and relation not in relations:
                continue
            number = np.full(len(positions), relation, dtype=np.int64)
            uses_key: Flags = np.zeros(len(positions), dtype=bool)
            if key:
                values, has_key = identity_values(blocks, key)
                uses_key, value_hashes = has_key.take(places), values.take(places)
            if not uses_key.all():
                row_hashes, _ = identity_values(blocks, self._all_columns[relation])
                value_hashes = (
                    np.where(uses_key, value_hashes, row_hashes.take(places))
                    if key
                    else row_hashes.take(places)
                )
            hashes[positions], is_keyed[positions] = index_hashes(number, value_hashes), uses_key
        return hashes, is_keyed

    def is_exact(self, relation: Ints, is_keyed: Flags) -> Flags:
        """True if equal hashes of one relation imply equal identities, as for keys of one integer."""
        is_exact: Flags = self._is_integer_key.take(relation) & is_keyed
        return is_exact

    def values(self, rows: Rows, is_keyed: Flags) -> list[Row]:
        """The values of each row's key, or the whole row if it has none."""
        rows_of_values: list[Row] = [()] * len(rows)
        for block, positions, places in rows.by_block():
            for is_chosen, columns in ((is_keyed, self._keys), (~is_keyed, self._all_columns)):
                chosen_rows = np.flatnonzero(is_chosen.take(positions))
                if len(chosen_rows):
                    chosen_places = places.take(chosen_rows)
                    column_values = (
                        block.values_at(column, chosen_places) for column in columns[block.relation]
                    )
                    for number, values in zip(
                        positions.take(chosen_rows).tolist(), zip(*column_values, strict=True), strict=True
                    ):
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
        hashes, is_keyed = np.zeros(space, dtype=np.uint64), np.zeros(space, dtype=bool)
        self._tuples.open((hashes, none, is_keyed), size)  # type: ignore[arg-type]  # of several types

    def add(
        self,
        first: int,
        relation: Ints,
        hashes: Hashes,
        is_keyed: Flags,
        is_single: Flags,
        is_open_ended: Flags,
    ) -> None:
        """Add the tuples from slot ``first`` on, by their hashes.

        ``is_open_ended``: flags tuples that no record has ended yet; others cannot be found.
        """
        self._tuples.append((hashes, np.full(len(hashes), _NONE), is_keyed))  # type: ignore[arg-type]  # of several types
        self.make_single(
            np.flatnonzero(np.isin(relation, list(self.followed)) & is_single & is_open_ended) + first
        )

    def make_space(self, count: int) -> None:
        """Reserve space for ``count`` tuples."""
        self._tuples.make_space(count)

    def append(self, hashes: Hashes, is_keyed: Flags) -> None:
        """Add the tuples of the next slots, without an index (``index``)."""
        self._tuples.append((hashes, np.full(len(hashes), _NONE, dtype=np.int32), is_keyed))  # type: ignore[arg-type]  # of several types

    def index(self, relation: Ints) -> Ints:
        """Index all tuples at once; no index exists yet. Returns the slots whose hash is not unique.

        ``relation``: by slot. Tuples that share a hash are not single.
        """
        slots = np.flatnonzero(np.isin(relation, list(self.followed)))
        hashes = self.hashes(slots)
        is_repeated = _is_repeated(hashes)
        repeated_slots: Ints = NOTHING
        if is_repeated.any():
            repeated_slots = slots[is_repeated]
            slots, hashes = slots[~is_repeated], hashes[~is_repeated]
        self._index.make_space(len(slots), len(slots))
        numbers = np.arange(len(slots))
        self._index.add(hashes, numbers)
        self._numbers.append((hashes, slots))  # type: ignore[arg-type]  # of two types
        self._tuples.numbers[slots] = numbers
        return repeated_slots

    def follow(self, relation: int, slots: Ints, rows: Rows) -> Ints:
        """Start following a relation with these live tuples; returns the slots whose hash is not unique."""
        self.followed.add(relation)
        hashes, is_keyed = self.identities.of(rows)
        self._tuples.hashes[slots] = hashes
        self._tuples.keyed[slots] = is_keyed
        _, hash_numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        is_repeated: Flags = (counts > 1).take(hash_numbers)
        self.make_single(slots[~is_repeated])
        return slots[is_repeated]

    def with_hashes(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """The single tuples with given hashes, as (position in ``hashes``, slot); some have ended."""
        position, number = self._with_hashes(hashes)
        slots = self._numbers.slots.take(number)
        is_live = slots != _NONE
        return position[is_live], slots[is_live]

    def of(self, slots: Ints) -> Ints:
        """The slots of single tuples among ``slots``."""
        live_slots: Ints = slots[self._tuples.numbers.take(slots) != _NONE]
        return live_slots

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

    def make_single(self, slots: Ints) -> None:
        """Make tuples single."""
        hashes = self.hashes(slots)
        position, number = self._with_hashes(hashes)
        is_free = self._numbers.slots.take(number) == _NONE
        # Different identities may have one hash: each number is for one of them, and each has one number.
        number, indexes = np.unique(number[is_free], return_index=True)
        position, indexes = np.unique(position[is_free].take(indexes), return_index=True)
        self._assign(slots.take(position), number.take(indexes))
        is_new = np.ones(len(slots), dtype=bool)
        is_new[position] = False
        slots, hashes = slots[is_new], hashes[is_new]
        numbers = np.arange(len(slots)) + self._numbers.size
        self._numbers.append((hashes, numbers))  # type: ignore[arg-type]  # of two types
        self._index.add(hashes, numbers)
        self._assign(slots, numbers)

    def compact(self, slots: Ints) -> None:
        """Give tuples their new slots, in the same order; drop those with negative ones."""
        numbers = np.flatnonzero(self._numbers.slots != _NONE)
        new_slots = slots.take(self._numbers.slots.take(numbers))
        self._numbers.slots[numbers] = new_slots
        self._tuples.keep(slots >= 0)
        self._index.remap(self._numbers.keep(self._numbers.slots != _NONE))
        self._assign(self._numbers.slots, np.arange(self._numbers.size))

    def _with_hashes(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """The numbers of identities with given hashes, as (position in ``hashes``, number)."""
        position, number = self._index.probe(hashes)
        is_equal = self._numbers.hashes.take(number) == hashes.take(position)
        return position[is_equal], number[is_equal]

    def _assign(self, slots: Ints, numbers: Ints) -> None:
        self._tuples.numbers[slots] = numbers
        self._numbers.slots[numbers] = slots


def _is_repeated(hashes: Hashes) -> Flags:
    """True for hashes that occur more than once."""
    sorted_hashes = np.sort(hashes)
    repeated_hashes = sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]]
    return np.isin(hashes, repeated_hashes) if len(repeated_hashes) else np.zeros(len(hashes), dtype=bool)


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
