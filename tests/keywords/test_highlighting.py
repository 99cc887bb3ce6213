"""Spans of keywords in a text, and the number of their occurrences."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given

from skws.data.batch import Record, RecordBatch
from skws.keywords.analysis import Token
from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.leaves import satisfies
from skws.keywords.match import Matcher, highlight, occurrences
from skws.keywords.occurrences import FEW_TEXTS
from skws.keywords.parse import parse_query
from skws.queries.keywords.keyword_operator import KeywordOperator
from skws.ranking.text_statistics import Keywords, OccurrenceCounts
from skws.store.live_store import LiveStore
from skws.store.table_tuples import table_tuples
from skws_schema.errors import QueryError
from skws_schema.model import Analyzer, Schema
from skws_windows.window import Unbounded
from tests.keywords.texts_and_queries import ACTOR, MOVIE, NAME, PLOT, SCHEMA, TITLE, queries, texts
from tests.strategies import examples


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("fiction pulp", "Pulp Fictions!", [("Pulp", 1), ("Fictions", 0)]),
        ('"pulp fiction"', "pulp Pulp Fiction", [("Pulp Fiction", 0)]),
        ('"pulp fiction" fiction', "fiction, pulp fiction", [("fiction", 1), ("pulp fiction", 0)]),
        ("cafe", "Le Cafe\u0301 du Marché", [("Cafe\u0301", 0)]),
        ("spider-man man", "Spider-Man, man", [("Spider-Man", 0), ("man", 1)]),
        ("trav* OR pulp", "Pulp travels", [("Pulp", 0), ("travels", 0)]),
        ("京 東", "東京", [("東", 1), ("京", 0)]),
        ("ไทย", "ประเทศไทย", [("ไทย", 0)]),
        ("example.com", "w.example.com, example.com", [("example.com", 0), ("example.com", 0)]),
        (".net", "ASP.NET", [(".NET", 0)]),
        ("plot:pulp", "Pulp", []),
        ("pulp", "", []),
    ],
)
def test_keywords_in_a_title_have_spans(query: str, text: str, expected: list[tuple[str, int]]) -> None:
    spans = highlight(parse_query(query, SCHEMA), SCHEMA, "movie", "title", text)
    assert [(text[start:end], slot) for start, end, slot in spans] == expected


def test_unsearched_columns_have_no_spans() -> None:
    assert highlight(parse_query("pulp", SCHEMA), SCHEMA, "movie", "studio", "pulp") == []


@given(queries(), texts())
@example("pulp OR trav* fiction", "Pulp travels, pulp fiction")
@example('"pulp fiction" fiction', "fiction, pulp fiction")
def test_spans_are_sorted_and_disjoint_and_exist_only_for_matches(query_text: str, text: str) -> None:
    try:
        query = parse_query(query_text, SCHEMA)
    except QueryError:
        assume(False)
    assume(not query.exclusions)
    spans = highlight(query, SCHEMA, "movie", "plot", text)
    bitmap = Matcher(query, SCHEMA).bitmap(MOVIE, (1, None, text, None))
    assert bool(spans) == bool(bitmap)
    assert all(bitmap >> slot & 1 for _, _, slot in spans)
    end = 0
    for start, stop, _ in spans:
        assert end <= start < stop <= len(text)
        end = stop


@pytest.mark.parametrize(
    ("query", "attribute", "text", "spans"),
    [
        ("travlota~", "title", "with Travolta's", [(5, 13, 0)]),
        ("t?av*a x", "title", "Travolta x", [(0, 8, 0), (9, 10, 1)]),
        ("x !movie.mid<10", "mid", "7", [(0, 1, 1)]),
        ("x !movie.mid<10", "mid", "10", []),
        ("x movie.mid<10", "mid", "7", []),
        ("x !studio:'a'", "studio", "'a'", [(0, 3, 1)]),
        ("pulp !title=pulp", "title", "pulp", [(0, 4, 0)]),
    ],
)
def test_fuzzy_terms_wildcards_and_conditions_have_spans(
    query: str, attribute: str, text: str, spans: list[tuple[int, int, int]]
) -> None:
    assert highlight(parse_query(query, SCHEMA), SCHEMA, "movie", attribute, text) == spans


def mixed_schema() -> Schema:
    """Titles are German, plots are a single unanalysed word."""
    movie = SCHEMA.relations[MOVIE]
    analyzers = {"title": Analyzer.GERMAN, "plot": Analyzer.NONE}
    attributes = tuple(
        replace(attribute, analyzer=analyzers.get(attribute.name, attribute.analyzer))
        for attribute in movie.attributes
    )
    relations = list(SCHEMA.relations)
    relations[MOVIE] = replace(movie, attributes=attributes)
    return replace(SCHEMA, relations=tuple(relations))


SCHEMAS = [SCHEMA, mixed_schema()]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["english", "mixed"])
@given(texts(), queries())
@example("pulp Pulp-Fiction, pulp fiction", 'pulp "pulp fiction" fict*')
@examples(150)
def test_occurrence_counts_by_chunk_equal_those_of_the_text(schema: Schema, text: str, query: str) -> None:
    try:
        slots = parse_query(query, schema).slots
    except QueryError:
        return
    counts = OccurrenceCounts(slots)
    for column in ((MOVIE, TITLE), (MOVIE, PLOT), (ACTOR, NAME)):
        expected = tuple(occurrences(slot, *column, text) for slot in slots)
        assert counts.of(*column, text) == expected
        assert counts.of(*column, text) == expected, "remembered"


@pytest.mark.parametrize("schema", SCHEMAS, ids=["english", "mixed"])
@given(texts(), texts(), texts(), queries())
@example("Pulp Fictions", "pulp, fiction", "John Travolta", "pulp trav* (fiction OR x)")
@example("Pulp Fictions", "pulp, fiction", "John Travolta", 'pulp "pulp fiction"')
@examples(200)
def test_live_words_label_tuples_like_the_matcher(
    schema: Schema, title: str, plot: str, name: str, query: str
) -> None:
    try:
        parsed = parse_query(query, schema)
    except QueryError:
        return
    check_labels(schema, parsed, records_of(title, plot, name))


@pytest.mark.parametrize("schema", SCHEMAS, ids=["english", "mixed"])
@pytest.mark.parametrize("query", ["pulp trav* (fiction OR x)", 'pulp "pulp fiction"'])
def test_live_words_of_many_texts_label_tuples_like_the_matcher(schema: Schema, query: str) -> None:
    """Arrow splits them."""
    records = records_of("Pulp Fictions", "pulp, fiction", "John Travolta") * FEW_TEXTS
    check_labels(schema, parse_query(query, schema), records)


def records_of(title: str, plot: str, name: str) -> list[Record]:
    return [Record(MOVIE, 1, (1, title, plot, "x")), Record(ACTOR, 2, (1, name)), Record(ACTOR, 3, (2, None))]


def check_labels(schema: Schema, parsed: KeywordQuery, rows: list[Record]) -> None:
    operator = KeywordOperator(LiveStore(schema, Unbounded()))
    operator.insert(table_tuples(schema, [RecordBatch.of(rows)]))
    words = operator.searches.words
    words.catch_up(len(rows), 1)
    words.catch_up(len(rows))
    matcher = Matcher(parsed, schema)
    live_labels = words.label(7, matcher)
    bitmaps = np.zeros(len(rows), dtype=np.int64)
    bitmaps[live_labels.bitmaps.tuple] = live_labels.bitmaps.bitmap
    assert bitmaps.tolist() == [matcher.bitmap(record.relation, record.row) for record in rows]
    for column, (slots, occurrence_counts, lengths, exact) in live_labels.carriers.items():
        for slot, counts, length in zip(
            slots.tolist(), occurrence_counts.tolist(), lengths.tolist(), strict=True
        ):
            text = str(rows[slot].row[column[1]])
            exact_counts = [occurrences(term_slot, *column, text) for term_slot in parsed.slots]
            assert length == len(text)
            assert [count > 0 for count in counts] == [count > 0 for count in exact_counts]
            assert all(count >= minimum for count, minimum in zip(counts, exact_counts, strict=True)), (
                "it is a bound"
            )
            assert counts == exact_counts or not exact


def test_remembered_counts_do_not_keep_long_texts() -> None:
    keywords = Keywords(Matcher(parse_query("pulp", SCHEMA), SCHEMA))
    tracemalloc.start()
    try:
        for number in range(600):
            text = f"pulp {number} {'-' * 100_000}"
            assert keywords.occurrences(MOVIE, TITLE, text) == (1,)
        assert tracemalloc.get_traced_memory()[0] < 30_000_000
    finally:
        tracemalloc.stop()


def test_each_distinct_chunk_of_a_text_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text may be a document of thousands of words, many of which occur often."""
    compared: list[str] = []

    def counted(token: Token, alternative: Any) -> bool:
        compared.append(token.word)
        return satisfies(token, alternative)

    monkeypatch.setattr("skws.keywords.match.satisfies", counted)
    text = "the pulp of a film " * 500
    spans = highlight(parse_query("pulp film", SCHEMA), SCHEMA, "movie", "title", text)
    assert len(spans) == 1000
    assert all(text[start:end] == ("pulp", "film")[slot] for start, end, slot in spans)
    assert len(compared) <= 2 * len(set(text.split()))
