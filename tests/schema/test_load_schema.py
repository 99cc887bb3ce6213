"""Valid schemas, warnings about them, and malformed texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import Problem, SchemaError
from skws_schema.model import Attribute, AttributeType
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import load_schema, parse_schema, warnings
from tests.strategies import examples


@pytest.mark.parametrize("window", ["1:30", "2026-01-01", "0x10", "1_000 tuples", "off", "20 minutes"])
def test_a_window_is_loaded_as_text(window: str) -> None:
    assert parse_schema(f"window: {window}\nrelations:\n  r: {{attributes: {{a: text}}}}").window == window


def test_the_model_rejects_invalid_bounds() -> None:
    with pytest.raises(ValueError, match="type text has no min or max"):
        Attribute("t", AttributeType.TEXT, min=0)
    with pytest.raises(ValueError, match="min exceeds max"):
        Attribute("i", AttributeType.INTEGER, 2, 1)


def test_joins_may_be_empty_or_omitted() -> None:
    body = "relations:\n  r: {attributes: {a: text}}\n"
    assert parse_schema(body) == parse_schema(body + "joins:\n") == parse_schema(body + "joins: []\n")


def test_the_default_name_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cinema.yaml"
    path.write_bytes(b"\xef\xbb\xbfrelations:\r\n  r: {attributes: {a: text}}\r\n")
    assert load_schema(path).name == "cinema"
    assert load_schema(path).window == "none"


def test_self_joins_and_missing_joins_are_warnings() -> None:
    schema = parse_schema(
        "relations:\n  e: {attributes: {boss: integer}}\njoins:\n  - {name: peers, on: e.boss = e.boss}\n"
    )
    assert warnings(schema) == ["join 'peers' is the same from both sides: each pair of tuples joins twice"]
    unjoined = parse_schema("relations:\n  a: {attributes: {t: text}}\n  b: {attributes: {t: text}}\n")
    assert [w.split(":")[0] for w in warnings(unjoined)] == [
        "relation 'a' has no join",
        "relation 'b' has no join",
    ]
    assert warnings(parse_schema("relations:\n  a: {attributes: {t: text}}\n")) == []


REST = "relations:\n  a: {attributes: {t: text}}\n"
GROUPS = (("car", "automobile", "motor car"), ("c#", "csharp"))


def test_synonyms_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: words/synonyms.txt\n{REST}")
    (tmp_path / "words").mkdir()
    lines = "\ufeff# vehicles\n\ncar,  automobile , motor   car, car # all the same\nc#, csharp\n"
    (tmp_path / "words" / "synonyms.txt").write_text(lines)
    schema = load_schema(tmp_path / "s.yaml")
    assert schema.synonyms == GROUPS
    # Other processes read the schema's text where the file may not exist.
    assert parse_schema(to_yaml(schema), default_name="s") == schema


def test_synonyms_may_be_in_the_schema() -> None:
    assert parse_schema(f"synonyms: ['car, automobile, motor car', 'c#, csharp']\n{REST}").synonyms == GROUPS
    assert parse_schema(f"synonyms: []\n{REST}").synonyms == ()


def test_all_errors_in_the_synonyms_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: w.txt\n{REST}")
    with pytest.raises(SchemaError, match=r"w.txt cannot be read: No such file"):
        load_schema(tmp_path / "s.yaml")
    (tmp_path / "w.txt").write_text("car, bus\ncar\n# x\na,,b\n")
    with pytest.raises(SchemaError) as error:
        load_schema(tmp_path / "s.yaml")
    assert "w.txt, line 2: expected at least two words" in str(error.value)
    assert "w.txt, line 4: expected a word between commas" in str(error.value)
    (tmp_path / "w.txt").write_bytes(b"car, \xff\n")
    with pytest.raises(SchemaError, match="save the file as UTF-8"):
        load_schema(tmp_path / "s.yaml")


def problems_of(text: str) -> tuple[Problem, ...]:
    """None for a schema; any error except a SchemaError with problems fails the test."""
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
def test_malformed_text_is_a_schema_error(text: str) -> None:
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
def test_any_data_is_a_schema_or_a_schema_error(data: object) -> None:
    only_schema_errors(as_flow(data))


def as_flow(data: object) -> str:
    """Plain data as YAML in flow style, written without a YAML library."""
    if isinstance(data, dict):
        return "{" + ", ".join(f"{key}: {as_flow(value)}" for key, value in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(map(as_flow, data)) + "]"
    if data is None or isinstance(data, bool):
        return str(data).lower().replace("none", "null")
    return repr(data)
