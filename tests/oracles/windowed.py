"""Keyword search over window expressions by definition: evaluates every window separately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from skws.data.batch import Record
from skws.keywords.plan import Plan
from skws_schema.model import Schema, Value
from skws_windows.automata.regular import Selection, WindowExpression
from skws_windows.guards.alphabet import Alphabet, StreamRecord
from tests.oracles.oracle import Network, Oracle, Shape
from tests.window_streams import accepted, can_end, can_go_on, first_of, selected

Key = tuple[Value, ...]


class WindowedOracle:
    """Processes records one by one; returns the results whose first window ends with each."""

    def __init__(self, plan: Plan, expression: WindowExpression, alphabet: Alphabet) -> None:
        self.schema: Schema = plan.schema
        self.expression = expression
        self.alphabet = alphabet
        slots = len(plan.query.slots)
        self.oracle = Oracle(
            plan.schema, slots, plan.max_size, plan.matcher.bitmap, plan.query.sequence.groups
        )
        self.stream: list[Record] = []
        self.deleted: dict[int, int] = {}
        self.reported: set[Network] = set()
        self.static = 0

    def load(self, records: Sequence[Record]) -> Counter[Shape]:
        shapes = self.oracle.load([(r.relation, r.row) for r in records])
        self.static = len(self.oracle.tuples)
        self.live_static = list(self.oracle.live)
        self.reported = set(self.oracle.found)
        return shapes

    def take(self, record: Record) -> Counter[Shape]:
        self._end(record)
        if record.delete:
            return Counter()
        self.stream.append(record)
        self.oracle.add(record.relation, record.row, 0, 0, 0)
        appeared: Counter[Shape] = Counter()
        for key, positions, windows in self.windows():
            for first, last in windows:
                if positions[last] == len(self.stream) - 1:
                    appeared += self._new(key, positions[first], positions[last])
        return appeared

    def _new(self, key: Key, first: int, last: int) -> Counter[Shape]:
        """The results of a window that were in no earlier one."""
        members = [p for p in range(first, last + 1) if p not in self.deleted and self.belongs(p, key)]
        self.oracle.live = self.live_static + [p + self.static for p in members]
        new = self.oracle.networks() - self.reported
        self.reported |= new
        return Counter(map(self.oracle.shape, new))

    def belongs(self, position: int, key: Key) -> bool:
        """True if a tuple has the values of a key in the fields of its relation."""
        record = self.stream[position]
        return all(
            self.alphabet.fields[name].columns[record.relation] < 0 or self._value(position, name) == value
            for name, value in zip(self.expression.per, key, strict=True)
        )

    def _value(self, position: int, name: str) -> Value:
        return self.alphabet.value(name, self._letter(position))

    def _letter(self, position: int) -> StreamRecord:
        record = self.stream[position]
        return StreamRecord(record.relation, record.time, record.row)

    def windows(self) -> Iterator[tuple[Key, list[int], list[tuple[int, int]]]]:
        """For each key, its positions and its windows over them."""
        keys = [tuple(self._value(p, n) for n in self.expression.per) for p in range(len(self.stream))]
        for key in dict.fromkeys(keys):
            if None not in key:
                positions = [p for p, k in enumerate(keys) if k == key]
                yield (
                    key,
                    positions,
                    windows_of(self.expression, [self._letter(p) for p in positions], self.alphabet),
                )

    def _end(self, record: Record) -> None:
        """Ends the oldest equal tuple that a window may still contain, for deletion and replacement."""
        columns = self.schema.relations[record.relation].key_columns
        if any(record.row[c] is None for c in columns):
            columns = ()  # a NULL equals nothing
        compared_columns = columns or tuple(range(len(record.row)))
        if not (columns or record.delete):
            return
        for position, other in enumerate(self.stream):
            same = other.relation == record.relation and all(
                other.row[c] == record.row[c] for c in compared_columns
            )
            if same and position not in self.deleted and (columns or self._held(position)):
                self.deleted[position] = len(self.stream)
                return

    def _held(self, position: int) -> bool:
        """True if an open window of a key that the tuple belongs to began before it."""
        for key, positions, windows in self.windows():
            if self.belongs(position, key):
                word = [self._letter(p) for p in positions]
                starts = _open_starts(self.expression, word, windows, self.alphabet)
                if any(positions[start] <= position for start in starts):
                    return True
        return False


def windows_of(
    expression: WindowExpression, word: Sequence[StreamRecord], alphabet: Alphabet
) -> list[tuple[int, int]]:
    k = expression.k
    windows = [
        (b, e)
        for e in range(k, len(word))
        for b in range(k, e + 1)
        if any(
            accepted(p.before, word[:b], alphabet) and accepted(p.window, word[b - k : e + 1], alphabet)
            for p in expression.pairs
        )
    ]
    windows = selected(expression, windows, word)
    return (
        first_of(expression, windows, word, alphabet) if expression.selection is Selection.FIRST else windows
    )


def _open_starts(
    expression: WindowExpression, word: list[StreamRecord], windows: list[tuple[int, int]], alphabet: Alphabet
) -> list[int]:
    """The starts that are live after a word."""
    if expression.selection is not Selection.FIRST:
        return [i for i in range(expression.k, len(word)) if can_go_on(expression, i, word, alphabet)]
    start: int | None = None
    for now in range(expression.k, len(word)):
        if start is not None and not can_end(expression, start, now, word, alphabet):
            start = None
        if start is None and can_end(expression, now, now, word, alphabet):
            start = now
        if start is not None and (
            (start, now) in windows or not can_go_on(expression, start, word[: now + 1], alphabet)
        ):
            start = None
    return [] if start is None else [start]
