"""Random input: seeds, and Hypothesis strategies for schemas and streams small enough for brute force."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from skws.data.batch import Record
from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Row, Schema

WORDS = ("alpha", "beta", "gamma")
COLUMNS = (
    Attribute("t", AttributeType.TEXT),
    Attribute("x", AttributeType.INTEGER),
    Attribute("y", AttributeType.INTEGER),
)
JOINABLE = ("x", "y")

THOROUGH = "SKWS_THOROUGH" in os.environ


def runs(number: int) -> range:
    """The seeds of that many runs; a third of them unless the tests are thorough."""
    return range(number if THOROUGH else -(-number // 3))


def examples(number: int, **more: Any) -> settings:
    """The number of examples of a property test; unless thorough, a twentieth plus three, at most a fifth."""
    return settings(max_examples=number if THOROUGH else min(-(-number // 5), 3 + number // 20), **more)


def length(few: int, many: int) -> int:
    """The length of a random stream: ``many`` if the tests are thorough."""
    return many if THOROUGH else few


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Runs a test with ``few`` seeds, and as a slow test with the others of ``many``."""
    return some("seed", range(few), range(few, many))


def some(names: str, few: Sequence[Any], others: Sequence[Any], **more: Any) -> pytest.MarkDecorator:
    """Runs a test with a few cases of values for ``names``, and as a slow test with the others."""
    slow = [pytest.param(*(case if "," in names else (case,)), marks=pytest.mark.slow) for case in others]
    return pytest.mark.parametrize(names, [*few, *slow], **more)


def combinations(names: str, *axes: Sequence[Any], every: int = 2, **more: Any) -> pytest.MarkDecorator:
    """Runs a test with all combinations of values for ``names``; only every ``every``-th is not slow.

    Each value is still combined with every ``every``-th of another axis.
    """
    index_tuples = product(*(range(len(axis)) for axis in axes))
    return pytest.mark.parametrize(
        names.split(", "),
        [
            pytest.param(
                *values,
                id="-".join(value_name(value) for value in values),
                marks=pytest.mark.slow if sum(index_tuple) % every else (),
            )
            for index_tuple, values in zip(index_tuples, product(*axes), strict=True)
        ],
        **more,
    )


def value_name(value: Any) -> str:
    """The name of a value, if it has one; the address of a function would differ between processes."""
    return str(getattr(value, "name", None) or getattr(value, "__name__", value))


@st.composite
def schemas(draw: st.DrawFn, max_relations: int = 3, keys: bool = True, tables: bool = False) -> Schema:
    """Schemas with self-joins, parallel joins, composite joins, cycles, keys and relations without text."""
    count = draw(st.integers(1, max_relations))
    relations = []
    for i in range(count):
        is_searched = draw(st.sampled_from([True, True, True, False]))
        relations.append(
            Relation(
                f"r{i}",
                COLUMNS,
                key=draw(st.sampled_from([(), (), ("x",), ("x", "y")])) if keys else (),
                search=("t",) if is_searched else (),
                table=draw(st.sampled_from([False, False, True])) if tables else False,
            )
        )
    names = st.sampled_from([r.name for r in relations])
    pair = st.tuples(st.sampled_from(JOINABLE), st.sampled_from(JOINABLE))
    joins = []
    for j in range(draw(st.integers(0, 4))):
        columns = tuple(draw(st.lists(pair, min_size=1, max_size=2, unique=True)))
        joins.append(Join(f"j{j}", draw(names), draw(names), columns))
    return Schema("random", tuple(relations), tuple(joins))


SYNONYMS = (("alpha", "delta"), ("gamma", "alpha pad"), ("omega", "beta"))


@st.composite
def worded(draw: st.DrawFn, schema: Schema) -> Schema:
    """The schema with an analyzer for the text of each relation, and maybe synonyms."""
    analyzers = st.sampled_from([Analyzer.ENGLISH, Analyzer.SIMPLE, Analyzer.GERMAN, Analyzer.NONE])
    relations = tuple(
        replace(relation, attributes=(replace(COLUMNS[0], analyzer=draw(analyzers)), *COLUMNS[1:]))
        for relation in schema.relations
    )
    return replace(schema, relations=relations, synonyms=draw(st.sampled_from([(), SYNONYMS])))


