"""Divides the results of a session among shards. Each result belongs to one shard.

Docs: ``docs/architecture/partitioning.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from math import isnan
from typing import Any, Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.batch import Ints, RecordBatch, by_number
from skws.data.blocks import Block, integers_of
from skws.spec.query_spec import KEYWORDS, Query, Stream
from skws_schema.graph import edges_from
from skws_schema.model import Relation, Row, Schema, Value, sourced
from skws_windows.window import TimeWindow, Unbounded, Window


class Partitioning(StrEnum):
    """What shards divide: results by their root tuples, queries, or tuples by a key.

    With a key (``KeyPartitioning``), a shard only reads its own tuples; otherwise all shards read all tuples.
    """

    ROOTS = "roots"
    QUERIES = "queries"
    KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Part:
    """The results of shard ``number`` among ``shards``."""

    number: int
    shards: int
    spread: Partitioning

    @property
    def whole(self) -> bool:
        """True if there is one shard."""
        return self.shards == 1

    @property
    def first(self) -> bool:
        """True for the shard that counts records which all shards read."""
        return self.number == 0

    @property
    def alone(self) -> bool:
        """True if no other shard reads its tuples, apart from those of tables."""
        return self.shards == 1 or self.spread is Partitioning.KEYS

    def accepts(self, key: Any) -> bool:
        """True if results with a common value, which is JSON, belong to the part."""
        return self.shards == 1 or crc32(orjson.dumps(key)) % self.shards == self.number

    def accepts_root(self) -> Callable[[Row], bool] | None:
        """A filter: True for root tuples of the part, given by key or else row; None if all belong to it.

        The key comes first, so that all updates of a result are in one part.
        """
        return self.accepts if self.shards > 1 and self.spread is Partitioning.ROOTS else None

    def owns(self, name: str) -> bool:
        """True if the part owns the whole query of a name."""
        return crc32(name.encode()) % self.shards == self.number

    def answers(self, text: str) -> bool:
        """True if the part has results of keyword queries with a text."""
        return self.spread is not Partitioning.QUERIES or self.owns(text)


WHOLE: Final = Part(0, 1, Partitioning.ROOTS)


_SMALL: Final = 2  # up to this size of results no table joins two other tuples
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(32)

Codes: TypeAlias = npt.NDArray[np.uint64]
Chosen: TypeAlias = Mapping[int, int]
"""The column by which each relation is divided; all parts get other relations whole."""


@dataclass(frozen=True, slots=True)
class KeyPartitioning:
    """A division of tuples by the values of ``columns``: those of each relation; None for tables, which all
    parts have.
    """

    columns: tuple[tuple[int, ...] | None, ...]

    def divided(self, batch: RecordBatch, parts: int) -> list[RecordBatch]:
        return batch.divided(self.places(batch, parts))

    def places(self, batch: RecordBatch, parts: int) -> list[Ints]:
        """The positions of each part's records in the batch, in order; all parts have truncations."""
        part_numbers = np.full(len(batch), -1, dtype=np.int64)
        for relation, blocks, positions, places in batch.rows.by_relation():
            columns = self.columns[relation]
            if columns is not None:
                part_numbers[positions] = _hashes(blocks, columns)[places] % np.uint64(parts)
        part_numbers[batch.truncations()] = -1
        if (part_numbers >= 0).all():
            return by_number(part_numbers, parts)
        return [np.flatnonzero((part_numbers == n) | (part_numbers < 0)) for n in range(parts)]

    def shown(self, schema: Schema) -> str:
        """The division for people, such as "span.trace_id, log.trace_id; all parts have service"."""
        removed_relations = schema.evolution.removed_relations
        pairs = list(zip(schema.relations, self.columns, strict=True))
        present_pairs = [pair for number, pair in enumerate(pairs) if number not in removed_relations]
        divisions = [
            "+".join(f"{relation.name}.{relation.attributes[column].name}" for column in columns)
            for relation, columns in present_pairs
            if columns is not None
        ]
        copied_relations = [relation.name for relation, columns in present_pairs if columns is None]
        return ", ".join(divisions) + (
            "; all parts have " + ", ".join(copied_relations) if copied_relations else ""
        )


def why_not_by_key(queries: Sequence[Query], window: Window) -> str:
    """Why no key can divide the queries, whatever the schema; empty if there is no such reason."""
    if any(query.kind != KEYWORDS for query in queries):
        return "a query of this kind depends on the order of all tuples"
    if any(query.scored for query in queries):
        return "scores depend on the statistics of all tuples"
    if not isinstance(window, TimeWindow | Unbounded):
        return "the window counts all tuples"
    return ""


def plan_keys(queries: Sequence[Query], stream: Stream, window: Window) -> KeyPartitioning | str:
    """A division of tuples that suits all queries, or the reason why there is none."""
    reason = why_not_by_key(queries, window)
    size = max((query.max_size or stream.max_size for query in queries), default=stream.max_size)
    return reason or key_partitioning(stream.schema, size)


