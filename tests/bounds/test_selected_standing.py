"""Patterns that show attributes as standing queries: through restarts, on shards, and by the commands."""

from __future__ import annotations

import json
import random
from collections import Counter
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


@seeds(2, 3)
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
