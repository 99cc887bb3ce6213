"""A schema change under patterns over windows: matches and windows as of the stream that was read."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Final

import pytest

from skws.data.batch import Record, RecordBatch
from skws.jobs.standing import check_change
from skws.queries.patterns.result import PatternResult
from skws.queries.session import Session
from skws.spec.query import Query, Stream
from skws_patterns.language.parse import parse_pattern
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import ExpressionWindow
from tests.patterns.pattern_matches import Match
from tests.windows.test_oracle_windowed_patterns import by_definition, match_of

SHARE: Final = 0.12
"""Of all pairs of a window and a pattern."""
RELATION: Final = "  {}: {{attributes: {{x: integer, y: integer}}}}\n"


def yaml(names: str, joins: str = "") -> str:
    return "version: 1\nname: s\nrelations:\n" + "".join(map(RELATION.format, names)) + joins


WINDOWS: Final = (
    "every match [A] .* [B]", "longest match [x = 0] .* [B or y > 0]", "open when A close when B and y = 0",
    "every match [x = x[-1]] .* [not A[-1]] per y", "every match [A] .* [x is not null] per x",
    "match [A or B] . . [true] per A.x", "first match .* [x = 0 and x[-1] = 0] within 6 us",
    "every match .* [B] at most 6 records per y, x", "longest match [not A] .* [not A[-1]]",
)  # fmt: skip
PATTERNS: Final = (
    "A a ; * t", "* t ; A a", "A a ; B b", "A a AND B b where a.x = b.x", "A a ; A b", "A a OR B b", "A a +",
    "B b ; A c ; B d where b.y = c.y = d.y",
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What a stream is read by before and after, and the relations of all of its records by place."""

    before: str
    after: str
    read: Schema

    @property
    def records(self) -> tuple[set[int], set[int]]:
        """The relations of which records come before, and after."""
        first, second = (parse_schema(text, default_name="s").index for text in (self.before, self.after))
        names = [r.name for r in self.read.relations]
        return {names.index(n) for n in first}, {names.index(n) for n in second}


ALL: Final = parse_schema(yaml("ABC"), default_name="s")
CHANGES: Final = (
    Change(yaml("AB"), yaml("ABC"), ALL),  # a relation comes
    Change(yaml("ABC"), yaml("AB"), ALL),  # one goes, and is passed over
    Change(yaml("ABC"), yaml("ABC", "joins:\n  - A.x = B.x\n"), ALL),
    Change(yaml("ABC"), yaml("CBA"), ALL),
)


def stream_of(rng: random.Random, count: int) -> list[Record]:
    time, made = 0, []
    for _ in range(count):
        time += rng.choice((0, 0, 1, 3))
        row = (rng.choice((0, 0, 0, 1, None)), rng.choice((0, 0, 1, None)))
        made.append(Record(rng.randrange(3), time, row, rng.random() < 0.1))
    return made


def told(live: Session, record: Record) -> dict[Match, int]:
    """The matches that a record's coming tells, with its position."""
    found = [r for r in live.take(RecordBatch.of([record])) if isinstance(r, PatternResult)]
    return {match_of(result): live.position - 1 for result in found}


def renewed(live: Session, stream: Stream, query: Query) -> Session:
    """After a failure: from what was kept."""
    again = Session(stream, keywords=False)
    again.add(query)
    again.restore(live.snapshot())
    again.seek(live.position, live.now)
    return again


@pytest.mark.parametrize("change", CHANGES)
def test_windows_and_matches_go_on_under_another_schema(change: Change) -> None:
    rng = random.Random(10 + CHANGES.index(change))
    across = 0
    for window, text in product(WINDOWS, PATTERNS):
        if rng.random() < SHARE:
            across += go_on(text, ExpressionWindow(window), change, stream_of(rng, 14), rng)
    assert across > 3


def go_on(
    text: str, window: ExpressionWindow, change: Change, records: list[Record], rng: random.Random
) -> int:
    """Compares a run with the definition; the number of matches told that the change lies within."""
    cut = rng.randint(4, 9)
    query = Query.of_pattern(text).over(window, allowed=True).named("q", 4)
    stream = Stream(parse_schema(change.before, default_name="s"), window)
    live = Session(stream, keywords=False)
    live.add(query)
    after = check_change(stream, change.after, [query], window)
    early, late = change.records
    word = [r for i, r in enumerate(records) if r.relation in (early if i < cut else late)]
    count = sum(r.relation in early for r in records[:cut])
    found: dict[Match, int] = {}
    for place, record in enumerate(word):
        if place == count:
            assert live.change_schema(change.after) == []
            live = renewed(live, after, query) if rng.random() < 0.5 else live
        new = told(live, record)
        assert not new.keys() & found.keys()
        found |= new
    inserted = [record for record in word if not record.delete]
    told_before = sum(not record.delete for record in word[:count])
    expected = by_definition(parse_pattern(text, change.read), window, word, change.read)
    # What a wildcard read of a relation that goes is forgotten.
    gone = {
        place for place, record in enumerate(inserted) if place < told_before and record.relation not in late
    }
    assert found == {
        match: end
        for match, end in expected.items()
        if end < told_before or not gone & {position for position, _ in match}
    }
    return sum(min(match)[0] < told_before <= end for match, end in found.items())
