"""The latest tuples of the window, to count the matches of keywords and to complete words.

The engine's own store has no words. At most ``KEPT_ROWS`` are kept; counts tell whether older ones were
dropped.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from skws.data.batch import Record
from skws.keywords.analysis import tokens
from skws.keywords.match import Matcher
from skws.queries.keywords.diagnosis import KeywordCounts
from skws_schema.model import Relation, Row, Schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window

KEPT_ROWS: Final = 50_000
_COMPLETIONS: Final = 8
Identity: TypeAlias = tuple[str, Row]


class _KeptRows(NamedTuple):
    identity: Identity
    time: int
    row: Row


class LiveRows:
    """Live rows in order of arrival. One thread adds, any reads. ``cut``: some live rows are missing."""

    def __init__(self, schema: Schema, window: Window, kept: int = KEPT_ROWS) -> None:
        self._schema = schema
        self._window = window
        self._kept = kept
        self._lock = Lock()
        self._number = count()
        self._rows: OrderedDict[int, _KeptRows] = OrderedDict()
        # One number per key; for rows without a key those of all equal rows, oldest first.
        self._places: dict[str, dict[Row, deque[int]]] = {}  # by relation
        self._words: Counter[str] = Counter()
        self._static: list[_KeptRows] = []
        self.cut = isinstance(window, ExpressionWindow)  # its length is unknown

    def __len__(self) -> int:
        return len(self._rows) + len(self._static)

    @property
    def schema(self) -> Schema:
        """The one that the rows are of."""
        return self._schema

    def load_tables(self, records: Iterable[Record]) -> None:
        """Add the rows of static tables, as many as there is room for."""
        with self._lock:
            for record in records:
                relation = self._schema.relations[record.relation]
                if len(self._static) == self._kept:
                    self.cut = True
                    return
                self._static.append(_KeptRows((relation.name, ()), 0, record.row))
                self._words.update(_words(relation, record.row))

    def add(self, records: Sequence[Record], now: int) -> None:
        """Add stream records in order of arrival; ``now``: the event time after them, in microseconds.

        Records that would leave with the next ones are skipped, unless one of them is a deletion:
        among equal rows that removes the oldest live one.
        """
        deleting = any(record.delete for record in records)
        with self._lock:
            if not deleting:
                self._expire(now)
                records = self._alive(records, now)
            if len(records) > self._kept and not (deleting or isinstance(self._window, CountWindow)):
                self.cut = True
                records = records[-self._kept :]
            for record in records:
                if deleting:
                    self._expire(record.time)
                self._take(record)
            self._expire(now)
            while len(self._rows) > self._kept:
                self.cut = True
                self._drop(next(iter(self._rows)))
            if len(self._words) > 4 * self._kept:
                self._words = +self._words  # without words that no row has any more

    def change_schema(self, schema: Schema) -> None:
        """Continue with another schema; rows of removed or changed relations leave."""
        with self._lock:
            old = self._schema
            gone = schema.evolution.removed_relations
            there = [r for at, r in enumerate(schema.relations) if at not in gone]
            stay = {r.name for r in there if r.name in old.index and old.relation(r.name) == r}
            for number in [n for n, kept in self._rows.items() if kept.identity[0] not in stay]:
                self._drop(number)
            self._static = [kept for kept in self._static if kept.identity[0] in stay]
            self._schema = schema

    def node_counts(self, matcher: Matcher) -> Mapping[tuple[int, int], int]:
        """Live tuples by relation and keyword bitmap: the nodes of the expanded schema."""
        index = matcher.schema.index
        counts: Counter[tuple[int, int]] = Counter()
        for name, row in self._all():
            if name in index:
                counts[index[name], matcher.bitmap(index[name], row)] += 1
        return counts

    def count(self, counts: KeywordCounts) -> None:
        """Count all live tuples for a plan over the current schema."""
        index = counts.plan.schema.index
        for name, row in self._all():
            if name in index:
                counts.add(index[name], row)

    def by_relation(self) -> Mapping[str, Sequence[Row]]:
        """The rows of each relation that has any, in order of arrival."""
        rows: dict[str, list[Row]] = {}
        for name, row in self._all():
            rows.setdefault(name, []).append(row)
        return rows

    @property
    def where(self) -> str:
        """Which tuples these are, for a sentence about them; empty if those are all that ever came."""
        if self.cut:
            return f" of the latest {len(self):,}"
        return "" if isinstance(self._window, Unbounded) else " of the window"

    def words(self) -> Mapping[str, int]:
        """Searchable words with the number of their occurrences."""
        with self._lock:
            return +self._words

    def completions(self, start: str) -> list[tuple[str, int]]:
        """Words that begin with ``start`` (folded), the most frequent first, with their counts."""
        with self._lock:
            found = [(word, n) for word, n in self._words.items() if n > 0 and word.startswith(start)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:_COMPLETIONS]

    def _all(self) -> list[tuple[str, Row]]:
        """The names of relations, and rows."""
        with self._lock:
            return [(kept.identity[0], kept.row) for kept in (*self._static, *self._rows.values())]

    def _expire(self, now: int) -> None:
        horizon = self._horizon(now)
        while self._rows and (first := next(iter(self._rows.items())))[1].time <= horizon:
            self._drop(first[0])

    def _alive(self, records: Sequence[Record], now: int) -> Sequence[Record]:
        horizon = self._horizon(now)
        return [record for record in records if record.time > horizon]

    def _horizon(self, now: int) -> float:
        """Tuples of this time and earlier have expired."""
        return now - self._window.length if isinstance(self._window, TimeWindow) else float("-inf")

    def _take(self, record: Record) -> None:
        relation = self._schema.relations[record.relation]
        if record.truncates:
            for number in list(chain.from_iterable(self._places.get(relation.name, {}).values())):
                self._drop(number)
            return
        key = relation.key_of(record.row)
        own = record.row if key is None else key
        identity = (relation.name, own)
        places = self._places.setdefault(relation.name, {})
        if (key is not None or record.delete) and own in places:
            self._drop(places[own][0])
        if not record.delete:
            number = next(self._number)
            self._rows[number] = _KeptRows(identity, record.time, record.row)
            places.setdefault(own, deque()).append(number)
            self._words.update(_words(relation, record.row))
            if isinstance(self._window, CountWindow):
                self._leave(self._window.end(0), number)

    def _leave(self, life: int, number: int) -> None:
        """Expire rows by position, at once: among equal rows a later deletion must find a live one."""
        while self._rows and (first := next(iter(self._rows))) + life <= number:
            self._drop(first)

    def _drop(self, number: int) -> None:
        gone = self._rows.pop(number)
        name, own = gone.identity
        places = self._places[name][own]
        places.remove(number)
        if not places:
            del self._places[name][own]
        self._words.subtract(_words(self._schema.relation(name), gone.row))


def _words(relation: Relation, row: Row) -> list[str]:
    texts = ((row[column], relation.attributes[column].analyzer) for column in relation.search_columns)
    return [
        token.word
        for text, analyzer in texts
        if text is not None
        for token in tokens(str(text), analyzer)
        if token.searchable
    ]
