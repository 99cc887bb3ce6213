"""Keyword bitmaps compared with an independent matcher: plain loops over the tokens of each value."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skws.data.arrow_blocks import ArrowBlock
from skws.data.blocks import Block, ColumnBlock, RowBlock
from skws.keywords.chunk_table import ChunkMemory
from skws.keywords.keyword_matching import JointMatcher
from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from skws_schema.model import Row
from skws_schema.yaml.load import parse_schema
from tests.keywords.texts_and_queries import (
    ACTOR,
    DIRECTOR,
    MOVIE,
    PLAYS,
    PLOT,
    SCHEMA,
    TITLE,
    TOTAL,
    has_lone_surrogate,
    queries,
    rows,
)
from tests.oracles import bitmaps as oracles
from tests.strategies import examples


def column_bitmaps(matcher: Matcher, relation: int, search_columns: Sequence[pa.Array]) -> list[int]:
    """The bitmaps of rows with these searched columns; all other columns are NULL."""
    relation_schema = SCHEMA.relations[relation]
    columns = [pa.nulls(len(search_columns[0]), pa.string()) for _ in relation_schema.attributes]
    for number, column in zip(relation_schema.search_columns, search_columns, strict=True):
        columns[number] = column
    (matches,) = matcher.bitmaps_of([ArrowBlock(relation, columns)])
    bitmaps: list[int] = matches.tolist()
    return bitmaps


def parse_or_discard(text: str) -> KeywordQuery:
    try:
        return parse_query(text, SCHEMA)
    except QueryError:
        assume(False)
        raise


def movie_with_title(title: str) -> list[Row]:
    return [(1, title, None, None)]


def split_array(values: Sequence[str | None], cut: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values[:cut], pa.string()), pa.array(values[cut:], pa.string())])


@pytest.mark.check
@examples(600)
@given(queries(conditions=True), st.lists(rows(), max_size=6))
@example("東", movie_with_title("U東"))
@example("die", movie_with_title("They were dying"))
@example("sky", movie_with_title("SKIES"))
@example("tarantino", movie_with_title("TARAN\u00adTI\u0301NO"))
@example("tarantino", movie_with_title("taran-tino"))
@example("strasse", movie_with_title("Große Straße"))
@example("fine", movie_with_title("ﬁne"))
@example("at&t", movie_with_title("_AT&T_"))
def test_bitmaps_equal_those_of_the_oracle(text: str, movie_rows: list[Row]) -> None:
    """For rows and columns of every kind, and for a single matcher and a joint one."""
    query = parse_or_discard(text)
    matcher, joint = Matcher(query, SCHEMA), JointMatcher(SCHEMA)
    expected = [oracles.bitmap(query, SCHEMA, MOVIE, row) for row in movie_rows]
    assert [matcher.bitmap(MOVIE, row) for row in movie_rows] == expected
    columns: list[Any] = [list(column) for column in zip(*movie_rows, strict=True)] or [[], [], [], []]
    blocks: list[Block] = [RowBlock(MOVIE, movie_rows), ColumnBlock(MOVIE, columns, (TITLE, PLOT))]
    if not any(has_lone_surrogate(str(value)) for row in movie_rows for value in row):
        numbers, texts, half = pa.array(columns[0], pa.int64()), columns[1:], len(movie_rows) // 2
        chunked = ([split_array(arrays, cut) for arrays in texts] for cut in (0, half))
        blocks += [ArrowBlock(MOVIE, [numbers, *arrays]) for arrays in chunked]
    assert [matches.tolist() for matches in matcher.bitmaps_of(blocks)] == [expected] * len(blocks)
    joint.add(5, matcher)
    for block in blocks:
        matches = joint.bitmaps(block, np.arange(len(block)))
        assert dict(zip(matches.tuple.tolist(), matches.bitmap.tolist(), strict=True)) == {
            number: bitmap for number, bitmap in enumerate(expected) if bitmap
        }


@pytest.mark.parametrize(
    ("query", "title", "satisfied"),
    [
        ("tarantino", "Quentin TARANTINO's best", True),
        ("movie", "Movies about movies", True),
        ("cafe", "Le CAFÉ", True),
        ("café", "cafe", True),
        ("strasse", "Straße", True),
        ("spider-man", "Spiderman", True),
        ("spider-man", "Spider Man", True),
        ("man", "Spider-Man", True),
        ("at&t", "AT&T", True),
        ("at&t", "look at T", False),
        ("t", "AT&T", True),
        ("c++", "Thinking in C++.", True),
        ("c", "Thinking in C++", False),
        ("c#", "C++", False),
        (".net", "The .NET runtime", True),
        (".net", "net profit", False),
        ("o'neil", "Shaquille ONeil", True),
        ("o’neil", "O'Neil", True),
        ("3.14", "3 14", False),
        ("3.14", "libc-3.14.1", True),
        ("CVE-2025-7425", "d/p/CVE-2025-7425.patch", True),
        ("2.31.0", "release v2.31.0-rc.1 is out", True),
        ("2.31.0", "V2.31.0", True),
        ("2.31", "lib-v2.31.0.tar.gz", True),
        ("2.31.0-rc.1", "v2.31.0-rc.1", True),
        ("2.31.0", "v12.31.0", False),
        ("2.31.0", "w2.31.0", False),
        ("v2.31.0", "2.31.0", False),
        ("CVE-2025-7425", "CVE-2025.7425.patch", False),
        ("CVE-2025-7425", "CVE-2025-74250.patch", False),
        ("2025-7425", "CVE-2025-7425", True),
        ("2024-05-06", "2024-05-06T07:08:09Z", True),
        ('"2024-05-06"', "[2024-05-06T07:08:09,123]", True),
        ("2024-05-06", "backup_2024-05-06T07-08-09Z.tar", True),
        ("2024-05-06", "2024-05-06t07", True),
        ("2024-05-06", "2024-05-061T07:08", False),
        ("07:08:09", "2024-05-06T07:08:09Z", True),
        ("07:08", "2024-05-06T07:08Z", True),
        ("07:08", "7:08", False),
        ("07:08:09.5", "2024-05-06 07:08:09.5Z", True),
        ("2024-05-06T07:08:09Z", "2024-05-06 07:08:09.123+02:00", True),
        ("2024-05-06T07:08", "2024-05-06T07:09", False),
        ("2024-05-06T07*", "at 2024-05-06T07:08:09Z", True),
        ("2024-05-06T0*", "at 2024-05-06T07:08:09Z", True),
        ("2024-05-06T08*", "at 2024-05-06T07:08:09Z", False),
        ("20240506", "IMG_20240506T070809Z.jpg", True),
        ("20240506T070809Z", "IMG_20240506T070809Z.jpg", True),
        ("XT1234", "XT1234Z", False),
        ("12345678", "12345678T90", False),
        ("example.com", "server-01.example.com", True),
        ("example.com", "https://www.example.com:8080/", True),
        ("example.com", "an example. Com", False),
        ("example.com", "examples.com", False),
        ("server-01.example", "Server_01.example.com", True),
        (".patch", "CVE-2025-7425.patch", True),
        (".patch", "a patch", False),
        ("10.0.0.1", "110.0.0.1", False),
        ("10.0.0", "10.0.0.1", True),
        ("10..20", "10.20", True),
        ("10.20", "10..20", False),
        ("at&t", "AT&T-Verizon", True),
        ("2.5", "速度2.5公里", True),
        ("joe.smith@example.com", "<joe.smith@example.com>", True),
        ("usr/share/doc", "/usr/share/doc/libc", True),
        ("snake_case", "a_snake_case_name", True),
        ("in.the", "see in.the.end", True),
        ("in.the", "in the end", False),
        ("http://www.example.com:80/a?b=1&c=%20#d", "at http://www.example.com:80/a?b=1&c=%20#d now", True),
        ("10.0.0.1:8080", "10.0.0.1:8080", True),
        ("title:10.0.0.1:8080", "10.0.0.1:8080", True),
        ("2:1.2.3~rc1-4+b1", "2:1.2.3~rc1-4+b1", True),
        ("fe80::1ff", "fe80::1ff:1", True),
        ("00:1B:44", "00:1B:44:11", True),
        ("std::vector", "std::vector<int>", True),
        (r"C:\Users\joe", r"C:\Users\joe\a.txt", True),
        ("~/notes.txt", "/home/joe/notes.txt", True),
        ("12:30:00", "at 12:30:00", True),
        ("+1-555-010", "+1-555-010-99", True),
        ("ไทย", "ผมรักประเทศไทยมาก", True),
        ("น้ำ", "ดื่มน้\u0e4d\u0e32มาก", True),
        ("ນ້ຳ", "ດື່ມນ້ຳ", True),
        ("ພາສາ", "ຂ້ອຍເວົ້າພາສາລາວ", True),
        ("ភាសា", "ខ្ញុំ\u200bស្រលាញ់\u200bភាសាខ្មែរ", True),
        ("စာ", "မြန်မာစာသည်", True),
        ("སྐད", "བོད་སྐད་ཡིག", True),
        ("ꦗꦮ", "ꦧꦱꦗꦮ", True),
        ("ꆈꌠ", "ꇩꆈꌠ", True),
        ("ไทย", "ไทว", False),
        ("東京", "東京物語", True),
        ("京東", "東京物語", False),
        ("кино", "КИНО", True),
        ('"pulp fiction"', "Pulp Fictions", True),
        ('"pulp fiction"', "fiction and pulp", False),
        ('"lord of the rings"', "The Lord of the Rings", True),
        ('"lord of the rings"', "The Lord of Rings", False),
        ('"it"', "It", True),
        ("trav*", "Travolta", True),
        ("movies*", "movie", False),
        ("th*", "the", False),
        ("tarantino OR rodriguez", "Robert Rodriguez", True),
        ("title:pulp", "Pulp", True),
        ("plot:pulp", "Pulp", False),
        ("actor:pulp", "Pulp", False),
    ],
)
def test_a_keyword_matches_a_title(query: str, title: str, satisfied: bool) -> None:
    matcher = Matcher(parse_query(query, SCHEMA), SCHEMA)
    row: Row = (1, title, None, None)
    assert matcher.bitmap(MOVIE, row) == satisfied
    assert column_bitmaps(matcher, MOVIE, [pa.array([title]), pa.array([None], pa.string())]) == [satisfied]


def test_only_searched_attributes_are_matched_with_values_of_any_type() -> None:
    matcher = Matcher(parse_query("pulp 7", SCHEMA), SCHEMA)
    assert matcher.bitmap(MOVIE, (7, "a", None, "pulp")) == 0
    assert matcher.bitmap(MOVIE, (1, "pulp", 7, None)) == 0b11
    assert matcher.bitmap(PLAYS, (7, "pulp")) == 0


def test_arrow_columns_of_other_types_match_like_rows() -> None:
    matcher = Matcher(parse_query("pulp 7", SCHEMA), SCHEMA)
    titles = pa.array(["pulp", "fiction", None, "pulp"]).dictionary_encode()
    numbers = pa.array([7, 8, 7, None])
    assert column_bitmaps(matcher, MOVIE, [titles, numbers]) == [0b11, 0, 0b10, 0b01]
    large = titles.cast(pa.string()).cast(pa.large_string())
    assert column_bitmaps(matcher, MOVIE, [large, numbers]) == [0b11, 0, 0b10, 0b01]


def test_bitmaps_with_eight_slots_are_int16() -> None:
    matcher = Matcher(parse_query("a1 a2 a3 a4 a5 a6 a7 a8 -a9", SCHEMA), SCHEMA)
    (matches,) = matcher.bitmaps_of(
        [RowBlock(ACTOR, [(1, "a8"), (2, "a1 a2 a3 a4 a5 a6 a7 a8"), (3, "a1 a9")])]
    )
    assert matches.dtype == np.int16
    assert matches.tolist() == [0x80, 0xFF, EXCLUDED]


def test_relation_names_match_keywords_only_if_requested() -> None:
    for match_names, expected in ((False, 0), (True, 0b01)):
        matcher = Matcher(parse_query("actors travolta", SCHEMA, match_names=match_names), SCHEMA)
        assert matcher.bitmap(ACTOR, (1, None)) == expected
        assert column_bitmaps(matcher, ACTOR, [pa.nulls(2, pa.string())]) == [expected] * 2
        assert matcher.bitmap(DIRECTOR, (1, None)) == 0


@pytest.mark.parametrize(
    "keyword", ["box", "office", "total", "BoxOffice", "boxofficetotal", '"office total"', "off*"]
)
def test_relation_names_are_matched_whole_and_by_part(keyword: str) -> None:
    matcher = Matcher(parse_query(keyword, SCHEMA, match_names=True), SCHEMA)
    assert matcher.bitmap(TOTAL, (None,)) == 1
    assert matcher.searchable(TOTAL) == 1


def test_attribute_names_match_unless_searched_or_keys() -> None:
    """Searched attributes, keys and references do not match by name, since every row has them."""
    schema = parse_schema("""\
