"""Files and texts that are not schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws_schema.errors import SchemaError
from skws_schema.yaml.load import load_schema, parse_schema

HEAD = "relations:\n  a: {attributes: {x: integer}}\n"
# Texts that golden scripts cannot contain; tests/scripts/errors has the others.
ODD = {
    "# x\n": ["1:1: empty; expected a mapping with 'relations' and 'joins'"],
    HEAD + "---\na: 1\n": ["3:1: a second document; expected one"],
    HEAD + "name: \x07\n": ["3:7: character U+0007 is not allowed in YAML"],
}


def errors_of(text: str) -> list[str]:
    with pytest.raises(SchemaError) as error:
        parse_schema(text, "s.yaml")
    assert error.value.exit_code == 3
    assert str(error.value) == "\n".join(map(str, error.value.problems))
    assert {p.source for p in error.value.problems} == {"s.yaml"}
    return [f"{p.line}:{p.column}: {p.message}" for p in error.value.problems]


@pytest.mark.parametrize(("text", "expected"), ODD.items())
def test_every_error_is_shown_with_its_position(text: str, expected: list[str]) -> None:
    assert errors_of(text) == expected


def test_billion_laughs_are_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert errors_of("\n".join(lines)) == ["1:1: anchors and aliases expand to more than 200000 values"]


def test_deeply_nested_aliases_are_rejected() -> None:
    """Each document node is shallow, but the aliases lead from one to the next."""
    lines = ["a0: &a0 [[[[[[[[[[x]]]]]]]]]]"]
    lines += [f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]" for n in range(1, 200)]
    (message,) = errors_of("\n".join(lines))
    assert message.endswith("anchors and aliases nest more than 40 deep")


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 5000, "{a: " * 5000])
def test_deep_nesting_is_rejected(text: str) -> None:
    assert len(errors_of(text)) == 1
    assert "nested more than 40 deep" in errors_of(text)[0]


def test_a_file_of_synonyms_needs_a_valid_path(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text('relations:\n  a: {attributes: {x: text}}\nsynonyms: "a\\0b"\n')
    with pytest.raises(SchemaError, match=r"s\.yaml:3:11: synonyms: .* cannot be read: embedded null"):
        load_schema(path)


def test_an_origin_must_be_a_text() -> None:
    expected = "2:13: a.from: expected the name of a table, or RELATION.PATH of an array, found the number 5"
    assert errors_of("relations:\n  a: {from: 5, attributes: {x: text}}\n") == [expected]


def test_a_relation_may_be_stored_under_the_name_of_another() -> None:
    text = "relations:\n  a: {from: b.rows, attributes: {x: text}}\n  b: {from: a, attributes: {x: text}}\n"
    assert [r.parent for r in parse_schema(text).relations] == ["b", None]


def test_a_number_with_too_many_digits_is_rejected() -> None:
    assert (
        errors_of(f"version: {'9' * 6000}\nrelations:\n  a: {{attributes: {{x: text}}}}\n")[0]
        == "1:10: a number too large"
    )


@pytest.mark.parametrize("bound", [".inf", "1e300", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"])
def test_a_bound_must_be_a_valid_calendar_time(bound: str) -> None:
    (message,) = errors_of(
        f"relations:\n  a: {{attributes: {{x: {{type: timestamp, max: {bound!r}}}}}}}\n".replace("'", "")
    )
    assert "expected a timestamp" in message


def test_a_window_is_checked_by_the_given_function() -> None:
    def check(text: str) -> str | None:
        return None if text == "1:30" else f"{text!r} is no duration"

    assert parse_schema(HEAD + "window: 1:30", check_window=check).window == "1:30"
    with pytest.raises(SchemaError, match=r"^<schema>:3:9: window: 'soon' is no duration$"):
        parse_schema(HEAD + "window: soon", check_window=check)


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(HEAD)
    with pytest.raises(SchemaError, match=r"no such file.*did you mean 'schema.yaml'") as error:
        load_schema(tmp_path / "shema.yaml")
    assert str(tmp_path / "shema.yaml") in str(error.value)
    assert error.value.exit_code == 3


def test_directories_and_other_unreadable_paths_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        load_schema(tmp_path)
    with pytest.raises(SchemaError, match="no such file"):
        load_schema(tmp_path / "none" / "s.yaml")


def test_a_file_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(HEAD.encode() + "name: é café".encode()[:-2] + b"\xe9\n")
    with pytest.raises(SchemaError) as error:
        load_schema(path)
    (problem,) = error.value.problems
    assert (problem.line, problem.column) == (3, 12)
    assert problem.message == "byte 0xE9 is not UTF-8; save the file as UTF-8"


def test_a_file_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (5 << 20))
    with pytest.raises(SchemaError, match="larger than 1 MiB"):
        load_schema(path)
