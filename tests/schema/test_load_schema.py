from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import Problem, SchemaError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_schema.yaml.load import load_schema, parse_schema, warnings
from tests.strategies import examples

CONTRACT = """\
version: 1
name: movies
window: 20 minutes            # a duration
relations:
  director:
    attributes: {did: integer, name: text}
    key: [did]
  movie:
    attributes: {mid: integer, title: text, did: integer, released: timestamp, rating: number}
    search: [title]
    time: released
  plays:
    attributes: {mid: integer, aid: integer, role: text}
    table: true
  employee:
    attributes: {id: integer, boss: integer, rating: {type: integer, min: 0, max: 10}}
    finite: true
joins:
  - director.did = movie.did
  - {name: cast_of, on: [movie.mid = plays.mid]}
  - {on: [plays.mid=movie.mid, "movie.did   = plays.aid"]}
  - employee.boss = employee.id
"""


def attributes(**types: str) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, AttributeType(kind)) for name, kind in types.items())


def test_the_whole_format() -> None:
    movie = attributes(mid="integer", title="text", did="integer", released="timestamp", rating="number")
    rating = Attribute("rating", AttributeType.INTEGER, 0, 10)
    assert parse_schema(CONTRACT) == Schema(
        name="movies",
        window="20 minutes",
        relations=(
            Relation("director", attributes(did="integer", name="text"), key=("did",), search=("name",)),
            Relation("movie", movie, search=("title",), time="released"),
            Relation(
                "plays", attributes(mid="integer", aid="integer", role="text"), search=("role",), table=True
            ),
            Relation("employee", (*attributes(id="integer", boss="integer"), rating), finite=True),
        ),
        joins=(
            Join("director.did = movie.did", "director", "movie", (("did", "did"),)),
            Join("cast_of", "movie", "plays", (("mid", "mid"),)),
            Join(
                "plays.mid = movie.mid and movie.did = plays.aid",
                "plays",
                "movie",
                (("mid", "mid"), ("aid", "did")),
            ),
            Join("employee.boss = employee.id", "employee", "employee", (("boss", "id"),)),
        ),
    )


def relation(body: str) -> Relation:
    return parse_schema(f"relations:\n  r: {body}\n").relations[0]


def test_search_is_every_text_unless_said() -> None:
    body = "{attributes: {a: text, b: string, c: text}"
    assert relation(body + "}").search == ("a", "c")
    assert relation(body + ", search: [c]}").search == ("c",)
    assert relation(body + ", search: []}").search == ()


def test_names_that_yaml_1_1_takes_for_values() -> None:
    schema = parse_schema(
        """
relations:
  no: {attributes: {on: integer, y: text, off: string, null: integer, 1: integer, true: text}}
  yes: {attributes: {n: integer}, key: [n]}
joins:
  - no.on = yes.n
"""
    )
    assert [r.name for r in schema.relations] == ["no", "yes"]
    assert [a.name for a in schema.relations[0].attributes] == ["on", "y", "off", "null", "1", "true"]
    assert schema.relations[0].search == ("y", "true")


@pytest.mark.parametrize("window", ["1:30", "2026-01-01", "0x10", "1_000 tuples", "off", "20 minutes"])
def test_windows_stay_text(window: str) -> None:
    assert parse_schema(f"window: {window}\nrelations:\n  r: {{attributes: {{a: text}}}}").window == window


def test_anchors_may_repeat_attributes() -> None:
    schema = parse_schema(
        "relations:\n  a: {attributes: &both {x: integer, t: text}}\n  b: {attributes: *both}\n"
    )
    assert schema.relations[0].attributes == schema.relations[1].attributes


def test_bounds_of_timestamps_are_microseconds() -> None:
    first, second = relation(
        "{attributes: {a: {type: timestamp, min: 2026-01-01, max: 2026-01-01T01:00:00.5+01:00},"
        " b: {type: timestamp, min: 0.25}}}"
    ).attributes
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    assert (first.min, first.max) == (start, start + 500_000)
    assert (second.min, second.max) == (250_000, None)