relations:
  country: {attributes: {code: string, name: text, infantMortality: number}, key: [code]}
  economy: {attributes: {country: string, gdp: number}}
joins: [economy.country = country.code]
""")
    matcher = Matcher(parse_query("code name mortality country gdp", schema, match_names=True), schema)
    assert matcher.names == (0b01100, 0b10000)
    assert matcher.bitmap(1, ("D", None)) == 0b10000


def test_a_name_is_neither_scoped_nor_excluded() -> None:
    matcher = Matcher(parse_query("actor:actor pulp -actor", SCHEMA, match_names=True), SCHEMA)
    assert matcher.bitmap(ACTOR, (1, "Pulp")) == 0b10
    assert matcher.bitmap(ACTOR, (1, "Actor")) == EXCLUDED


def test_relations_without_search_columns_match_only_by_name() -> None:
    matcher = Matcher(parse_query("plays pulp", SCHEMA, match_names=True), SCHEMA)
    (matches,) = matcher.bitmaps_of([RowBlock(PLAYS, [(1, None)] * 3)])
    assert matches.tolist() == [0b01] * 3


def test_searchable_contains_the_slots_that_a_relation_can_match() -> None:
    matcher = Matcher(parse_query("pulp actor:travolta movie.plot:gun name:quentin -x", SCHEMA), SCHEMA)
    assert [matcher.searchable(relation) for relation in range(5)] == [0b1001, 0b0101, 0, 0b1011, 0b0001]


def test_a_matcher_pickles_as_its_query() -> None:
    matcher = Matcher(parse_query('pulp "pulp fiction" -trav*', SCHEMA), SCHEMA)
    matcher.bitmap(MOVIE, (1, "pulp", "fiction", None))
    copy = pickle.loads(pickle.dumps(matcher))
    assert copy.query == matcher.query
    assert copy.bitmap(MOVIE, (1, "Pulp Fiction", None, None)) == 0b11


class Lengths(ChunkMemory[int]):
    def look_up(self, chunk: str) -> int:
        return len(chunk)


def test_a_full_chunk_memory_is_emptied() -> None:
    memory = Lengths(most=3)
    for number in (*range(20), *range(20)):
        assert memory["w" * number] == number
        assert len(memory) <= 3


def bitmaps(joint: JointMatcher, relation: int, block_rows: list[Row]) -> dict[tuple[int, int], int]:
    matches = joint.bitmaps(RowBlock(relation, block_rows), np.arange(len(block_rows)))
    entries = list(zip(matches.tuple.tolist(), matches.query.tolist(), matches.bitmap.tolist(), strict=True))
    assert entries == sorted(entries)
    return {(row, query): bitmap for row, query, bitmap in entries}


@given(
    st.lists(st.tuples(queries(), st.booleans()), max_size=6),
    st.lists(st.tuples(st.integers(0, len(SCHEMA.relations) - 1), rows()), max_size=6),
    st.sets(st.integers(0, 5)),
)
@example(
    [("pulp", False), ("pulp OR trav*", False), ("actor fiction", True), ("pulp -fiction", False)],
    [
        (MOVIE, (1, "Pulp Fiction", "pulp", None)),
        (ACTOR, (1, "Travolta", None, None)),
        (MOVIE, (2, "Pulp", None, "x")),
    ],
    {0},
)
@example([("actor fiction", True), ("movie", True)], [(ACTOR, (1, "Travolta", None, None))], {0})
@examples(100)
def test_joint_bitmaps_equal_those_of_single_queries(
    query_texts: list[tuple[str, bool]], relation_rows: list[tuple[int, Row]], removed: set[int]
) -> None:
    joint, matchers = JointMatcher(SCHEMA), {}
    for number, (text, match_names) in enumerate(query_texts):
        try:
            matchers[number] = Matcher(parse_query(text, SCHEMA, match_names=match_names), SCHEMA)
        except QueryError:
            continue
        joint.add(number, matchers[number])
    for number in sorted(removed & matchers.keys()):
        joint.remove(number)
        del matchers[number]
    for relation, schema_relation in enumerate(SCHEMA.relations):
        width = len(schema_relation.attributes)
        rows_of_relation = [row[:width] for number, row in relation_rows if number == relation]
        expected = {
            (row_number, number): matcher.bitmap(relation, row)
            for row_number, row in enumerate(rows_of_relation)
            for number, matcher in matchers.items()
            if matcher.bitmap(relation, row)
        }
        assert bitmaps(joint, relation, rows_of_relation) == expected


def test_a_query_is_removed_without_a_look_at_the_others() -> None:
    comparisons = 0

    class Number(int):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) == other

        __hash__ = int.__hash__

    joint, numbers = JointMatcher(SCHEMA), [Number(i) for i in range(100)]
    matcher = Matcher(parse_query("pulp OR pulp fiction", SCHEMA), SCHEMA)
    for number in numbers:
        joint.add(number, matcher)
    comparisons = 0
    for number in reversed(numbers):
        joint.remove(number)
    assert comparisons <= 2 * len(numbers)


@pytest.mark.parametrize("text", ["pulp fiction", '"pulp fiction" trav*', "travlota~2 p?lp !actor.aid:1"])
def test_a_removed_query_is_no_longer_matched(text: str) -> None:
    joint = JointMatcher(SCHEMA)
    for number in (3, 7):
        joint.add(number, Matcher(parse_query(text, SCHEMA), SCHEMA))
    block = RowBlock(ACTOR, [(1, "Pulp Fiction with Travolta")])
    assert joint.bitmaps(block, np.arange(len(block))).query.tolist() == [3, 7]
    joint.remove(3)
    assert joint.bitmaps(block, np.arange(len(block))).query.tolist() == [7]
    joint.remove(7)
    assert not len(joint.bitmaps(block, np.arange(len(block))).query)
