"""Names and rows of tuples in results; ids of results.

A tuple with a key is named by its key, for all versions of the row. Without a key, or with a NULL in it, the
name consists of row, start and occurrence. So a name does not depend on engine, slices or order of arrival,
and results keep their ids when their rows are updated. Patterns are about events, so they name each version
by its start (``TupleNames.version``).

An id has 96 bits, which depend on the tuples and joins, but not on their order. It is a sum of mixed digests,
one for each tuple's name, and one for each join's name with its left and right end. Sums do not depend on
order, so the ids of many results are computed by columns (``ids``), and are equal to those computed one by
one (``id_of``). A digest has two *lanes* of 64 bits, which never mix: different results have the same id only
if both lanes agree by chance.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.json import Encoder

from skws.results.result import JsonRow
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.model import AttributeType, Relation, Row, Schema, iso
from skws_windows.window import MICROSECOND

_COARSE: Final = MICROSECOND << 33
"""From this time on, in microseconds, doubles of seconds are further apart than a microsecond."""
_JSON = Encoder()  # a line for each name: line ends in texts are escaped


class Named(Struct, eq=False, gc=False):
    """A tuple with its name.

    ``digest``: its part of the ids of results. The description is made on demand, for results that are shown.
    """

    _names: RelationNames
    _values: Row
    _start: int
    digest: bytes
    _occurrence: int = 0
    _follows: bool = False

    @property
    def relation(self) -> str:
        return self._names.relation

    @property
    def id(self) -> str:
        return self._names.tuple_id(self._values, self._start, self._occurrence, self._follows)

    @property
    def row(self) -> JsonRow:
        return self._names.row(self._values)


class RelationNames:
    """Names and describes the tuples of one relation."""

    __slots__ = ("_per_position", "_prefix", "_relation", "relation", "row")

    def __init__(self, relation: Relation, per_position: int | None) -> None:
        self._relation = relation
        self._per_position = per_position
        self.relation = relation.name
        self._prefix = b"%b\x1d" % relation.name.encode()
        self.row = _row_getter(relation)

    def of(self, row: Row, start: int, occurrence: int) -> Named:
        """A tuple from the components of its name."""
        start = self._place(start)
        name = _JSON.encode(self._identity(row, start, occurrence))
        return Named(self, row, start, digest(self._prefix + name), occurrence)

    def version(self, row: Row, start: int, occurrence: int, follows: bool) -> Named:
        """One version of a tuple with a key; ``follows``: its id differs from that of an earlier version."""
        start = self._place(start)
        key = self._relation.key_of(row)
        name = _JSON.encode((row if key is None else key, start, occurrence))
        return Named(self, row, start, digest(self._prefix + name), occurrence, follows)

    def firsts(self, rows: Sequence[Row], starts: Sequence[int]) -> list[Named]:
        """The tuples if no row has an equal earlier one at the same instant."""
        if self._per_position is not None:
            starts = list(map(self._place, starts))
        if self._relation.key:
            names = [self._identity(row, start, 0) for row, start in zip(rows, starts, strict=True)]
            lines = _JSON.encode_lines(names)
        else:
            lines = _JSON.encode_lines(list(zip(rows, starts, repeat(0))))
        row_digests = digests(self._prefix, lines.splitlines())
        return list(map(Named, repeat(self), rows, starts, row_digests))

    def tuple_id(self, row: Row, start: int, occurrence: int, follows: bool) -> str:
        """The id of a tuple in results."""
        version = f"@{self._start_text(start)}{f'.{occurrence}' if occurrence else ''}"
        if self._relation.key_of(row) is None:
            return f"{self.relation}:{blake2b(_JSON.encode(row), digest_size=6).hexdigest()}{version}"
        return f"{self.relation}:{_key_text(self._relation, row)}{version if follows else ''}"

    def _identity(self, row: Row, start: int, occurrence: int) -> tuple[Row] | tuple[Row, int, int]:
        """The identity of a tuple: its key, or else its row, start and number among equal ones."""
        key = self._relation.key_of(row)
        return (row, start, occurrence) if key is None else (key,)

    def _place(self, start: int) -> int:
        """The position of a start if ticks are positions, otherwise the start."""
        if self._per_position is None or start == ALWAYS:
            return start
        return start // self._per_position

    def _start_text(self, start: int) -> str:
        if start == ALWAYS:
            return "table"
        if self._per_position is not None:
            return str(start)
        if abs(start) < _COARSE:
            return f"{start / MICROSECOND}"
        seconds, micros = divmod(abs(start), MICROSECOND)
        return f"{'-' if start < 0 else ''}{seconds}.{f'{micros:06}'.rstrip('0') or '0'}"


class TupleNames:
    """Names tuples. ``per_position``: the ticks for each position; None if ticks are microseconds."""

    def __init__(self, schema: Schema, per_position: int | None) -> None:
        self.relations = [RelationNames(relation, per_position) for relation in schema.relations]

    def of(self, member: StreamTuple) -> Named:
        return self.relations[member.relation].of(member.row, member.start, member.occurrence)

    def version(
        self, relation: int, row: Row, start: int, occurrence: int = 0, *, follows: bool = False
    ) -> Named:
        """A version of a tuple, for patterns. ``follows``: an earlier one started less than a window ago."""
        return self.relations[relation].version(row, start, occurrence, follows)


def json_row(relation: Relation, row: Row) -> JsonRow:
    """A row by attribute names, with time stamps as ISO 8601 in UTC."""
    return _row_getter(relation)(row)


def _row_getter(relation: Relation) -> Callable[[Row], JsonRow]:
    names = [attribute.name for attribute in relation.attributes]
    stamps = [a.name for a in relation.attributes if a.type is AttributeType.TIMESTAMP]

    def shown(row: Row) -> JsonRow:
        row_by_name: JsonRow = dict(zip(names, row, strict=True))
        for name in stamps:
            value = row_by_name[name]
            row_by_name[name] = None if value is None else iso(int(value))
        return row_by_name

    return shown


def _key_text(relation: Relation, row: Row) -> str:
    parts = [str(row[c]).replace("\\", "\\\\").replace(",", "\\,") for c in relation.key_columns]
    return ",".join(parts)


Ints = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.uint64]

_BITS: Final = (1 << 64) - 1
_LEFT: Final = 0x9E3779B97F4A7C15
_RIGHT: Final = 0xC2B2AE3D27D4EB4F
# The finalizer of MurmurHash3 (fmix64; Appleby).
_SHIFT: Final = 33
_FACTORS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_TWO_LANES: Final = struct.Struct("<QQ")
_ID_DIGITS: Final = 24  # hexadecimal digits: all of the first lane, half of the second


def digest(name: bytes) -> bytes:
    """The two lanes of a name, little-endian."""
    return blake2b(name, digest_size=16).digest()


def digests(prefix: bytes, names: Sequence[bytes]) -> list[bytes]:
    """The digests of many names with a common prefix."""
    new_state, name_digests = blake2b(prefix, digest_size=16).copy, []
    for name in names:  # one at a time: each state replaces the last one in the processor's caches
        state = new_state()
        state.update(name)
        name_digests.append(state.digest())
    return name_digests


@lru_cache(maxsize=4096)
def digest_of_join(name: str) -> bytes:
    return digest(name.encode())


def lanes(digests: Iterable[bytes]) -> Lanes:
    """Digests as rows of two lanes."""
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)


def ids(members: Lanes, tuples: Ints, joins: Lanes, ends: tuple[Ints, Ints, Ints]) -> Lanes:
    """The two lanes of the ids of results of one size, one column per result.

    ``tuples``: the numbers of their tuples among ``members``, a row for each node. ``ends``: for their joins,
    the rows of ``tuples`` on the left and on the right, and the numbers among ``joins``.
    """
    left, right, names = ends
    number = tuples.shape[1]
    column = np.arange(number, dtype=np.int64)
    near, far = left * number + column, right * number + column
    id_lanes = np.empty((2, number), dtype=np.uint64)
    for lane in range(2):
        tuple_lanes = members[:, lane].take(tuples)
        pairs = tuple_lanes.ravel().take(near) * np.uint64(_LEFT)
        pairs ^= tuple_lanes.ravel().take(far) * np.uint64(_RIGHT)
        pairs += joins[:, lane].take(names)
        id_lanes[lane] = _mixed(tuple_lanes.sum(axis=0) + _mixed(pairs).sum(axis=0, dtype=np.uint64))
    return id_lanes


def shown_ids(ids: Lanes) -> list[str]:
    """Ids as texts, which sort by the first lane, then by the first half of the second."""
    if not ids.size:
        return []
    lanes = ids.T.astype(">u8", order="C").view(np.uint8)
    # Joining and splitting takes a third of the time of slicing them one by one.
    return lanes[:, : _ID_DIGITS // 2].tobytes().hex(" ", _ID_DIGITS // 2).split(" ")


def same_shown(ids: Lanes, columns: Ints, other_columns: Ints) -> bool:
    """True if the ids in some columns have the texts of those in others."""
    half = np.uint64(_BITS >> 32 << 32)
    left, right = ids.take(columns, axis=1), ids.take(other_columns, axis=1)
    return bool((left[0] == right[0]).all() and ((left[1] ^ right[1]) & half == 0).all())


def id_of(members: Sequence[bytes], joins: Iterable[tuple[int, int, str]]) -> str:
    """The id of one result, from the digests of its tuples, and its joins (left tuple, right tuple, name)."""
    tuple_lanes = list(map(_TWO_LANES.unpack, members))
    ends = [(left, right, _TWO_LANES.unpack(digest_of_join(name))) for left, right, name in joins]
    id_lanes = []
    for lane in range(2):
        pairs = (
            ((tuple_lanes[left][lane] * _LEFT ^ tuple_lanes[right][lane] * _RIGHT) & _BITS) + name[lane]
            for left, right, name in ends
        )
        total = sum(digests[lane] for digests in tuple_lanes) + sum(
            _mixed_number(pair & _BITS) for pair in pairs
        )
        id_lanes.append(_mixed_number(total & _BITS))
    return f"{id_lanes[0]:016x}{id_lanes[1]:016x}"[:_ID_DIGITS]


def _mixed(numbers: Lanes) -> Lanes:
    """Mixes the numbers in place."""
    for factor in _FACTORS:
        numbers ^= numbers >> np.uint64(_SHIFT)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(_SHIFT)
    return numbers


def _mixed_number(number: int) -> int:
    for factor in _FACTORS:
        number = (number ^ (number >> _SHIFT)) * factor & _BITS
    return number ^ (number >> _SHIFT)