def rows(words: int) -> st.SearchStrategy[Row]:
    """Rows of (text, x, y); texts contain any of the first ``words`` keywords, values are sometimes NULL."""
    text = st.lists(st.sampled_from(WORDS[:words]), max_size=2, unique=True).map(
        lambda w: " ".join([*w, "pad"])
    )
    value = st.one_of(st.integers(0, 1), st.integers(0, 2), st.none())
    return st.tuples(text, value, value)


@st.composite
def streams(
    draw: st.DrawFn, schema: Schema, words: int, max_records: int = 14, min_records: int = 0
) -> list[Record]:
    """Records in order of time with ties, deletions of known and unknown rows, and equal rows."""
    stream_relations = [i for i, r in enumerate(schema.relations) if not r.table]
    records: list[Record] = []
    time = 0
    for _ in range(draw(st.integers(min_records, max_records)) if stream_relations else 0):
        time += draw(st.sampled_from([0, 0, 1, 1, 2, 7]))
        inserted = [r for r in records if not r.delete]
        if inserted and draw(st.integers(0, 3)) == 0:
            repeated = draw(st.sampled_from(inserted))
            records.append(repeated._replace(time=time, delete=draw(st.booleans())))
        else:
            delete = draw(st.integers(0, 9)) == 0
            records.append(Record(draw(st.sampled_from(stream_relations)), time, draw(rows(words)), delete))
    return records


@st.composite
def static_rows(draw: st.DrawFn, schema: Schema, words: int, max_rows: int = 4) -> list[Record]:
    tables = [i for i, r in enumerate(schema.relations) if r.table]
    if not tables:
        return []
    relation_row = st.tuples(st.sampled_from(tables), rows(words))
    return [Record(r, 0, row) for r, row in draw(st.lists(relation_row, max_size=max_rows))]


Case: TypeAlias = tuple[Schema, int, list[Record], list[Record]]


@st.composite
def cases(draw: st.DrawFn, max_records: int = 14) -> Case:
    """A schema, the number of words in its tuples, rows of its tables, and a stream."""
    schema, words = draw(schemas(tables=True)), draw(st.integers(1, 3))
    return schema, words, draw(static_rows(schema, words)), draw(streams(schema, words, max_records))


_KEYWORDS = (
    "alpha",
    "beta",
    "gamma",
    "alhpa~",
    "gama~",
    "batta~2",
    "b*a",
    "al*",
    "g?mma",
    '"alpha pad"',
    "omega",
    '"delta"',
)
_ALTERNATIONS = ("(alpha OR betta~)", "(gamma OR be*)", "(alpha OR !r0.x=1)", "(g*mma OR !r1.y<1 OR beta)")
_SCOPED = ("r0:alpha", "t:beta", "r1.t:be?a", "r0:gamm~")
_KEYWORD_CONDITIONS = ("!r0.x=1", "!r1.y<2", "!r0.y:1..", "!r1.x!=0", "!r0.x:(0 OR 2)")
_RESTRICTIONS = ("r0.x<2", "r1.y!=0", "r0.x:1..", "(r0.x=0 OR r0.y=1)", "r0.t<b", "r1.t!=pad", "r1.x>=1")
_EXCLUSIONS = ("-gamma", "-omega", "-r0.x>1", "-al?ha", "-(r0:beta OR r1.y=0)", "-gamam~")


@st.composite
def query_texts(draw: st.DrawFn, words: int = 2) -> str:
    """Queries with all features of the language over ``schemas`` of at least two relations; some are invalid.

    They have at most ``words`` keywords, and conditions and exclusions.
    """
    keyword = st.sampled_from((*_KEYWORDS, *_KEYWORDS, *_ALTERNATIONS, *_SCOPED, *_KEYWORD_CONDITIONS))
    condition = st.sampled_from((*_RESTRICTIONS, *_EXCLUSIONS))
    parts = [*draw(st.lists(keyword, min_size=1, max_size=words)), *draw(st.lists(condition, max_size=2))]
    return " ".join(draw(st.permutations(parts)))
