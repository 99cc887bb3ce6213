"""The index of a table on disk, memory-mapped, so that all processes of a machine share it.

The rows are an Arrow file in parts of equal size.

Join values are looked up as 64-bit integers. Equal values give equal integers, whatever their types: 1, 1.0
and True do. Integers are themselves; other values are hashed. Different values may give the same integer,
so results are checked by the values. Python's hashes of texts differ between processes, so an index on disk
has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import orjson
import pyarrow as pa

from skws.data.arrow import STORED, of_integers
from skws.data.batch import Rows
from skws.data.blocks import ArrowBlock, Block, integers_of
from skws.data.texts import Texts
from skws.index.postings import IndexFile, Postings
from skws.keywords.match import Matcher
from skws.keywords.query import Alternative, Condition
from skws.keywords.scope import satisfying
from skws_mesh.columnar.columns import NOTHING, NULL, Flags, Hashes, Ints, mixed, ranges
from skws_mesh.columnar.live import KeySets
from skws_schema.graph import Edge, edges
from skws_schema.model import AttributeType, Relation, Row, Schema, Value

_PRIME: Final = np.uint64(0x100000001B3)
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_ABSENT: Final = np.int64(0x5F3759DF)  # for NULL, where NULLs equal each other
_WHOLE: Final = float(1 << 63)


def join_values(block: Block, columns: Sequence[int]) -> Ints:
    """One integer a row, NULL where one of the columns is NULL."""
    parts = [_column(block, column) for column in columns]
    if len(parts) == 1:
        values, there = parts[0]
        values = np.where(values == NULL, hash(int(NULL)), values)
    else:
        values, there = _combined([found for found, _ in parts]), np.logical_and.reduce([t for _, t in parts])
    return np.where(there, values, NULL)


def row_identities(block: Block, relation: Relation) -> Ints:
    """One integer a row: for its key or, without one, for the whole row."""
    whole = _identities(block, range(len(relation.attributes)))
    if not relation.key:
        return whole
    keyed = np.logical_and.reduce([there for _, there in _all(block, relation.key_columns)])
    return np.where(keyed, _identities(block, relation.key_columns), whole)


def _identities(block: Block, columns: Sequence[int]) -> Ints:
    """One integer a row for the values of some columns; NULLs are equal to each other."""
    return _combined([np.where(there, found, _ABSENT) for found, there in _all(block, columns)])


def text_hashes(texts: Texts) -> Hashes:
    """A hash of each text; NULL counts as the empty one."""
    if not texts.data:
        return np.zeros(len(texts), dtype=np.uint64)
    begins, lengths = texts.offsets[:-1], np.diff(texts.offsets)
    used = np.frombuffer(texts.data, dtype=np.uint8).astype(np.uint64)
    places = np.arange(len(used), dtype=np.int64) - np.repeat(begins, lengths)
    weights = _powers(1 << max(6, int(lengths.max()).bit_length()))
    sums = np.zeros(len(used) + 1, dtype=np.uint64)
    np.cumsum((used + np.uint64(1)) * weights[places], out=sums[1:])
    found: Hashes = (sums[begins + lengths] - sums[begins] + lengths.view(np.uint64)) * _SPREAD
    found ^= found >> _HALF
    return found * _SPREAD


def _all(block: Block, columns: Sequence[int]) -> list[tuple[Ints, Flags]]:
    return [_column(block, column) for column in columns]


def _column(block: Block, column: int) -> tuple[Ints, Flags]:
    """Integers for the values of a column, and where there are any."""
    integers = block.integers(column)
    if integers is not None:
        return integers, np.ones(len(block), dtype=bool)
    numbers = block.numbers(column)
    if numbers is not None:
        return _of_numbers(numbers[0]), numbers[1]
    texts = block.texts(column)
    if isinstance(texts, Texts):
        return text_hashes(texts).view(np.int64), np.ones(len(block), dtype=bool)
    if not isinstance(texts, Sequence):
        return text_hashes(Texts.of([texts])).view(np.int64), texts.is_valid().to_numpy(zero_copy_only=False)
    values = block.values(column)
    there = np.array([value is not None for value in values], dtype=bool)
    if any(isinstance(value, str) for value in values):
        return text_hashes(Texts.of([texts])).view(np.int64), there
    known = [0 if value is None else value for value in values]
    exact = all(isinstance(value, int) for value in known)
    return _of_numbers(np.array(known, dtype=np.int64 if exact else np.float64)), there


def _of_numbers(numbers: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """Equal numbers give equal integers, whatever their types: 1, 1.0 and True do."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.int64)
    floats = numbers.astype(np.float64)
    whole = (np.floor(floats) == floats) & (np.abs(floats) < _WHOLE)
    found = mixed(floats.view(np.uint64) * _SPREAD, np.zeros(len(floats), dtype=np.int64)).view(np.int64)
    return np.where(whole, np.where(whole, floats, 0).astype(np.int64), found)


