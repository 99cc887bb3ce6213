"""Patterns and conjunctive queries by brute force, over the insertions that their window may contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from skws.results.result import LiveResult
from skws.spec.query_spec import Query
from skws_patterns.hcq import parse_conjunctive_query
from skws_patterns.language.pattern_parser import parse_pattern
from skws_schema.model import Row, Schema, iso
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.oracles.oracle import Shape
from tests.patterns.hierarchical_queries import homomorphisms
from tests.patterns.pattern_matches import matches

_INSTANT: Final = 1 << 40  # larger than all other numbers
_PLACES: Final = {"cid": 0, "name": 1, "item": 1}
Marks = frozenset[tuple[int, str]]
"""Positions among some tuples, each with a label."""


class Inserted(NamedTuple):
    """``position``: among all insertions; ``time``: the latest time up to it."""

    position: int
    time: int
    relation: int
    row: Row


class MatchOracle:
    """Brute force for one query of kind ``pattern``, over relations that do not change."""

    def __init__(self, schema: Schema, query: Query, window: Window) -> None:
        self._names = tuple(relation.name for relation in schema.relations)
        self.text, self._schema = query.text, schema
        pattern_window = None if "<-" in query.text else parse_pattern(query.text, schema).window
        self._window = pattern_window or window

    def completed(self, past: Sequence[Inserted]) -> Counter[Shape]:
        """The results that the last insertion completes."""
        return Counter(self._shape(past, match) for match in self._found(past))

    def alive(self, past: Sequence[Inserted], position: int, time: int) -> Counter[Shape]:
        """The first results of a query that is added after a position and a time.

        Their tuples are still in the window.
        """
        return Counter(
            self._shape(past, match)
            for end in range(len(past))
            for match in self._found(past[: end + 1])
            if self._holds(past[min(place for place, _ in match)], position, time)
        )

    def _found(self, past: Sequence[Inserted]) -> Iterator[Marks]:
        last = past[-1]
        first = next(
            n for n, insertion in enumerate(past) if self._holds(insertion, last.position, last.time)
        )
        stream = tuple((insertion.relation, insertion.row) for insertion in past[first:])
        for match in _matches(self.text, self._schema, stream):
            yield frozenset((first + place, label) for place, label in match)

    def _holds(self, insertion: Inserted, position: int, time: int) -> bool:
        if isinstance(self._window, CountWindow):
            return position - insertion.position <= self._window.size
        assert isinstance(self._window, TimeWindow)
        return time - insertion.time < self._window.length

    def _shape(self, past: Sequence[Inserted], match: Marks) -> Shape:
        labels: dict[int, list[str]] = {}
        for index, label in match:
            labels.setdefault(index, []).append(label)
        members = [
            _shown(
                past[index].position,
                sorted(labels_of_tuple),
                self._names[past[index].relation],
                _cells(past[index].row),
            )
            for index, labels_of_tuple in labels.items()
        ]
        return tuple(sorted(members)), ()


@lru_cache(maxsize=4096)
def _matches(text: str, schema: Schema, stream: tuple[tuple[int, Row], ...]) -> frozenset[Marks]:
    """The matches that contain the last tuple of a stream."""
    if "<-" not in text:
        return frozenset(matches(parse_pattern(text, schema), stream, 0, _PLACES.__getitem__))
    images = homomorphisms(parse_conjunctive_query(text, schema), stream, 0)
    return frozenset(
        frozenset((position, str(atom)) for atom, position in enumerate(image)) for image in images
    )


def match_shape(result: LiveResult) -> Shape:
    """A result in the form of ``MatchOracle``."""
    fields: Mapping[str, Any] = result.to_dict()
    members = [
        _shown(member["position"], sorted(member["labels"]), member["relation"], list(member["row"].values()))
        for member in fields["tuples"]
    ]
    return tuple(sorted(members)), ()


def _shown(position: int, labels: list[str], relation: str, cells: list[Any]) -> str:
    return f"{position}:{','.join(labels)}:{relation}{cells}"


def _cells(row: Row) -> list[Any]:
    return [iso(cell) if isinstance(cell, int) and cell > _INSTANT else cell for cell in row]
