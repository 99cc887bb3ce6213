"""Counts by chunk equal those of whole texts, and the live words tell what the matcher tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from skws.data.batch import batched
from skws.data.record import Record
from skws.keywords.highlight import occurrences
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.queries.keywords.columnar import ColumnarEngine
from skws.ranking.corpus import OccurrenceCounts
from skws_schema.errors import QueryError
from skws_schema.model import Analyzer, Schema
from skws_windows.window import Unbounded
from tests.keywords.texts_and_queries import ACTOR, MOVIE, NAME, PLOT, SCHEMA, TITLE, queries, texts
from tests.strategies import examples


def mixed() -> Schema:
    """Titles are German, plots are one word as they stand."""
    movie = SCHEMA.relations[MOVIE]
    analyzers = {"title": Analyzer.GERMAN, "plot": Analyzer.NONE}
    attributes = tuple(
        replace(each, analyzer=analyzers.get(each.name, each.analyzer)) for each in movie.attributes
    )
    relations = list(SCHEMA.relations)
    relations[MOVIE] = replace(movie, attributes=attributes)
    return replace(SCHEMA, relations=tuple(relations))


SCHEMAS = [SCHEMA, mixed()]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["english", "mixed"])
@given(texts(), queries())
@examples(150)
def test_counts_by_chunk_are_those_of_whole_texts(schema: Schema, text: str, query: str) -> None:
    try:
        slots = parse_query(query, schema).slots
    except QueryError:
        return
    counts = OccurrenceCounts(slots)
    for place in ((MOVIE, TITLE), (MOVIE, PLOT), (ACTOR, NAME)):
        expected = tuple(occurrences(slot, *place, text) for slot in slots)
        assert counts.of(*place, text) == expected
        assert counts.of(*place, text) == expected, "remembered"


@pytest.mark.parametrize("schema", SCHEMAS, ids=["english", "mixed"])
@given(texts(), texts(), texts(), queries())
@examples(100)
def test_live_words_label_as_the_matcher_does(
    schema: Schema, title: str, plot: str, name: str, query: str
) -> None:
    try:
        parsed = parse_query(query, schema)
    except QueryError:
        return
    rows = [Record(MOVIE, 1, (1, title, plot, "x")), Record(ACTOR, 2, (1, name)), Record(ACTOR, 3, (2, None))]
    engine = ColumnarEngine(schema, Unbounded())
    for batch in batched(rows):
        list(engine.process_batches([batch]))
    words = engine._operator.searches.words
    words.catch_up(len(rows), 1)
    words.catch_up(len(rows))
    matcher = Matcher(parsed, schema)
    labelled = words.label(7, matcher, len(rows))
    if labelled is None:
        return
    found = np.zeros(len(rows), dtype=np.int64)
    found[labelled.bitmaps.tuple] = labelled.bitmaps.bitmap
    assert found.tolist() == [matcher.bitmap(record.relation, record.row) for record in rows]
    for place, (slots, often, lengths, exact) in labelled.carriers.items():
        for slot, counts, length in zip(slots.tolist(), often.tolist(), lengths.tolist(), strict=True):
            text = str(rows[slot].row[place[1]])
            true = [occurrences(each, *place, text) for each in parsed.slots]
            assert length == len(text)
            assert [count > 0 for count in counts] == [count > 0 for count in true]
            assert all(count >= least for count, least in zip(counts, true, strict=True)), "it is a bound"
            assert counts == true or not exact
