"""The tuples of the live window by position; each is named when a result first shows it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter

from skws.queries.patterns.result import PatternResult, PatternTuple
from skws.results.names import TupleNames
from skws_patterns.evaluation.heap import Mark, Valuation
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, MICROSECOND, Window, by_position, ticks_per_position


@dataclass(slots=True)
class _Seen:
    """A tuple with the parts of its name."""

    relation: int
    row: Row
    tick: int
    time: int
    occurrence: int
    successor: bool
    shown: dict[frozenset[str], PatternTuple] | None = None  # of tuples in results


class History:
    """Remembers tuples while results can have them. ``keywords``: by label, those its tuples contain."""

    def __init__(self, schema: Schema, window: Window, keywords: Mapping[str, tuple[str, ...]]) -> None:
        self._relations = schema.relations
        self._keywords = keywords
        self._by_count = by_position(window)
        self._names = TupleNames(schema, ticks_per_position(window))
        self._window = window
        self._tuples: OrderedDict[int, _Seen] = OrderedDict()
        self._instant: Counter[tuple[int, Row]] = Counter()
        self._tick = -FOREVER
        # Ticks at which keys were last seen, in two generations of a window each.
        self._keys: list[dict[tuple[int, Row], int]] = [{}, {}]
        self._turn = -FOREVER

    def __len__(self) -> int:
        return len(self._tuples)

    def add(
        self, position: int, relation: int, row: Row, tick: int, time: int, successor: bool | None = None
    ) -> None:
        """Add the next tuple; ``tick`` as for the automaton, ``time`` in microseconds.

        ``successor``: whether a tuple of its key came less than a window ago; None if not known.
        """
        tuples = self._tuples
        while tuples and self._window.end(next(iter(tuples.values())).tick) <= tick:
            tuples.popitem(last=False)
        if tick != self._tick and not self._by_count:
            self._instant.clear()
            self._tick = tick
        occurrence = 0
        key = self._relations[relation].key_of(row)
        if key is not None:
            successor = self._follows(relation, key, tick) if successor is None else successor
        elif not self._by_count:  # by count no two tuples start together
            occurrence = self._instant[relation, row]
            self._instant[relation, row] += 1
        tuples[position] = _Seen(relation, row, tick, time, occurrence, bool(successor))

    def forget(self, tick: int) -> None:
        """Forget tuples before a tick, for windows that do not give an end."""
        tuples = self._tuples
        while tuples and next(iter(tuples.values())).tick < tick:
            tuples.popitem(last=False)

    def drop(self, positions: Iterable[int]) -> None:
        """Forget tuples that no later result shows."""
        for position in positions:
            del self._tuples[position]

    def pass_by(self, relation: int, row: Row, tick: int) -> None:
        """Note a tuple that no result here shows, but that later ones may replace."""
        key = self._relations[relation].key_of(row)
        if key is not None:
            self._follows(relation, key, tick)

    def _follows(self, relation: int, values: Row, tick: int) -> bool:
        """True if another tuple of the key started less than a window ago; notes this one."""
        if tick >= self._turn:
            self._keys = [{}, self._keys[0]]
            self._turn = self._window.end(tick)
        key = relation, values
        before = self._keys[0].get(key)
        if before is None:
            before = self._keys[1].get(key)
        self._keys[0][key] = tick
        return before is not None and tick < self._window.end(before)

    def tuples(self) -> Iterator[tuple[int, int, Row, int, bool]]:
        """The remembered tuples: position, relation, row, time, successor."""
        for position, seen in self._tuples.items():
            yield position, seen.relation, seen.row, seen.time, seen.successor

    def __contains__(self, position: int) -> bool:
        return position in self._tuples

    def at(self, position: int) -> tuple[int, int]:
        """Time and tick of the tuple at a position."""
        seen = self._tuples[position]
        return seen.time, seen.tick

    def shown(self, position: int, labels: frozenset[str]) -> PatternTuple:
        seen = self._tuples[position]
        if seen.shown is None:
            seen.shown = {}
        known = seen.shown.get(labels)
        if known is None:
            known = seen.shown[labels] = self._shown(seen, position, sorted(labels))
        return known

    def _shown(self, seen: _Seen, position: int, labels: list[str]) -> PatternTuple:
        named = self._names.name(
            seen.relation, seen.row, seen.tick, seen.occurrence, successor=seen.successor
        )
        return PatternTuple(
            named.relation,
            named.id,
            tuple(keyword for label in labels for keyword in self._keywords.get(label, ())),
            tuple(labels),
            position,
            named.row,
            "\x1f".join((named.digest.hex(), *labels)),
        )


def marks_of(valuation: Valuation) -> Sequence[Mark]:
    """Marks in order of position, one for each tuple, even if it was read more than once."""
    marks = sorted(valuation, key=itemgetter(0))
    if len({position for position, _ in marks}) == len(marks):
        return marks
    labels: dict[int, frozenset[str]] = {}
    for position, marked in marks:
        labels[position] = labels.get(position, frozenset()) | marked
    return list(labels.items())


def formed(
    query: str, history: History, marks: Sequence[Mark], end: float | None, *, snapshot: bool = False
) -> PatternResult:
    """The result of marks in order; ``end``: in seconds since the epoch."""
    tuples = tuple([history.shown(position, labels) for position, labels in marks])
    return PatternResult(
        query,
        _result_id([member.identity for member in tuples]),
        history.at(marks[-1][0])[0] / MICROSECOND,
        end,
        tuples,
        snapshot,
    )


def _result_id(identities: list[str]) -> str:
    return blake2b("\x1e".join(sorted(identities)).encode(), digest_size=12).hexdigest()
