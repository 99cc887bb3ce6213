"""A search over the index of a snapshot has the engine's results over static tables, including scores."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from skws.data.batch import Record, batched
from skws.formats.rows import RowReader
from skws.index.database import StoredTuples
from skws.index.index_cache import as_batches, make_parts
from skws.index.postings import IndexFile, packed_folder
from skws.index.table import arrow_schema
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws.sources.addresses import all_tables
from skws.spec.query_spec import RankingChoice
from skws_schema.errors import QueryError
from skws_schema.model import Join, Relation, Row, Schema
from skws_windows.window import Unbounded
from tests.strategies import COLUMNS, WORDS, examples, query_texts, schemas, seeds, static_rows


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[Schema, int, list[Record]]:
    schema = all_tables(draw(schemas()))
    words = draw(st.integers(1, 3))
    records = draw(static_rows(schema, words, max_rows=10))
    # Texts of all lengths, so that larger results may be better.
    lengths = draw(st.lists(st.integers(0, 40), min_size=len(records), max_size=len(records)))
    return schema, words, [_longer(each, length) for each, length in zip(records, lengths, strict=True)]


def _longer(record: Record, length: int) -> Record:
    text, *values = record.row
    return record._replace(row=(f"{text}{' pad' * length}", *values))


def in_store(plan: Plan, records: list[Record], limit: int = sys.maxsize) -> list[Result]:
    schema = plan.schema

    def batches(reader: RowReader) -> Iterator[pa.RecordBatch]:
        rows = (r.row for r in records if r.relation == reader.index)
        return as_batches(rows, arrow_schema(reader.relation))

    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        with packed_folder(path) as parts:
            make_parts(parts, schema, batches)
        database = StoredTuples.of_database(IndexFile(path), schema)
        return StreamEngine.over(plan, database).search_once(plan, limit).results


def in_engine(plan: Plan, records: list[Record]) -> list[Result]:
    """Results in order of score, then of id."""
    results = list(StreamEngine.of(plan).load_tables(batched(records)))
    return sorted(results, key=lambda r: (*(-x for x in r.score.rank), r.id) if r.score else ())


@st.composite
def texts(draw: st.DrawFn, words: int, more_relations: bool) -> str:
    plain = " ".join(WORDS[:words]) + draw(st.sampled_from(["", " -pad", ' "alpha pad"', " be*"]))
    exclusions = st.sampled_from(
        ["", " -r1:", " -r1.x:", " -r0.y: -j2:"] if more_relations else ["", " -j0:"]
    )
    return draw(st.one_of(exclusions.map(lambda names: plain + names), st.just(plain), query_texts(3)))


@pytest.mark.check
@pytest.mark.parametrize("rank", ["relevance", "keywords", "compact"])
@given(
    snapshots(),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 8),
    st.data(),
)
@examples(180)
def test_all_results_are_in_order_of_score(
    rank: str,
    case: tuple[Schema, int, list[Record]],
    max_size: int,
    names: bool,
    limit: int,
    data: st.DataObject,
) -> None:
    schema, words, records = case
    text = data.draw(texts(words, len(schema.relations) > 1))
    try:
        query = parse_query(f"{text}{' r0' if names else ''}", schema, match_names=names)
    except QueryError:
        assume(False)
    plan = Plan(schema, query, Unbounded(), max_size, ranking=RankingChoice(rank))
    expected = in_engine(plan, records)
    results = in_store(plan, records)
    assert [each.place.rank for each in results if each.place] == list(range(1, len(results) + 1))
    unplaced = [replace(each, place=None) for each in results]
    assert unplaced == [replace(each, tick=None, expires=None) for each in expected]
    assert in_store(plan, records, limit) == results[:limit]


def test_a_limited_search_stops_early() -> None:
    schema = all_tables(
        Schema(
            "s",
            (
                Relation("a", COLUMNS, search=("t",)),
                Relation("b", COLUMNS, search=("t",)),
            ),
            (),
        )
    )
    plan = Plan(schema, parse_query("alpha", schema), Unbounded(), 5, ranking=RankingChoice())
    rows: list[Row] = [("alpha", number, 1) for number in range(100)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        with packed_folder(path) as parts:
            make_parts(parts, schema, lambda reader: as_batches(rows, arrow_schema(reader.relation)))
        engine = StreamEngine.over(plan, StoredTuples.of_database(IndexFile(path), schema))
        result = engine.search_once(plan, 1)
        assert len(result.results) == 1
        assert result.size == 1


@pytest.mark.check
@seeds(2, 8)
def test_larger_results_may_be_better(seed: int) -> None:
    """Texts of all lengths, joined by rare values: some of the best results have several tuples."""
    rng = random.Random(seed)
    relations = (
        Relation("a", COLUMNS, search=("t",), table=True),
        Relation("b", COLUMNS, search=("t",), table=True),
    )
    schema = Schema(
        "s", relations, (Join("ab", "a", "b", (("x", "x"),)), Join("bb", "b", "b", (("x", "y"),)))
    )
    extra_words = {"alpha beta": 90}
    records = [
        Record(
            rng.randrange(2),
            0,
            (
                text + " pad" * extra_words.get(text, 0) * rng.randrange(2),
                rng.randrange(30),
                rng.randrange(30),
            ),
        )
        for text in rng.choices(["alpha", "beta", "alpha beta", "pad"], [3, 3, 1, 1], k=60)
    ]
    plan = Plan(schema, parse_query("alpha beta", schema), Unbounded(), 4, ranking=RankingChoice())
    results = in_store(plan, records)
    sizes = [len(each.tuples) for each in results]
    assert sizes != sorted(sizes)
    assert [each.id for each in results] == [each.id for each in in_engine(plan, records)]
    for most in (1, 2, 5, 10, 20, len(results)):
        assert in_store(plan, records, most) == results[:most]


def test_equal_rows_have_separate_results() -> None:
    """Each of several equal rows has separate results, with NULLs as equal; the engine uses the same ids."""
    schema = all_tables(Schema("s", (Relation("a", COLUMNS, search=("t",)),), ()))
    rows: list[Row] = [("alpha", 1, 1), ("alpha", None, 1), ("alpha", 1, 1), ("alpha", None, 1), ("b", 1, 1)]
    records = [Record(0, 0, row) for row in [*rows, rows[0]]]
    plan = Plan(schema, parse_query("alpha", schema), Unbounded(), 1, ranking=RankingChoice())
    ids = [result.id for result in in_store(plan, records)]
    assert sorted(ids) == sorted(result.id for result in in_engine(plan, records))
    assert len(set(ids)) == 5
