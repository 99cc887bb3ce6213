"""Which columns hold the classes of a query, and what each class is filtered by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, nextafter
from typing import Any

from bounds.binding import Interval, Key, RowReader
from bounds.joins import comparisons
from bounds.modified import Modified
from bounds.query import Attr, Constant, Domain, Extreme
from schema.model import Row, Schema, Value


class Columns:
    """The rows of ``known`` (static relations, finite streams) settle what extremes stand for."""

    def __init__(
        self, query: Modified, schema: Schema, known: Mapping[str, Sequence[tuple[int, Row]]]
    ) -> None:
        self._query = query
        self._schema = schema
        self._known = known
        closure = query.closure
        self._pairs = tuple(comparisons(query))
        atoms = [a for a in query.query.atoms if not a.assumed]
        self._compared = frozenset(closure.class_of[t] for a in atoms for t in (a.left, a.right))
        self._values = {
            t: self._column_values(t) for t in closure.class_of if isinstance(t, Attr) and self._is_known(t)
        }
        self.possible = all(known[s.alias] for s in (*query.static, *query.finite))
        self._intervals = [self._interval(n) for n in range(len(closure.members))] if self.possible else []
        self._used = self._used_classes()

    def reader(self, alias: str) -> RowReader:
        """The reader of a stream's rows."""
        closure = self._query.closure
        first: dict[int, int] = {}
        same: list[tuple[int, int]] = []
        for term, number in closure.class_of.items():
            if isinstance(term, Attr) and term.stream == alias and number in self._used:
                column = self._column(term)
                if number in first:
                    same.append((column, list(first).index(number)))
                else:
                    first[number] = column
        classes = tuple(first)
        at = {number: position for position, number in enumerate(classes)}
        intervals = [(at[n], self._intervals[n]) for n in classes] if self.possible else []
        return RowReader(
            classes,
            tuple(first.values()),
            tuple(at[n] for n in classes if n in self._compared),
            tuple((p, interval) for p, interval in intervals if not interval.open),
            tuple((at[a], at[b]) for a, b in self._pairs if a in at and b in at),
            tuple(same),
        )

    def known_rows(self) -> Iterator[tuple[RowReader, list[Key]]]:
        """The reader and the values of each static relation and finite stream."""
        for stream in (*self._query.static, *self._query.finite):
            reader = self.reader(stream.alias)
            read = (reader.read(time, row) for time, row in self._known[stream.alias])
            yield reader, [values for values in read if values is not None]

    def known_beside(self, number: int) -> list[Value]:
        """The values of static relations and finite streams that a class is compared with."""
        beside = {
            number,
            *(b for a, b in self._pairs if a == number),
            *(a for a, b in self._pairs if b == number),
        }
        return [
            v
            for n in beside
            for t in self._query.closure.members[n]
            if isinstance(t, Attr) and self._is_known(t)
            for v in self._values[t]
        ]

    def _used_classes(self) -> frozenset[int]:
        """Classes that matter: put out, compared, joined, or filtered by a constant."""
        query = self._query
        joined = {
            n for n, nodes in enumerate(query.nodes_of_class) if len(nodes) > 1 and n not in query.timed
        }
        filtered = {n for n, interval in enumerate(self._intervals) if not interval.open}
        # Times that are equal within a node are so by themselves; those of finite streams are not.
        several = {
            n
            for n, members in enumerate(query.closure.members)
            if len(members) > 1 and (n not in query.timed or any(self._is_known(t) for t in members))
        }
        return query.output | joined | filtered | several | {n for pair in self._pairs for n in pair}

    def _is_known(self, term: object) -> bool:
        return isinstance(term, Attr) and term.stream in self._query.closure.anchors

    def _column(self, attr: Attr) -> int:
        stream = self._query.query.stream(attr.stream)
        return -1 if attr == stream.time else self._schema.relation(stream.relation).columns[attr.name]

    def _column_values(self, term: Attr) -> frozenset[Value]:
        column = self._column(term)
        return frozenset(t if column < 0 else r[column] for t, r in self._known[term.stream]) - {None}

    def _interval(self, number: int) -> Interval:
        closure = self._query.closure
        fixed = [{t.value} for t in closure.members[number] if isinstance(t, Constant)]
        fixed += [
            set(self._values[t]) for t in closure.members[number] if isinstance(t, Attr) and t in self._values
        ]
        below = [n for n in range(len(closure.members)) if closure.above[n] >> number & 1]
        above = [n for n in range(len(closure.members)) if closure.above[number] >> n & 1]
        lows = [v for n in below for v in self._constants(n)]
        highs = [v for n in above for v in self._constants(n)]
        allowed = frozenset(set.intersection(*fixed)) if fixed else None
        mixed = closure.whole(number) and any(
            t.domain is Domain.NUMBER for t in closure.members[number] if isinstance(t, Attr)
        )
        return Interval(max(lows, default=None), min(highs, default=None), allowed, mixed)

    def _constants(self, number: int) -> Iterator[Any]:
        for term in self._query.closure.members[number]:
            if isinstance(term, Constant):
                yield term.value
            elif isinstance(term, Extreme):
                yield self._extreme(term)

    def _extreme(self, extreme: Extreme) -> Any:
        """A value just outside those of the column, so that all of them lie strictly inside."""
        values: Any = self._values[extreme.attr] or {0}
        end = min(values) if extreme.low else max(values)
        if extreme.domain is Domain.NUMBER:
            return nextafter(end, -inf if extreme.low else inf)
        return end - 1 if extreme.low else end + 1
