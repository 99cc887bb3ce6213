"""Patterns that show attributes as standing queries: through restarts, on shards, and by the commands."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.jobs.control import Command
from skws.queries.kinds import check, checked
from skws.queries.partitioning import Part, Partitioning
from skws.queries.patterns.selected import SelectedKind
from skws.queries.session import Session
from skws.queries.sql.result import SqlResult
from skws.results.model import LiveResult
from skws.spec.job import Job
from skws.spec.query import PATTERN, SELECT, SELECTED, Query
from skws.spec.stream import Stream
from skws_bounds.run import Output
from skws_schema.errors import BadRecordsError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import TimeWindow, Unbounded
from tests.bounds.pattern_streams import PATTERNS, SCHEMA, SECOND, by_the_pattern_engine, stream
from tests.bounds.standing_runs import through_restarts
from tests.commands import Skws
from tests.spark.streaming.shard_runs import all_shards, lines, micro_batch_of
from tests.strategies import seeds

STREAM = Stream(SCHEMA, Unbounded())
QUERIES = [Query(text, 5, SELECTED, {SELECT: s}, name=f"q{i}") for i, (text, s) in enumerate(PATTERNS)]


def begun() -> Session:
    live = Session(STREAM, keywords=False)
    live.load_tables([])
    for standing in QUERIES:
        check(standing, STREAM)
        assert live.add(standing) == []
    return live


def shown(results: list[LiveResult], name: str) -> Counter[tuple[int, Output]]:
    found: Counter[tuple[int, Output]] = Counter()
    for result in results:
        assert isinstance(result, SqlResult)
        if result.query == name:
            found[round(result.start * SECOND), tuple(result.tuples[0].row.values())] += result.count
    return found


@seeds(1, 3)
def test_results_through_restarts_in_the_midst_of_an_instant(seed: int) -> None:
    records = stream(seed, 80)
    results = through_restarts(begun, records, seed)
    for standing in QUERIES:
        expected = by_the_pattern_engine(standing.text, standing.options[SELECT], records)
        assert shown(results, standing.text) == expected, standing.text


def test_the_state_does_not_grow() -> None:
    live, sizes = begun(), []
    records = stream(1, 4000)
    for first in range(0, 4000, 800):
        live.take(RecordBatch.of(records[first : first + 800]))
        sizes.append(sum(map(len, live.snapshot().values())))
    assert sizes[-1] < sizes[0] * 1.1 + 200


def test_shards_give_what_one_gives() -> None:
    asked = Job(
        {q.name: Query(q.text, kind=SELECTED, options=q.options) for q in QUERIES[:6]}, SCHEMA, "nowhere"
    )
    chance, records = random.Random(1), stream(3, 150)
    first = [Command.adding(one) for one in checked(asked).values()]
    told = []
    for shards in (all_shards(asked, 1), all_shards(asked, 3)):
        found = []
        for number, begin in enumerate(range(0, len(records), 13)):
            commands = () if number else tuple(first)
            micro_batch = micro_batch_of(records[begin : begin + 13], commands, ())
            results: list[LiveResult] = []
            for shard in shards:
                if chance.random() < 0.4:
                    shard.rebuild()
                results += shard.work(micro_batch).results
            found.append(sorted(lines(results)))
        told.append(found)
    assert told[0] == told[1]
    assert sum(map(len, told[0])) > 100


def test_one_shard_has_the_whole_pattern() -> None:
    shares = [Part(number, 3, Partitioning.ROOTS) for number in range(3)]
    assert sum(SelectedKind().owns(QUERIES[0], STREAM, share) for share in shares) == 1


def refusal(text: str, select: str, on: Stream = STREAM) -> str:
    with pytest.raises(UsageError) as found:
        check(Query(text, 5, SELECTED, {SELECT: select}, name="x"), on)
    return str(found.value)


def test_what_is_refused_tells_the_atoms_and_what_would_help() -> None:
    told = refusal("refund r ; login l where r.amount > 2", "r.amount")
    assert "C3: r.amount is projected out and has to be kept, but is not bounded" in told
    assert "  - project r.amount away" in told
    told = refusal("refund r ; transfer t where r.amount = t.amount", "")
    assert "line 1, column 29: r.amount = t.amount" in told
    assert "leave out the condition r.amount = t.amount" in told
    assert "no stream of this query has an attribute" in refusal("login l", "nope")
    windowed = refusal("login l ; refund r", "l.user", Stream(SCHEMA, TimeWindow(SECOND)))
    assert "--select is for streams without a window" in windowed
    assert "--select is for streams" in refusal("login l ; refund r within 5 s", "l.user")


def test_alternatives_show_one_kind_in_a_column() -> None:
    text = "version: 1\nname: x\nrelations:\n  a: {attributes: {v: integer}}\n  b: {attributes: {v: text}}\n"
    on = Stream(parse_schema(text), Unbounded())
    told = refusal("(a x OR b x) ; a y", "x.v", on)
    assert "x.v is of type integer and x.v is of type text" in told


def test_whole_tuples_are_refused_with_what_could_be_shown() -> None:
    def told(text: str) -> str:
        with pytest.raises(UsageError) as found:
            check(Query(text, 5, PATTERN, name="x"), STREAM)
        return str(found.value)

    text = "login l ; refund r"
    assert "C3: results show each l tuple whole" in told(text)
    assert "(--select l.user,l.ok,r.user,r.amount)" in told(text)
    check(Query(text, 5, SELECTED, {SELECT: "l.user,l.ok,r.user,r.amount"}, name="x"), STREAM)
    unbounded = told("refund r ; refund s where r.user = s.user")
    assert "line 1, column 27: r.user = s.user" in unbounded
    assert "--select" not in unbounded
    assert "a repetition (+)" in told("login l+ ; refund r where l.user = r.user")


def test_a_row_that_breaks_a_bound_of_the_schema_stops_the_run() -> None:
    live = begun()
    with pytest.raises(BadRecordsError, match=r"user is 5, but the schema promises 1 to 4"):
        live.take(RecordBatch.of([Record(0, SECOND, (5, "Leeds", True))]))


def test_the_commands(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  visit: {attributes: {page: {type: integer, min: 1, max: 9}, at: timestamp}, time: at}\n"
        "  orders: {attributes: {amount: integer, at: timestamp}, time: at}\n"
    )
    rows: list[tuple[str, dict[str, int]]] = [
        ("visit", {"page": 3, "at": 1}),
        ("visit", {"page": 3, "at": 2}),
        ("orders", {"amount": 5, "at": 9}),
    ]
    replay = tmp_path / "shop.jsonl"
    replay.write_text("\n".join(json.dumps({"relation": name, "row": row}) for name, row in rows))
    asked = ("--schema", tmp_path / "shop.yaml", "--engine", "local", "--quiet")
    pattern = ("--pattern", "visit v ; orders o", "--select", "v.page, o.amount")
    search = ("search", *asked, "--replay", replay)
    watch = ("watch", *asked, "--source", f"replay:{replay}?speed=1e9")
    (told,) = skws(*search, *pattern, "--format", "jsonl").records
    assert skws(*watch, *pattern, "--format", "jsonl").records == [told]
    assert (told["count"], told["tuples"][0]["row"]) == (2, {"v.page": 3, "o.amount": 5})
    assert skws(*search, *pattern, "--format", "count").out == "2\n"
    assert skws(*search, *pattern).out.endswith("row(3, 5)  2 times\n")
    for refused in (
        (*search, *pattern, "--format", "csv"),
        (*search, *pattern, "--window", "5 s"),
        (*search, "--pattern", "orders o ; visit v", "--select", "o.amount"),
        (*watch, "--pattern", "orders o ; visit v", "--select", "o.amount"),
        (*search, "red", "--select", "o.amount"),
        (*watch, "red", "--select", "o.amount"),
    ):
        assert skws(*refused).code == 2, refused


WHOLE = (
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


def begun_whole(text: str, on: Stream = STREAM) -> Session:
    standing = Query(text, 5, PATTERN, name="q")
    check(standing, on)
    live = Session(on, keywords=False)
    live.load_tables([])
    assert live.add(standing) == []
    return live


@pytest.mark.parametrize("text", WHOLE)
def test_matches_through_restarts_are_those_of_a_run_that_keeps_all(text: str) -> None:
    records = stream(5, 90)
    keeping = begun_whole(text, replace(STREAM, force_unbounded=True))
    expected = list(keeping.take(RecordBatch.of(records)))
    found = through_restarts(lambda: begun_whole(text), records, 5)
    assert len(expected) > 3
    assert sorted(r.to_json() for r in found) == sorted(r.to_json() for r in expected)
    assert [r.start for r in found] == sorted(r.start for r in found if r.start is not None)


def test_the_state_does_not_grow_of_whole_tuples() -> None:
    searches, records = [begun_whole(text) for text in WHOLE], stream(1, 2000)
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
        begun_whole("a x where x.n > 3", Stream(parse_schema(text), Unbounded()))


def test_a_row_that_breaks_a_bound_stops_it() -> None:
    live = begun_whole("login l")
    with pytest.raises(BadRecordsError, match="user is 9, but the schema promises 1 to 4"):
        live.take(RecordBatch.of([Record(0, SECOND, (9, "Leeds", True))]))