def key_partitioning(schema: Schema, max_size: int) -> KeyPartitioning | str:
    """A division such that all tuples of streams in a result of at most ``max_size`` are in one part.

    One attribute of each relation can divide the relations if every join equates the attributes of its two
    sides, and if they belong to the keys of relations that have keys, so that a tuple is replaced in its own
    part. A table may lack such an attribute if it cannot join tuples of two keys. Relations that no join
    connects are divided independently of each other. Removed relations and joins count too: shards that are
    divided again after a change of the schema still have to retract their results. Returns the reason if
    there is no division.
    """
    if table_numbers := sourced(schema):
        return f"the table {schema.relations[table_numbers[0]].name} has its own source"
    evolution = replace(schema.evolution, removed_relations=frozenset(), removed_joins=frozenset())
    schema = replace(schema, evolution=evolution)
    columns: list[tuple[int, ...] | None] = [None] * len(schema.relations)
    for members in _components(schema, max_size):
        streams = [number for number in members if not schema.relations[number].table]
        if not streams:
            continue
        if max_size == 1 or not edges_from(schema)[streams[0]]:
            relation = schema.relations[streams[0]]
            columns[streams[0]] = relation.key_columns or _all_of(relation)
            continue
        choices = list(_choices(schema, members))
        valid_choices = [choice for choice in choices if not _refusal(schema, members, choice, max_size)]
        if not valid_choices:
            widest_choice = max(choices, key=len)
            reason = _refusal(schema, members, widest_choice, max_size)
            return f"{_column_name(schema, min(widest_choice), widest_choice)} comes closest, but {reason}"
        widest = max(valid_choices, key=len).keys()
        for number in streams:
            columns[number] = tuple(
                dict.fromkeys(choice[number] for choice in valid_choices if choice.keys() == widest)
            )
    return KeyPartitioning(tuple(columns))


def _all_of(relation: Relation) -> tuple[int, ...]:
    return tuple(range(len(relation.attributes)))


def _components(schema: Schema, max_size: int) -> Iterator[list[int]]:
    """Relations in groups that joins connect."""
    visited: set[int] = set()
    for first in range(len(schema.relations)):
        if first in visited:
            continue
        members = [first]
        visited.add(first)
        for relation in members:  # grows
            for edge in edges_from(schema)[relation] if max_size > 1 else ():
                if edge.target not in visited:
                    visited.add(edge.target)
                    members.append(edge.target)
        yield sorted(members)


def _choices(schema: Schema, members: Sequence[int]) -> Iterator[Chosen]:
    """The distinct choices of columns that follow, join by join, from each attribute that a join equates."""
    chosen: set[tuple[int, int]] = set()
    for relation in members:
        for column in dict.fromkeys(
            chain.from_iterable(edge.source_columns for edge in edges_from(schema)[relation])
        ):
            if (relation, column) in chosen:
                continue
            columns = {relation: column}
            queue = [relation]
            for number in queue:  # grows
                for edge in edges_from(schema)[number]:
                    target_column = dict(zip(edge.source_columns, edge.target_columns, strict=True)).get(
                        columns[number]
                    )
                    if target_column is not None and edge.target not in columns:
                        columns[edge.target] = target_column
                        queue.append(edge.target)
            chosen |= columns.items()
            yield columns


def _refusal(schema: Schema, members: Sequence[int], choice: Chosen, max_size: int) -> str:
    """Why the chosen columns do not divide connected relations; empty if they do."""
    for number in members:
        relation = schema.relations[number]
        if number not in choice:
            if not relation.table:
                return f"{relation.name} does not have it"
            table_edges = edges_from(schema)[number]
            if max_size > _SMALL and not (len(table_edges) == 1 and table_edges[0].at_most_one):
                return f"the table {relation.name} does not have it and may join tuples of two values"
            continue
        name = relation.attributes[choice[number]].name
        if not relation.table and relation.key and name not in relation.key:
            return f"the key of {relation.name} does not contain it"
        for edge in edges_from(schema)[number]:
            if edge.target in choice and (choice[number], choice[edge.target]) not in zip(
                edge.source_columns, edge.target_columns, strict=True
            ):
                return f"the join {schema.joins[edge.join].name} does not equate it"
    return ""


def _column_name(schema: Schema, number: int, choice: Chosen) -> str:
    relation = schema.relations[number]
    return f"{relation.name}.{relation.attributes[choice[number]].name}"


def _hashes(blocks: Sequence[Block], columns: Iterable[int]) -> Codes:
    """A hash of the values of some columns, for each row of the blocks; equal values have equal hashes."""
    hashes: Codes = np.zeros(sum(map(len, blocks)), dtype=np.uint64)
    for column in columns:
        hashes = (hashes ^ _codes(blocks, column)) * _MIX
        hashes ^= hashes >> _FOLD
    return hashes


def _codes(blocks: Sequence[Block], column: int) -> Codes:
    integers = integers_of(blocks, column)
    if integers is not None:
        return integers.astype(np.uint64)
    values = chain.from_iterable(block.values(column) for block in blocks)
    return np.fromiter(map(_code, values), dtype=np.uint64)


def _code(value: Value) -> int:
    """The code of a value: equal for values that are equal in Python, the same in every process."""
    if isinstance(value, str):
        return crc32(value.encode())
    if isinstance(value, float) and not value.is_integer():
        return 0 if isnan(value) else hash(value) & _WORD
    return 0 if value is None else int(value) & _WORD
