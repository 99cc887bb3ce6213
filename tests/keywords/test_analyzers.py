"""A keyword is matched in each attribute by the analyzer of that attribute."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skws.data.blocks import RowBlock
from skws.index.database import StoredTuples
from skws.index.index_cache import as_batches, make_parts
from skws.index.postings import IndexFile, packed_folder
from skws.index.table import arrow_schema
from skws.keywords.analysis import stem, stop_words
from skws.keywords.keyword_matching import JointMatcher
from skws.keywords.match import Matcher, highlight
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from skws_schema.model import Analyzer, Attribute, AttributeType, Relation, Row, Schema
from tests.keywords.texts_and_queries import has_lone_surrogate, texts, words
from tests.oracles.bitmaps import bitmap
from tests.strategies import examples

KINDS = (Analyzer.ENGLISH, Analyzer.GERMAN, Analyzer.SIMPLE, Analyzer.NONE, Analyzer.RUSSIAN, Analyzer.FRENCH)
SCHEMA = Schema(
    "texts",
    (
        Relation(
            "page",
            tuple(Attribute(str(kind), AttributeType.TEXT, analyzer=kind) for kind in KINDS),
            search=tuple(map(str, KINDS)),
        ),
        Relation(
            "plain",
            tuple(Attribute(name, AttributeType.TEXT, analyzer=Analyzer.GERMAN) for name in "ab"),
            search=("a", "b"),
        ),
    ),
    (),
)
PAGE, PLAIN = range(2)


def row(analyzer: Analyzer, text: str) -> Row:
    return tuple(text if kind is analyzer else None for kind in KINDS)


@pytest.mark.parametrize(
    ("analyzer", "query", "text", "matches"),
    [
        ("english", "running", "he runs", True),
        ("simple", "running", "he runs", False),
        ("simple", "Café", "the CAFE", True),
        ("simple", "the", "the cafe", True),
        ("german", "häusern", "ein altes HAUS", True),
        ("german", "häuser", "in den Häusern", True),
        ("german", "hauser", "in den Häusern", True),
        ("german", "the", "the end", True),
        ("german", "und", "Katz und Maus", False),
        ("german", '"katz und maus"', "Katz und Maus", True),
        ("german", "häsuern~", "in den Häusern", True),
        ("french", "chevaux", "le cheval", True),
        ("russian", "красная", "красный дом", True),
        ("russian", "елка", "ёлки", True),
        ("russian", "кра*й", "красный дом", True),
        ("none", "AB-12", "AB-12", True),
        ("none", "ab-12", "AB-12", False),
        ("none", "AB", "AB-12", False),
        ("none", "AB-*", "AB-12", True),
        ("none", '"grace hopper"', "grace hopper", True),
        ("none", "grace", "grace hopper", False),
        ("none", "A?-1*", "AB-12", True),
        ("none", "AB-21~", "AB-12", True),
        ("none", "東京", "東京", True),
        ("german", "東京", "東京物語", True),
        ("simple", "東京", "大東京", True),
    ],
)
def test_a_keyword_is_matched_by_the_analyzer_of_the_attribute(
    analyzer: str, query: str, text: str, matches: bool
) -> None:
    kind = Analyzer(analyzer)
    try:
        matcher = Matcher(parse_query(f"page.{analyzer}:{query}", SCHEMA), SCHEMA)
    except QueryError:
        assert not matches
        return
    assert bool(matcher.bitmap(PAGE, row(kind, text))) == matches
    assert not any(
        matcher.bitmap(PAGE, row(other_kind, text)) for other_kind in KINDS if other_kind is not kind
    )


def test_a_stop_word_of_one_language_is_a_keyword_in_others() -> None:
    query = parse_query("und house", SCHEMA)
    assert query.keywords == ("und", "house")
    matcher = Matcher(query, SCHEMA)
    assert matcher.bitmap(PAGE, row(Analyzer.ENGLISH, "und")) == 1
    assert matcher.bitmap(PAGE, row(Analyzer.GERMAN, "und")) == 0
    with pytest.raises(QueryError, match="'plain:und' is a stop word"):
        parse_query("plain:und", SCHEMA)


def test_relation_names_are_analysed_as_english() -> None:
    schema = Schema("s", (SCHEMA.relations[PLAIN],), ())
    assert Matcher(parse_query("plains", schema, match_names=True), schema).bitmap(0, (None, None)) == 1
    assert Matcher(parse_query("plains", schema), schema).bitmap(0, (None, None)) == 0


def test_unanalysed_values_are_highlighted_whole() -> None:
    query = parse_query("none:AB-12,", SCHEMA)
    assert (query.keywords, query.notes) == (("none:AB-12,",), ())
    assert highlight(query, SCHEMA, "page", "none", "AB-12,") == [(0, 6, 0)]
    query = parse_query("Häuser", SCHEMA)
    assert highlight(query, SCHEMA, "page", "german", "den Häusern") == [(4, 11, 0)]
    assert highlight(query, SCHEMA, "page", "english", "den Häusern") == []


INFLECTED = {
    "english": ("run", "running"),
    "danish": ("bil", "bilerne"),
    "dutch": ("lamp", "lampen"),
    "finnish": ("talo", "talossa"),
    "french": ("cheval", "chevaux"),
    "german": ("haus", "hausern"),
    "hungarian": ("asztal", "asztalok"),
    "italian": ("libro", "libri"),
    "norwegian": ("bil", "bilene"),
    "portuguese": ("livro", "livros"),
    "romanian": ("munte", "munti"),
    "russian": ("дом", "дома"),
    "spanish": ("libro", "libros"),
    "swedish": ("bil", "bilarna"),
}
"""A word of each language and another form of it, without accents."""


@pytest.mark.parametrize("analyzer", [kind for kind in Analyzer if kind not in {"simple", "none"}])
def test_every_language_has_a_stemmer_and_stop_words(analyzer: Analyzer) -> None:
    word, form = INFLECTED[analyzer]
    assert stop_words(analyzer) or analyzer is Analyzer.ROMANIAN
    assert stem(form, analyzer) == stem(word, analyzer)


_QUERIES = (
    "tarantino",
    "running",
    "häusern",
    "trav*",
    "fction~",
    '"spider man"',
    "s*n",
    "красная",
    "и",
    "c++",
)


@examples(150)
@example(["running", "trav*"], "", [["he runs", None, "running", "running", "x", None], ["travels"] * 6])
@example(["häusern"], "german:", [[None, "ein altes HAUS", None, None, None, None]])
@given(
    st.lists(st.sampled_from(_QUERIES), min_size=1, max_size=2, unique=True),
    st.sampled_from(["", "", "page:", "german:", "none:", "page.simple:"]),
    st.lists(st.lists(st.one_of(texts(), words(), st.none()), min_size=6, max_size=6), max_size=4),
)
def test_rows_columns_joint_matchers_and_indexes_match_alike(
    keywords: list[str], scope: str, values: list[list[str | None]]
) -> None:
    """Rows, columns, many queries at once, and index words, compared with loops over analysed words."""
    query = parse_query(" ".join(f"{scope}{keyword}" for keyword in keywords), SCHEMA)
    rows: list[Row] = [
        tuple(row) for row in values if not has_lone_surrogate("".join(text or "" for text in row))
    ]
    matcher, joint = Matcher(query, SCHEMA), JointMatcher(SCHEMA)
    expected = [bitmap(query, SCHEMA, PAGE, row) for row in rows]
    assert [matcher.bitmap(PAGE, row) for row in rows] == expected
    assert matcher.bitmaps_of([RowBlock(PAGE, rows)])[0].tolist() == expected
    joint.add(1, matcher)
    matches = joint.bitmaps(RowBlock(PAGE, rows), np.arange(len(rows)))
    bitmap_by_row = {number: bits for number, bits in enumerate(expected) if bits}
    assert dict(zip(matches.tuple.tolist(), matches.bitmap.tolist(), strict=True)) == bitmap_by_row
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        with packed_folder(path) as parts:
            make_parts(
                parts,
                SCHEMA,
                lambda reader: as_batches(
                    rows if reader.relation.name == "page" else [], arrow_schema(reader.relation)
                ),
            )
        table = StoredTuples.of_database(IndexFile(path), SCHEMA).tables[PAGE]
        assert set(bitmap_by_row) <= set(table.keyword_flags(matcher).nonzero()[0].tolist())
