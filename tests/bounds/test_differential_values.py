"""Synopses agree with naive evaluation on texts, fractions, booleans and NULL, and on tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import event, given
from hypothesis import strategies as st

from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from tests.bounds.bounds_queries import SECOND, Step, in_synopses, naively, sql
from tests.strategies import examples


def _typed(name: str, *, table: bool = False) -> Relation:
    attributes = (
        Attribute("k", AttributeType.INTEGER, None if table else 0, None if table else 3),
        Attribute("x", AttributeType.TEXT),
        Attribute("n", AttributeType.NUMBER),
        Attribute("b", AttributeType.BOOLEAN),
    )
    times = () if table else (Attribute("at", AttributeType.TIMESTAMP),)
    return Relation(name, (*attributes, *times), time=None if table else "at", table=table)


SCHEMA = Schema("typed", (_typed("p"), _typed("q"), _typed("r", table=True)), ())
_VALUES = st.tuples(
    st.sampled_from([0, 1, 2, 3, None]),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([0.5, 1.0, 1.5, 7.25, None]),
    st.sampled_from([True, False, None]),
)
_CONSTANTS = {"k": ["2", "1.5", "0"], "x": ["'b'"], "n": ["1.25", "1", "3"], "b": ["TRUE"]}
_LIKE = {"k": "kn", "n": "nk", "x": "x", "b": "b"}
"""What each column is compared with: integers and fractions with each other."""


@st.composite
def typed_queries(draw: st.DrawFn) -> str:
    """SQL over two streams and a table, with comparisons of every type."""
    names = draw(st.sampled_from([["p"], ["p", "q"], ["p", "r"], ["p", "q", "r"]]))
    conditions = []
    if "q" in names:
        conditions += draw(st.sampled_from([[], ["p.at > q.at"], ["p.at >= q.at"], ["p.at <> q.at"]]))
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.sampled_from("kxnb"))
        op = draw(st.sampled_from(["=", "<>"] if column in "xb" else ["=", "<>", "<", ">", "<=", ">="]))
        one, other = draw(st.permutations([*names, ""]))[:2]
        beside = draw(st.sampled_from(_LIKE[column]))
        if one:
            constant = draw(st.sampled_from(_CONSTANTS[column]))
            conditions.append(f"{one}.{column} {op} {f'{other}.{beside}' if other else constant}")
    columns = [f"{name}.{column}" for name in names for column in "kxnb"]
    output = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT {draw(st.sampled_from(['', 'DISTINCT ']))}{', '.join(output)} FROM {', '.join(names)}{where}"
    )


@st.composite
def typed_steps(draw: st.DrawFn) -> list[Step]:
    made: list[Step] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        time = number * SECOND
        rows: dict[str, Sequence[Row]] = {
            name: [(*values, time) for values in draw(st.lists(_VALUES, max_size=3))] for name in "pq"
        }
        made.append((time, rows))
    return made


@examples(150)
@given(typed_queries(), typed_steps(), st.fixed_dictionaries({"r": st.lists(_VALUES, max_size=3)}))
def test_every_type_of_value(text: str, arrivals: list[Step], known: Mapping[str, Sequence[Row]]) -> None:
    union = sql(text, SCHEMA)
    verdict = check(union)
    try:
        shown = in_synopses(union, SCHEMA, arrivals, known)
    except UsageError:
        assert verdict.bounded is not True
        return
    event(f"{verdict.projection}: run")
    assert shown == naively(union, SCHEMA, arrivals, known)