def _combined(parts: Sequence[Ints]) -> Ints:
    found = np.zeros(len(parts[0]), dtype=np.uint64)
    for number, part in enumerate(parts, 1):
        found = mixed((found + part.view(np.uint64)) * _SPREAD, np.full(len(part), number, dtype=np.int64))
    return np.where(found.view(np.int64) == NULL, _ABSENT, found.view(np.int64))


@cache
def _powers(most: int) -> Hashes:
    found = np.full(most, _PRIME, dtype=np.uint64)
    found[0] = 1
    return np.multiply.accumulate(found)


_LARGEST = (1 << 63) - 1


class JoinValues:
    """Join values over one schema."""

    def __init__(self, schema: Schema, key_sets: KeySets) -> None:
        self._schema = schema
        # Indexes on disk need values that are the same in every process.
        self._lasting = any(relation.source for relation in schema.relations)
        self._key_sets = key_sets
        self._told_apart = [self._tells_apart(edge) for edge in edges(schema)]
        self._all_told_apart = True

    def of(self, rows: Rows) -> Ints:
        """An array of integers: a row for each row, a column for each key set of its relation, then NULL."""
        keys = np.full((len(rows), self._key_sets.width), NULL, dtype=np.int64)
        for relation, blocks, mine, places in rows.by_relation():
            for key_set, columns in enumerate(self._key_sets.columns[relation]):
                keys[:, key_set][mine] = self._column(blocks, columns).take(places)
        return keys

    @property
    def all_exact(self) -> bool:
        """True if ``exact`` holds for all edges."""
        return self._all_told_apart and all(self._told_apart)

    def exact(self, edge: int) -> bool:
        """True if equal integers imply equal values for the columns of an edge."""
        return self._all_told_apart and self._told_apart[edge]

    def _column(self, blocks: Sequence[Block], columns: tuple[int, ...]) -> Ints:
        """The join values of all rows of some blocks of one relation."""
        if self._lasting:
            found = [join_values(block, columns) for block in blocks]
            told_apart = len(columns) > 1 or all(_tells_least_apart(b.integers(columns[0])) for b in blocks)
            self._all_told_apart &= told_apart
            return np.concatenate(found) if len(found) != 1 else found[0]
        if len(columns) > 1:
            together = zip(*(_values(blocks, column) for column in columns), strict=True)
            return _integers([None if None in values else hash(values) for values in together])
        integers = integers_of(blocks, columns[0])
        if integers is None:
            return _integers([_integer(value) for value in _values(blocks, columns[0])])
        least = integers == NULL
        if least.any():  # the one integer that stands for NULL
            self._all_told_apart = False
            integers = np.where(least, hash(int(NULL)), integers)
        return integers

    def _tells_apart(self, edge: Edge) -> bool:
        ends = ((edge.source, edge.source_columns), (edge.target, edge.target_columns))
        return all(
            len(columns) == 1
            and self._schema.relations[relation].attributes[columns[0]].type is AttributeType.INTEGER
            for relation, columns in ends
        )


def _values(blocks: Sequence[Block], column: int) -> Iterable[Value]:
    return chain.from_iterable(block.values(column) for block in blocks)


def _tells_least_apart(integers: Ints | None) -> bool:
    """False if the one integer that stands for NULL occurs."""
    return integers is None or not (integers == NULL).any()


def _integer(value: Value) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return int(value) if -_LARGEST <= value <= _LARGEST else hash(value)
    return None if value is None else hash(value)


def _integers(values: list[int | None]) -> Ints:
    null = int(NULL)
    return np.array([null if value is None else value for value in values], dtype=np.int64)


PART: Final = 1 << 16  # rows
_FEW: Final = 64  # rows
_CONDITIONS: Final = 16  # whose rows are remembered


def arrow_schema(relation: Relation) -> pa.Schema:
    """A column for each attribute; time stamps in microseconds."""
    return pa.schema([(attribute.name, STORED[attribute.type]) for attribute in relation.attributes])


