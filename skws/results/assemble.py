"""From what a mesh finds to results: names, identities, lifespans and rows.

An identity is made of relation, key (else row), start and occurrence, so it
depends on neither engine nor slicing nor order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeAlias

import orjson

from mesh.network import CandidateNetwork
from mesh.tree import Tree
from schema.model import AttributeType, Relation, Row
from skws.plan import Plan
from skws.results.model import JsonRow, Op, Result, ResultTuple
from windows.tuples import StreamTuple
from windows.window import FOREVER, MICROSECOND

REMEMBERED = 10_000  # tuples
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Joins: TypeAlias = tuple[tuple[int, int, str], ...]


class Assembler:
    """Makes the results of one plan; remembers how each candidate network reads."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tuples: dict[StreamTuple, tuple[ResultTuple, str]] = {}
        self._networks: dict[int, tuple[Tree, CandidateNetwork, str, Joins]] = {}

    def result(
        self,
        op: Op,
        tree: Tree,
        members: Sequence[StreamTuple],
        end: int,
        snapshot: bool = False,
    ) -> Result:
        """``members`` in the order of the tree; ``end`` in microseconds, FOREVER if not known."""
        network, text, joins = self._network(tree)
        tuples = [members[position] for position in network.positions]
        return Result(
            op=op,
            query=self._plan.query.text,
            id=self._result_id(tuples, joins),
            start=self._start(tuples),
            end=None if end >= FOREVER else end / MICROSECOND,
            network=text,
            tuples=tuple(self._shown(member)[0] for member in tuples),
            joins=joins,
            snapshot=snapshot,
        )

    def _network(self, tree: Tree) -> tuple[CandidateNetwork, str, Joins]:
        known = self._networks.get(id(tree))
        if known is None:
            network = CandidateNetwork.of(tree)
            schema = self._plan.schema
            # The tree is kept too, so that its id stays its own.
            known = (tree, network, network.text(schema, self._plan.keywords), network.joins(schema))
            self._networks[id(tree)] = known
        return known[1:]

    def _start(self, tuples: Sequence[StreamTuple]) -> float | None:
        times = [t.time for t in tuples if not t.static]
        return max(times) / MICROSECOND if times else None

    def _shown(self, member: StreamTuple) -> tuple[ResultTuple, str]:
        """A tuple as results show it, and its name in their ids; remembered, since results share tuples."""
        known = self._tuples.get(member)
        if known is None:
            if len(self._tuples) >= REMEMBERED:
                self._tuples.clear()
            known = self._tuples[member] = self._tuple(member), self._identity(member)
        return known

    def _tuple(self, member: StreamTuple) -> ResultTuple:
        relation = self._plan.schema.relations[member.relation]
        carried = tuple(k for slot, k in enumerate(self._plan.keywords) if member.keywords >> slot & 1)
        return ResultTuple(relation.name, self.tuple_id(member), carried, json_row(relation, member.row))

    def tuple_id(self, member: StreamTuple) -> str:
        """``relation:key``, with its start after a replacement; else a digest of the row and the start."""
        relation = self._plan.schema.relations[member.relation]
        if relation.key:
            named = f"{relation.name}:{_key_text(relation, member.row)}"
            return f"{named}@{self._start_text(member)}" if member.successor else named
        digest = blake2b(orjson.dumps(member.row), digest_size=6).hexdigest()
        which = f".{member.occurrence}" if member.occurrence else ""
        return f"{relation.name}:{digest}@{self._start_text(member)}{which}"

    def _start_text(self, member: StreamTuple) -> str:
        if member.static:
            return "table"
        return str(member.start) if self._plan.by_count else f"{member.start / MICROSECOND}"

    def _result_id(self, tuples: Sequence[StreamTuple], joins: Sequence[tuple[int, int, str]]) -> str:
        names = [self._shown(member)[1] for member in tuples]
        connected = sorted(f"{names[left]}\x1f{names[right]}\x1f{name}" for left, right, name in joins)
        return blake2b("\x1e".join([*sorted(names), *connected]).encode(), digest_size=12).hexdigest()

    def _identity(self, member: StreamTuple) -> str:
        relation = self._plan.schema.relations[member.relation]
        named = [member.row[c] for c in relation.key_columns] if relation.key else list(member.row)
        return f"{relation.name}\x1d{orjson.dumps(named).decode()}\x1d{member.start}\x1d{member.occurrence}"


def json_row(relation: Relation, row: Row) -> JsonRow:
    """A row by attribute names, time stamps as ISO 8601 in UTC."""
    return {
        attribute.name: iso(value) if attribute.type is AttributeType.TIMESTAMP else value
        for attribute, value in zip(relation.attributes, row, strict=True)
    }


def iso(value: str | float | None) -> str | None:
    """Microseconds since the epoch as ``2026-01-01T00:00:00Z``; None stays None."""
    if value is None:
        return None
    moment = _EPOCH + timedelta(microseconds=int(value))
    return moment.isoformat().replace("+00:00", "Z")


def _key_text(relation: Relation, row: Row) -> str:
    parts = [str(row[c]).replace("\\", "\\\\").replace(",", "\\,") for c in relation.key_columns]
    return ",".join(parts)
