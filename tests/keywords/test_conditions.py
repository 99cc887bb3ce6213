"""Conditions: their syntax for values of every type, and their effect on tuples."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.blocks import RowBlock
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from skws_schema.evolution import SchemaChange
from skws_schema.model import COMPARED, Attribute, AttributeType, Relation, Schema, Value
from tests.strategies import examples

KINDS: Final = ("text", "string", "integer", "number", "boolean", "timestamp")
SCHEMA = Schema(
    "values",
    (
        Relation("r", tuple(Attribute(kind[:3], AttributeType(kind)) for kind in KINDS), search=("tex",)),
        Relation("other", (Attribute("say", AttributeType.TEXT),), search=("say",)),
    ),
    (),
)
COLUMNS = {kind[:3]: number for number, kind in enumerate(KINDS)}


def micros(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


def labels(query: str, name: str, value: Value) -> tuple[int, int]:
    """The bitmap of a tuple with the value and no words, by row and by block."""
    matcher = Matcher(parse_query(query, SCHEMA), SCHEMA)
    row = tuple(value if number == COLUMNS[name] else None for number in range(len(KINDS)))
    (by_block,) = matcher.bitmaps_of([RowBlock(0, [row])])
    return matcher.bitmap(0, row), int(by_block[0])


@pytest.mark.check
@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("int<5", 4, True),
        ("int<5", 5, False),
        ("int<=5", 5, True),
        ("int>4.5", 5, True),
        ("int>=4.5", 4, False),
        ("int<4.5", 4, True),
        ("int<=4.5", 5, False),
        ("int=1e3", 1000, True),
        ("int:5", 5, True),
        ("int!=5", 5, False),
        ("int!=5", 4, True),
        ("int!=5", None, False),
        ("int<5", None, False),
        ("int:3..5", 3, True),
        ("int:3..5", 5, True),
        ("int:3..5", 6, False),
        ("int:..5", -9, True),
        ("int:3..", 2, False),
        ("int:-5..-3", -4, True),
        ("int=9223372036854775807", 2**63 - 1, True),
        ("int<9007199254740993", 2**53, True),
        ("int>9007199254740992", 2**53 + 1, True),
        ("int>9007199254740992", 2**53, False),
        ("num<0.5", 0.25, True),
        ("num=.5", 0.5, True),
        ("num:1e-3..1", 0.001, True),
        ("boo:true", True, True),
        ("boo=yes", False, False),
        ("boo!=true", False, True),
        ("boo!=true", None, False),
        ("str:ca9", "ca9", True),
        ("str:ca9", "CA9", False),
        ('str="9th Circuit"', "9th Circuit", True),
        ('str:"9th Circuit"', "9th Circuit", True),
        ("str<b", "abc", True),
        ('str:"a b".."c d"', "b", True),
        ('tex="Pulp Fiction"', "Pulp Fiction", True),
        ("tex=pulp", "Pulp", False),
        ("tim=2024-01-31", micros("2024-01-31T13:00"), True),
        ("tim=2024-01-31", micros("2024-02-01T00:00"), False),
        ("tim!=2024-01-31", micros("2024-01-31T23:59:59.999999"), False),
        ("tim<=2024-01-31", micros("2024-01-31T23:59:59"), True),
        ("tim>2024-01-31", micros("2024-01-31T23:59:59"), False),
        ("tim>2024-01-31", micros("2024-02-01T00:00"), True),
        ("tim<2024-01-31", micros("2024-01-30T23:59:59"), True),
        ("tim>=2024-01-31", micros("2024-01-31T00:00"), True),
        ("tim:2024-01-01..2024-01-31", micros("2024-01-31T23:59"), True),
        ("tim:2024-01-01..2024-01-31", micros("2024-02-01T00:00"), False),
        ("tim>2024-01-31T12:00:00", micros("2024-01-31T12:00:01"), True),
        ("tim>2024-01-31T12:00:00+02:00", micros("2024-01-31T10:00:01"), True),
        ('tim:"2024-01-31T12:00"', micros("2024-01-31T12:00"), True),
        ("tim:2024-01-31T12:00..2024-01-31T13:00", micros("2024-01-31T12:30"), True),
        ("tim=0", 0, True),
        ("r.int<5", 1, True),
    ],
)
def test_a_condition_labels_or_excludes_a_value(condition: str, value: Value, holds: bool) -> None:
    name = condition.removeprefix("r.")[:3]
    assert labels(f"word !{condition}", name, value) == (2 * holds,) * 2
    assert labels(f"!{condition} word", name, value) == (1 * holds,) * 2
    assert labels(f"word {condition}", name, value) == (0 if holds else EXCLUDED,) * 2
    assert labels(f"word -{condition}", name, value) == (EXCLUDED if holds else 0,) * 2
    # Other relations are not affected.
    matcher = Matcher(parse_query(f"word {condition}", SCHEMA), SCHEMA)
    assert matcher.bitmap(1, ("a word",)) == 1
    assert [matcher.searchable(relation) for relation in (0, 1)] == [1, 1]


@examples(200)
@given(
    st.sampled_from(["<", "<=", "=", "!=", ">=", ">"]),
    st.floats(-20, 20, allow_nan=False).map(lambda number: round(number, 2)),
    st.one_of(st.integers(-20, 20), st.none()),
)
def test_fractions_are_compared_numerically_with_integers(sign: str, bound: float, value: int | None) -> None:
    try:
        bitmaps = labels(f"word !int{sign}{bound:.2f}", "int", value)
    except QueryError:
        assert sign in {"=", "!="}
        assert not bound.is_integer()
        return
    assert bitmaps == (2 * (value is not None and COMPARED[sign](value, bound)),) * 2


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("int<9007199254740992.5", 9007199254740992, True),
        ("int<=9007199254740993.5", 9007199254740993, True),
        ("int>9007199254740993.5", 9007199254740993, False),
        ("int>=9007199254740993.5", 9007199254740994, True),
        ("int=9007199254740993.0", 9007199254740993, True),
        ("int=9.007199254740993e15", 9007199254740992, False),
        ("int<=9.223372036854775807e18", 2**63 - 1, True),
    ],
)
def test_fractions_beyond_the_integers_of_doubles_are_exact(condition: str, value: int, holds: bool) -> None:
    assert labels(f"word !{condition}", "int", value) == (2 * holds,) * 2


def test_a_number_beyond_64_bits_is_refused_as_it_was_typed() -> None:
    with pytest.raises(QueryError, match=r"expected an integer of 64 bits, got '1e30'"):
        parse_query("word int<1e30", SCHEMA)
    with pytest.raises(QueryError, match=r"expected .*integer.*, got '1e-99999999999999999999'"):
        parse_query("word int<1e-99999999999999999999", SCHEMA)


def test_a_bare_name_may_become_ambiguous_when_the_schema_changes() -> None:
    added_relation = Relation(
        "more", (Attribute("int", AttributeType.INTEGER), Attribute("t", AttributeType.TEXT))
    )
    larger_schema = SchemaChange.between(
        SCHEMA, Schema("values", (*SCHEMA.relations, added_relation), ())
    ).after
    with pytest.raises(QueryError, match=r"'int' is in 2 relations; write one of r\.int, more\.int"):
        parse_query("word int<5", larger_schema)
    assert parse_query("word r.int<5", larger_schema).restrictions == ("r.int<5",)
    restored_schema = SchemaChange.between(larger_schema, SCHEMA).after
    assert parse_query("word int<5", restored_schema).restrictions == ("int<5",)