def write_rows(path: Path, relation: Relation, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Write rows in parts of PART; yields the number of rows written so far."""
    schema, held, size, done = arrow_schema(relation), [], 0, 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in chain(batches, [None]):
            if batch is not None:
                held.append(batch)
                size += batch.num_rows
                if size < PART:
                    continue
            joined = pa.Table.from_batches(held, schema).combine_chunks().to_batches()
            held, size = [], 0
            for whole in joined:
                for first in range(0, whole.num_rows, PART):
                    part = whole.slice(first, PART)
                    if part.num_rows == PART or batch is None:
                        writer.write_batch(part)
                        done += part.num_rows
                        yield done
                    else:
                        held, size = [part], part.num_rows


class TableRows:
    """Rows by number, from 0; only requested rows take memory of this process."""

    def __init__(self, data: pa.Buffer | pa.MemoryMappedFile, relation: int) -> None:
        self._relation = relation
        self._file = pa.ipc.open_file(data)
        self._parts: dict[int, pa.RecordBatch] = {}
        self._columns: dict[int, list[pa.Array]] = {}

    def parts(self) -> Iterator[tuple[int, ArrowBlock]]:
        """The parts in order, each with the number of its first row."""
        for number in range(self._file.num_record_batches):
            yield number * PART, ArrowBlock(self._relation, self._file.get_batch(number).columns)

    def each(self, numbers: Ints) -> list[Row]:
        """Some rows as tuples; one by one if they are few, as taking columns has its price."""
        if len(numbers) > _FEW:
            return self.taken(numbers).rows(np.arange(len(numbers)))
        found = []
        for number in numbers.tolist():
            part, place = divmod(number, PART)
            if part not in self._columns:
                self._columns[part] = self._part(part).columns
            found.append(tuple([column[place].as_py() for column in self._columns[part]]))
        return found

    def taken(self, numbers: Ints, columns: Sequence[int] | None = None) -> ArrowBlock:
        """A copy of some rows, in the order given; ``columns`` selects some columns."""
        schema = self._file.schema
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        order = np.argsort(numbers, kind="stable")
        part = numbers[order] // PART
        borders = np.searchsorted(part, np.unique(part))
        pieces = [
            self._part(int(some[0]) // PART).select(schema.names).take(of_integers(some % PART))
            for some in np.split(numbers[order], borders[1:])
            if len(some)
        ]
        table = pa.Table.from_batches(pieces, schema).combine_chunks()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        if len(pieces) > 1 or (back != np.arange(len(back))).any():
            table = table.take(of_integers(back))
        return ArrowBlock(
            self._relation,
            [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns],
        )

    def _part(self, number: int) -> pa.RecordBatch:
        if number not in self._parts:
            self._parts[number] = self._file.get_batch(number)
        return self._parts[number]


ALL: Final = -1
"""All keywords and exclusions of a query."""


class Joined:
    """The rows of a table by the values of one set of columns."""

    def __init__(self, file: IndexFile, name: str) -> None:
        self._values: Ints = file.array(f"{name}_values")
        self._rows = file.array(f"{name}_rows")

    def partners(self, values: Ints) -> Ints:
        """The rows with any of some values, given in order and each once."""
        first, counts = self._found(values)
        found: Ints = self._rows[ranges(first, counts)].astype(np.int64)
        return found

    def pairs(self, values: Ints) -> tuple[Ints, Ints]:
        """The rows with any of some values, and for each row the place of its value among these."""
        first, counts = self._found(values)
        return np.repeat(np.arange(len(values)), counts), self._rows[ranges(first, counts)].astype(np.int64)

    def counts(self, values: Ints) -> Ints:
        """How many rows have each value."""
        return self._found(values)[1]

    def _found(self, values: Ints) -> tuple[Ints, Ints]:
        first = np.searchsorted(self._values, values)
        met = np.flatnonzero(first < len(self._values))
        met = met[self._values[first[met]] == values[met]]
        counts = np.zeros(len(values), dtype=np.int64)
        counts[met] = np.searchsorted(self._values, values[met], side="right") - first[met]
        return first, counts


class TableIndex:
    """Rows by number, by join value and by word. ``relation``: its position in the schema.

    Of rows with equal keys only the last one counts and can be found. ``len``
    is how many count; ``texts[c]`` are the texts of a searched column and their
    characters. ``prefix`` names the table's parts in the file.
    """

    def __init__(self, file: IndexFile, relation: int, described: Relation, prefix: str = "") -> None:
        meta = orjson.loads(memoryview(file.data(f"{prefix}meta")))
        self.path = file.path
        self.relation = relation
        self._size: int = meta["rows"]
        self._rows = TableRows(file.data(f"{prefix}rows"), relation)
        self._postings = Postings(file, prefix)
        self._gone: Ints = file.array(f"{prefix}gone")
        self._satisfying: dict[Condition, Flags] = {}
        self._occurrences: Ints = file.array(f"{prefix}occurrences")
        self._joined = {
            tuple(described.columns[name] for name in names): Joined(file, f"{prefix}join_{number}")
            for number, names in enumerate(meta["keys"])
        }
        self.texts: dict[int, tuple[int, int]] = {
            described.columns[name]: tuple(found) for name, found in meta["texts"].items()
        }

    def __len__(self) -> int:
        return self._size - len(self._gone)

    @property
    def size(self) -> int:
        """The number of all rows, superseded ones included."""
        return self._size

    def rows(self, numbers: Ints) -> ArrowBlock:
        """A copy of some rows."""
        return self._rows.taken(numbers)

    def each(self, numbers: Ints) -> list[Row]:
        return self._rows.each(numbers)

    def every(self) -> Ints:
        """The numbers of all rows."""
        return np.setdiff1d(np.arange(self._size, dtype=np.int64), self._gone, assume_unique=True)

    def by(self, columns: tuple[int, ...]) -> Joined:
        """The rows by the values of columns that the schema joins on."""
        return self._joined[columns]

    def occurrence(self, numbers: Ints) -> dict[int, int]:
        """How many equal rows come before, where there are any; by place in ``numbers``."""
        if not len(self._occurrences):
            return {}
        place = np.searchsorted(self._occurrences[:, 0], numbers)
        met = np.flatnonzero(place < len(self._occurrences))
        met = met[self._occurrences[place[met], 0] == numbers[met]]
        return dict(zip(met.tolist(), self._occurrences[place[met], 1].tolist(), strict=True))

    def values(self, numbers: Ints, columns: tuple[int, ...]) -> Ints:
        """The join values of some rows, which are read a part at a time."""
        found = np.empty(len(numbers), dtype=np.int64)
        for first in range(0, len(numbers), PART):
            some = numbers[first : first + PART]
            found[first : first + len(some)] = join_values(
                self._rows.taken(some, columns), range(len(columns))
            )
        return found

    def carrying(self, matcher: Matcher, bits: int = ALL) -> Flags:
        """Which rows may have keywords of a query, or be excluded; ``bits``: by which alternatives."""
        found = np.zeros(self._size, dtype=bool)
        if matcher.names[self.relation] & bits:
            found[:] = True
            found[self._gone] = False
            return found
        for alternative in self._alternatives(matcher, bits):
            if isinstance(alternative, Condition):
                found |= self.satisfying(alternative)
            else:
                self._postings.mark(alternative, found)
        return found

    def bound(self, matcher: Matcher, bits: int = ALL) -> int:
        """An upper bound on the number of rows of ``carrying``."""
        if matcher.names[self.relation] & bits:
            return len(self)
        return sum(
            int(self.satisfying(each).sum()) if isinstance(each, Condition) else self._postings.bound(each)
            for each in self._alternatives(matcher, bits)
        )

    def _alternatives(self, matcher: Matcher, bits: int) -> Iterator[Alternative]:
        for bit, alternative in matcher.alternatives():
            if bit & bits and self._concerned(alternative):
                yield alternative

    def _concerned(self, alternative: Alternative) -> bool:
        if isinstance(alternative, Condition):
            return alternative.relation == self.relation
        return any(alternative.applies(self.relation, column) for column in self.texts)

    def satisfying(self, condition: Condition) -> Flags:
        """Exactly the rows that satisfy a condition on this relation, not to be changed."""
        known = self._satisfying.get(condition)
        if known is not None:
            return known
        if len(self._satisfying) >= _CONDITIONS:
            self._satisfying.clear()
        found = self._satisfying[condition] = np.zeros(self._size, dtype=bool)
        for first, block in self._rows.parts():
            found[first : first + len(block)] = satisfying(condition, block)
        found[self._gone] = False
        return found

    def containing(self, alternative: Alternative) -> Ints:
        """The rows that may satisfy a predicate, in order."""
        if not self._concerned(alternative):
            return NOTHING
        if isinstance(alternative, Condition):
            return np.flatnonzero(self.satisfying(alternative))
        return self._postings.containing(alternative)

    def words(self) -> Iterator[tuple[str, int]]:
        """The words of the searched columns, and how many rows contain each."""
        return self._postings.words()


def all_relations(file: IndexFile, schema: Schema) -> tuple[TableIndex, ...]:
    """The indexes that ``make_parts`` has put into a file."""
    return tuple(TableIndex(file, n, relation, f"{n}/") for n, relation in enumerate(schema.relations))