@pytest.mark.parametrize(("left", "right"), [("s", "t"), ("i", "n"), ("w", "w"), ("b", "b")])
def test_types_that_join(left: str, right: str) -> None:
    types = "{attributes: {s: string, t: text, i: integer, n: number, w: timestamp, b: boolean}}"
    schema = parse_schema(f"relations:\n  p: {types}\n  q: {types}\njoins: [p.{left} = q.{right}]")
    assert schema.joins[0].on == ((left, right),)


def test_self_joins_keep_the_sides_as_written() -> None:
    schema = parse_schema(
        "relations:\n  e: {attributes: {a: integer, b: integer, c: integer, d: integer}}\n"
        "joins:\n  - {on: [e.a = e.b, e.d = e.c]}\n  - e.b = e.c\n"
    )
    assert [join.on for join in schema.joins] == [(("a", "b"), ("d", "c")), (("b", "c"),)]


def test_the_model_refuses_bounds_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="type text has no min or max"):
        Attribute("t", AttributeType.TEXT, min=0)
    with pytest.raises(ValueError, match="min exceeds max"):
        Attribute("i", AttributeType.INTEGER, 2, 1)


def test_joins_may_be_empty_or_left_out() -> None:
    body = "relations:\n  r: {attributes: {a: text}}\n"
    assert parse_schema(body) == parse_schema(body + "joins:\n") == parse_schema(body + "joins: []\n")


def test_default_name_is_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "cinema.yaml"
    path.write_bytes(b"\xef\xbb\xbfrelations:\r\n  r: {attributes: {a: text}}\r\n")
    assert load_schema(path).name == "cinema"
    assert load_schema(path).window == "none"


def test_warnings() -> None:
    schema = parse_schema(CONTRACT + "  - {name: peers, on: employee.boss = employee.boss}\n")
    assert warnings(schema) == ["join 'peers' is the same from both sides: each pair of tuples joins twice"]
    lonely = parse_schema("relations:\n  a: {attributes: {t: text}}\n  b: {attributes: {t: text}}\n")
    assert [w.split(":")[0] for w in warnings(lonely)] == [
        "relation 'a' has no join",
        "relation 'b' has no join",
    ]
    assert warnings(relation_alone()) == []


def relation_alone() -> Schema:
    return parse_schema("relations:\n  a: {attributes: {t: text}}\n")


def problems_of(text: str) -> tuple[Problem, ...]:
    """None for a schema; any error but a SchemaError with problems is a failure of the test."""
    try:
        parse_schema(text)
    except SchemaError as error:
        return error.problems or pytest.fail("an error without problems")
    return ()


def only_schema_errors(text: str) -> None:
    lines = 1 + sum(text.count(c) for c in "\n\r\x85\u2028\u2029")
    for problem in problems_of(text):
        assert 1 <= problem.line <= lines + 1
        assert problem.column >= 1
        assert problem.message


@pytest.mark.parametrize("text", ["\ud800", "? ? ? a", "a: !!int x"])
def test_odd_text_is_a_schema_error(text: str) -> None:
    only_schema_errors(text)


KEYS = "relations joins attributes a key search time type min max on name window"
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "a.x = a.x", "text", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS.split()),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@examples(300)
@given(st.fixed_dictionaries({"relations": st.dictionaries(st.just("a"), PLAIN) | PLAIN, "joins": PLAIN}))
def test_any_shape_of_data_is_a_schema_or_a_schema_error(data: object) -> None:
    only_schema_errors(as_flow(data))


def as_flow(data: object) -> str:
    """Plain data as YAML in flow style, without help of a YAML library."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{key}: {as_flow(value)}" for key, value in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(as_flow, data)) + "]"
    if data is None or isinstance(data, bool):
        return str(data).lower().replace("none", "null")
    return repr(data)
