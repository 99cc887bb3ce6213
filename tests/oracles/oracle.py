"""The results that engines must find, by definition: no candidate network, no mesh, no index.

At every instant all minimal total joining networks of the live tuples are
enumerated on the data graph (S-KWS paper, Sections 2 and 3.1). A tuple with a
key is identified by that key, so a network whose rows are updated remains the same
result. The output is the difference between the sets of live results, by such identities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeAlias

from skws.data.batch import Record
from skws.queries.order import PASSED_OVER
from skws.results.result import LiveResult, Result
from skws_schema.model import Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Window

JoinEdge: TypeAlias = tuple[int, int, int]  # join, tuple on its left side, tuple on its right side
Network: TypeAlias = tuple[frozenset[int], frozenset[JoinEdge]]
ByName: TypeAlias = dict[object, Network]
Shape: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


STATIC = -(10**18)  # the start of tuples of tables


@dataclass(eq=False)
class Live:
    relation: int
    row: Row
    start: int
    end: float
    keywords: int
    time: int
    """The event time; under a count window ``start`` is a position."""


class Difference(NamedTuple):
    """The changes of an instant; updates with the begin of the result, None if all its tuples are static."""

    retracted: Counter[Shape]
    appeared: Counter[Shape]
    updated: Counter[tuple[Shape, int | None]]


class Oracle:
    """Processes instants one by one and returns the results that appear and are retracted at each."""

    def __init__(
        self,
        schema: Schema,
        keywords: int,
        max_size: int,
        bitmap: object,
        groups: Sequence[int] = (),
        without_joins: frozenset[int] = frozenset(),
    ) -> None:
        """``groups``: the bitmaps of keywords that must occur in order of time."""
        self.without_joins = without_joins
        self.groups = groups
        self.schema = schema
        self.all = (1 << keywords) - 1
        self.max_size = max_size
        self.bitmap = bitmap
        self.tuples: list[Live] = []
        self.live: list[int] = []
        self.found: set[Network] = set()
        self.begins: dict[object, int | None] = {}  # of live results, by name
        self.position = 0  # of the next tuple, for count windows
        self.timed = True  # results have an end

    def load(self, rows: Iterable[tuple[int, Row]]) -> Counter[Shape]:
        self.live += self._last_of_keys([self.add(r, row, STATIC, float("inf"), STATIC) for r, row in rows])
        self.found = self.networks()
        return Counter(self.shape(n) for n in self.found)

    def _last_of_keys(self, numbers: list[int]) -> list[int]:
        last_by_key: dict[object, int] = {}
        for number in numbers:
            new = self.tuples[number]
            key = [new.row[c] for c in self.schema.relations[new.relation].key_columns]
            last_by_key[(new.relation, *key) if key and None not in key else number] = number
        return list(last_by_key.values())

    def instant(self, tick: int, records: Sequence[Record], length: float) -> Difference:
        before, after = self._changes(tick, records, length)
        return self._difference(before, after, self.begins)

    def _changes(self, tick: int, records: Sequence[Record], length: float) -> tuple[ByName, ByName]:
        """The retracted results, and the new ones."""
        self.live = [n for n in self.live if self.tuples[n].end > tick]
        removed: set[int] = set()
        for record in records:
            removed |= self._apply(record, tick, length)
        networks = self.networks()
        retracted = {n for n in self.found if n[0] & removed and all(self.tuples[m].end > tick for m in n[0])}
        before = {self.name(n): n for n in retracted}
        after = {self.name(n): n for n in networks - self.found}
        self.found = networks
        begins = {self.name(n): self._time(n) for n in networks}
        self.begins = begins | {
            name: begin
            for name, begin in self.begins.items()
            if name in begins and (name in before or name not in after)
        }
        return before, after

    def _difference(self, before: ByName, after: ByName, begins: Mapping[object, int | None]) -> Difference:
        return Difference(
            Counter(self.shape(n) for name, n in before.items() if name not in after),
            Counter(self.shape(n) for name, n in after.items() if name not in before),
            Counter(
                (self.shape(n), begins.get(name))
                for name, n in after.items()
                if name in before and self._reported(n) != self._reported(before[name])
            ),
        )

    def name(self, network: Network) -> object:
        """The identity of a network, which updates of its rows do not change."""
        nodes, edges = network
        names = {n: self._identity(n) for n in nodes}
        return frozenset(names.values()), frozenset((j, names[a], names[b]) for j, a, b in edges)

    def _identity(self, number: int) -> object:
        tuple_ = self.tuples[number]
        key = [tuple_.row[c] for c in self.schema.relations[tuple_.relation].key_columns]
        return (tuple_.relation, *key) if key and None not in key else number

    def _reported(self, network: Network) -> object:
        return self.shape(network), min(self.tuples[n].end if self.timed else 0 for n in network[0])

    def _time(self, network: Network) -> int | None:
        return max((self.tuples[n].time for n in network[0] if not self._static(n)), default=None)

    def counted(self, records: Iterable[Record], size: int) -> Difference:
        """Processes one instant under a count window: a tuple lives until more than ``size`` others arrive.

        A deletion is not an arrival: it applies to the tuples that are live at the last arrival. A result
        that both appears and is retracted in the instant is not reported; one that appears, expires, and
        appears again is reported twice.
        """
        self.timed = False
        begins = self.begins
        retracted: ByName = {}
        appeared: dict[object, list[Network]] = {}
        for record in records:
            tick = self.position - record.delete
            self.position += not record.delete
            records_of_step = [] if record.relation == PASSED_OVER else [record]
            before, after = self._changes(tick, records_of_step, size + 1)
            for name, network in before.items():
                if appeared.get(name):
                    appeared[name].pop()
                else:
                    retracted[name] = network
            for name, network in after.items():
                appeared.setdefault(name, []).append(network)
        first_networks = {name: networks[0] for name, networks in appeared.items() if networks}
        begins_of_updated = {name: begins.get(name) for name in retracted if name in first_networks}
        self.begins |= {
            n: begin for n, begin in begins_of_updated.items() if n in self.begins and len(appeared[n]) == 1
        }
        difference = self._difference(retracted, first_networks, begins_of_updated)
        difference.appeared.update(
            self.shape(network) for networks in appeared.values() for network in networks[1:]
        )
        return difference

    def _excluded(self, number: int) -> bool:
        return self.tuples[number].keywords == -1

    def add(self, relation: int, row: Row, start: int, end: float, time: int) -> int:
        keywords = self.bitmap(relation, row)  # type: ignore[operator]
        self.tuples.append(Live(relation, row, start, end, keywords, time))
        return len(self.tuples) - 1

    def _apply(self, record: Record, tick: int, length: float) -> set[int]:
        if record.truncates:
            truncated = {n for n in self.live if self.tuples[n].relation == record.relation}
            self.live = [n for n in self.live if n not in truncated]
            return truncated
        key = self.schema.relations[record.relation].key_columns
        if any(record.row[c] is None for c in key):
            key = ()  # a NULL equals nothing
        columns = key or tuple(range(len(record.row)))
        same = [
            n
            for n in self.live
            if self.tuples[n].relation == record.relation
            and all(self.tuples[n].row[c] == record.row[c] for c in columns)
        ]
        removed: set[int] = set()
        if same and (key or record.delete):
            oldest = min(same, key=lambda n: (self.tuples[n].start, n))
            self.live.remove(oldest)
            removed.add(oldest)
        if not record.delete:
            self.live.append(self.add(record.relation, record.row, tick, tick + length, record.time))
        return removed

    def networks(self) -> set[Network]:
        """All trees of at most ``max_size`` joined live tuples that are total and minimal."""
        usable = [n for n in self.live if not self._excluded(n)]
        joined = self._joined(usable) if self.max_size > 1 else {}
        level: set[Network] = {(frozenset([n]), frozenset()) for n in usable}
        results = {n for n in level if self._is_result(n)}
        for _ in range(self.max_size - 1):
            level = {
                (nodes | {other}, edges | {edge})
                for nodes, edges in level
                for n in nodes
                for other, edge in joined[n]
                if other not in nodes
            }
            results |= {n for n in level if self._is_result(n)}
        return results

    def _joined(self, usable: Sequence[int]) -> dict[int, list[tuple[int, JoinEdge]]]:
        """The join partners of each tuple, with the join edges."""
        partners: dict[int, list[tuple[int, JoinEdge]]] = {n: [] for n in usable}
        tuples_by_relation: dict[int, list[int]] = {}
        for n in usable:
            tuples_by_relation.setdefault(self.tuples[n].relation, []).append(n)
        for number, join in enumerate(self.schema.joins):
            if number in self.without_joins:
                continue
            left, right = self.schema.relation(join.left), self.schema.relation(join.right)
            pairs = [(left.columns[x], right.columns[y]) for x, y in join.on]
            for a in tuples_by_relation.get(self.schema.index[join.left], ()):
                for b in tuples_by_relation.get(self.schema.index[join.right], ()):
                    if a != b and self._agree(pairs, a, b):
                        partners[a].append((b, (number, a, b)))
                        partners[b].append((a, (number, a, b)))
        return partners

    def _agree(self, pairs: Sequence[tuple[int, int]], a: int, b: int) -> bool:
        left_row, right_row = self.tuples[a].row, self.tuples[b].row
        return all(left_row[x] is not None and left_row[x] == right_row[y] for x, y in pairs)

    def _is_result(self, network: Network) -> bool:
        nodes, edges = network
        if not self._in_order(nodes):
            return False
        keyword_counts = Counter(
            bit for n in nodes for bit in range(self.all.bit_length()) if self.tuples[n].keywords >> bit & 1
        )
        if len(keyword_counts) < self.all.bit_length():
            return False
        degree = Counter(end for _, a, b in edges for end in (a, b))
        terminal = [n for n in nodes if degree[n] <= 1]
        return len(nodes) == 1 or all(
            any(self.tuples[n].keywords >> bit & 1 and keyword_counts[bit] == 1 for bit in keyword_counts)
            for n in terminal
        )

    def _in_order(self, nodes: frozenset[int]) -> bool:
        """True if all tuples with keywords of a group start before those with keywords of a later group."""
        tuples_by_group = [[n for n in nodes if self.tuples[n].keywords & group] for group in self.groups]
        return all(
            (self.tuples[a].start, a) < (self.tuples[b].start, b)
            and not (self._static(a) and self._static(b))
            for i, before in enumerate(tuples_by_group)
            for after in tuples_by_group[i + 1 :]
            for a in before
            for b in after
        )

    def _static(self, number: int) -> bool:
        return self.tuples[number].start == STATIC

    def shape(self, network: Network) -> Shape:
        nodes, edges = network
        names = {
            n: f"{self.schema.relations[self.tuples[n].relation].name}{self.tuples[n].row}" for n in nodes
        }
        joins = (f"{names[a]}~{names[b]}~{self.schema.joins[j].name}" for j, a, b in edges)
        return tuple(sorted(names.values())), tuple(sorted(joins))


def shape_of(result: Result) -> Shape:
    """A result in the oracle's form, for rows without time stamps."""
    names = [f"{t.relation}{tuple(t.row.values())}" for t in result.tuples]
    joins = (f"{names[a]}~{names[b]}~{name}" for a, b, name in result.joins)
    return tuple(sorted(names)), tuple(sorted(joins))


def lines(results: Iterable[LiveResult]) -> list[bytes]:
    """The results as sorted JSON lines, for comparison in any order."""
    return sorted(result.to_json() for result in results)


def instants(records: Iterable[Record]) -> Iterator[tuple[int, list[Record]]]:
    for time, simultaneous in groupby(records, key=lambda r: r.time):
        yield time, list(simultaneous)


def steps(
    window: Window, stream: Iterable[Record], oracle: Oracle
) -> Iterator[tuple[list[Record], Difference]]:
    """The records of each step, and the resulting changes."""
    for time, records in instants(stream):
        if isinstance(window, CountWindow):
            yield records, oracle.counted(records, window.size)
        else:
            length = window.length if isinstance(window, TimeWindow) else float("inf")
            yield records, oracle.instant(time, records, length)
