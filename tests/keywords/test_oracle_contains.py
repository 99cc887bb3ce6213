"""``t:"keywords"`` in patterns and window expressions, compared with brute force over the keywords."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws.data.batch import RecordBatch
from skws.keywords.parse import parse_query
from skws.queries.patterns.pattern_text import pattern_notes, read_query, text_match
from skws.queries.session import Session
from skws.queries.windowed.window_plan import WindowPlan, contains_keyword, window_notes
from skws.spec.query_spec import Query, Stream
from skws_schema.errors import SkwsError
from skws_schema.model import Analyzer, Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import TimeWindow, parse_window
from tests.oracles.bitmaps import bitmap
from tests.strategies import WORDS, examples, query_texts, rows, schemas, streams, worded

TEXTS = st.lists(st.sampled_from((*WORDS, "und", "the", "alpha-beta", "Ålpha", "be")), max_size=4).map(
    " ".join
)
SHOP = Schema(
    "shop",
    (
        Relation(
            "item",
            (Attribute("name", AttributeType.TEXT), Attribute("cost", AttributeType.INTEGER)),
            search=("name",),
        ),
        Relation("shop", (Attribute("city", AttributeType.TEXT),), search=("city",)),
    ),
    (),
)


def contains(text: str, schema: Schema, relation: int, row: Row) -> bool:
    """True if a single row satisfies the whole query."""
    query = parse_query(text, schema)
    return bitmap(query, schema, relation, row) == (1 << len(query.slots)) - 1


@pytest.mark.check
@given(st.data(), query_texts())
@examples(150)
def test_keywords_in_patterns_match_like_searches(data: st.DataObject, text: str) -> None:
    schema: Schema = data.draw(schemas(tables=False).flatmap(worded))
    relation = data.draw(st.integers(0, len(schema.relations) - 1))
    name = schema.relations[relation].name
    stream = data.draw(streams(schema, 3, max_records=16))
    stream = [record for record in stream if not record.delete]
    session = Session(Stream(schema, TimeWindow(1000), max_size=2))
    quoted = text.replace("'", "''")
    try:
        match = text_match(schema)(text, relation, schema.relations[relation].search_columns)
        session.add(Query.of_pattern(f"{name} a where a:'{quoted}'").named("p", 2))
    except SkwsError:
        assume(False)
        raise
    results = session.take(RecordBatch.of(stream))
    relation_records = [record for record in stream if record.relation == relation]
    expected = [record.row for record in relation_records if contains(text, schema, relation, record.row)]
    assert [record.row for record in relation_records if match(record.row)] == expected
    assert len(results) == len(expected)


@given(query_texts(), TEXTS, st.sampled_from(Analyzer))
@examples(300)
def test_keywords_in_window_expressions_match_like_searches(
    keywords: str, text: str, analyzer: Analyzer
) -> None:
    note = Attribute("note", AttributeType.TEXT, analyzer=analyzer)
    schema = Schema("notes", (Relation("notes", (note,), search=("note",)),), ())
    try:
        WindowPlan.of_text(schema, f"open when note:'{keywords}' close when notes")
    except SkwsError:
        assume(False)
    assert contains_keyword(keywords, text, analyzer) == contains(keywords, schema, 0, (text,))


@given(rows(3), query_texts())
@examples(100)
def test_keywords_of_a_named_attribute_match_only_it(row: Row, text: str) -> None:
    attributes = (Attribute("t", AttributeType.TEXT), Attribute("u", AttributeType.TEXT))
    numbers = (Attribute("x", AttributeType.INTEGER), Attribute("y", AttributeType.INTEGER))
    relations = tuple(Relation(f"r{n}", (*attributes, *numbers), search=("t", "u")) for n in range(2))
    schema = Schema("two", relations, ())
    restricted_schema = replace(schema, relations=(replace(relations[0], search=("u",)), relations[1]))
    try:
        match = text_match(schema)(text, 0, (1,))
    except SkwsError:
        assume(False)
        raise
    full_row = (row[0], "alpha beta", *row[1:])
    assert match(full_row) == contains(text, restricted_schema, 0, full_row)


def test_keywords_with_lone_surrogates_are_rejected() -> None:
    with pytest.raises(SkwsError, match="Unicode"):
        read_query(Query.of_pattern("item i where i:'\ud800'").text, SHOP)


def test_ignored_keywords_of_patterns_and_windows_are_noted() -> None:
    (pattern_note,) = pattern_notes("item i where i:'the lamp'", SHOP)
    assert "the" in pattern_note
    window = parse_window("open when name:'the lamp, !' close when item")
    assert [any(part in note for note in window_notes(SHOP, window)) for part in ("the", ",")] == [True, True]
