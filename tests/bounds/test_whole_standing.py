"""Patterns in constant memory that show whole tuples and have no window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.kinds import check
from skws.queries.session import Session
from skws.spec.query import PATTERN, Query
from skws.spec.stream import Stream
from skws_schema.errors import BadRecordsError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded
from tests.bounds.pattern_streams import SCHEMA, SECOND, stream
from tests.bounds.standing_runs import through_restarts

STREAM = Stream(SCHEMA, Unbounded())
PATTERNS = (
    "refund r where r.amount > 1",
    '"leeds" f',
    "login l OR transfer l",
    "rule u ; refund r where u.user = r.user",
    "(rule u AND refund r) where u.user = r.user",
    "login l ; rule u where l.user = u.user",
    "(rule u ; refund r) OR (rule u ; login l) where u.user = 3",
    "rule u ; rule w ; refund r where u.user = w.user = r.user",
    "Q(u, t, a) <- rule(u, t), refund(u, a)",
)


def begun(text: str, on: Stream = STREAM) -> Session:
    standing = Query(text, 5, PATTERN, name="q")
    check(standing, on)
    live = Session(on, keywords=False)
    live.load_tables([])
    assert live.add(standing) == []
    return live


@pytest.mark.parametrize("text", PATTERNS)
def test_matches_through_restarts_are_those_of_a_run_that_keeps_all(text: str) -> None:
    records = stream(5, 90)
    keeping = begun(text, replace(STREAM, force_unbounded=True))
    expected = list(keeping.take(RecordBatch.of(records)))
    found = through_restarts(lambda: begun(text), records, 5)
    assert len(expected) > 3
    assert sorted(r.to_json() for r in found) == sorted(r.to_json() for r in expected)
    assert [r.start for r in found] == sorted(r.start for r in found if r.start is not None)


def test_the_state_does_not_grow() -> None:
    searches, records = [begun(text) for text in PATTERNS], stream(1, 2000)
    sizes = []
    for first in range(0, 2000, 400):
        for live in searches:
            live.take(RecordBatch.of(records[first : first + 400]))
        sizes.append([sum(map(len, live.snapshot().values())) for live in searches])
    assert all(last < first + 500 for first, last in zip(sizes[0], sizes[-1], strict=True)), sizes


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (
            "{n: integer}, key: [n]",
            "the name of each a tuple depends on whether it replaced another of its key",
        ),
        ("{n: integer}, finite: true", "no max of its time says when it ends"),
    ],
)
def test_what_the_theorem_does_not_speak_of_is_refused(attributes: str, why: str) -> None:
    text = f"version: 1\nname: x\nrelations:\n  a: {{attributes: {attributes}}}\njoins: []\n"
    with pytest.raises(UsageError, match=why):
        begun("a x where x.n > 3", Stream(parse_schema(text), Unbounded()))


def test_a_row_that_breaks_a_bound_stops_it() -> None:
    live = begun("login l")
    with pytest.raises(BadRecordsError, match="user is 9, but the schema promises 1 to 4"):
        live.take(RecordBatch.of([Record(0, SECOND, (9, "Leeds", True))]))
