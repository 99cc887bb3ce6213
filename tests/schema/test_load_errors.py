"""Each kind of bad YAML with its message."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws_schema.errors import SchemaError
from skws_schema.model import Analyzer
from skws_schema.yaml.load import load_schema, parse_schema

HEAD = (
    "relations:\n  a: {attributes: {x: integer, t: text, s: string, w: timestamp, n: number, b: boolean}}\n"
)
JOINS = (
    HEAD
    + "  b: {attributes: {x: integer, t: text, s: string, w: timestamp, n: number, b: boolean}}\njoins:\n"
)
ANALYZERS = ", ".join(Analyzer)
TYPES = "text, string, integer, number, boolean, timestamp"
WINDOW = "expected a duration with its unit (20 minutes), a number of tuples (1000 tuples) or none"
NAME_RULE = "a name is made of letters, digits, '_' and '-', and does not start with '-'"
TIMESTAMP = "expected a timestamp (2026-01-31T12:00:00Z, or seconds since the epoch)"
CONDITION = "expected relation.attribute = relation.attribute"

GOLDEN = {
    "empty": ("", ["1:1: empty; expected a mapping with 'relations' and 'joins'"]),
    "only a comment": ("# x\n", ["1:1: empty; expected a mapping with 'relations' and 'joins'"]),
    "a list": ("- a\n", ["1:1: expected a mapping with 'relations' and 'joins', found a list"]),
    "a text": ("movies\n", ["1:1: expected a mapping with 'relations' and 'joins', found 'movies'"]),
    "no relations": ("version: 1\n", ["1:1: 'relations' is missing"]),
    "relations misspelt": ("relation: {}\n", ["1:1: unknown key 'relation'; did you mean 'relations'?"]),
    "relations empty": ("relations: {}\n", ["1:1: relations: expected at least one relation, found none"]),
    "relations a list": (
        "relations:\n  - a\n",
        ["2:3: relations: expected a mapping from names to relations, found a list"],
    ),
    "version": (
        HEAD + "version: 2\n",
        ["3:10: version: expected 1, the version of this format, found the number 2"],
    ),
    "name a number": (HEAD + "name: 7\n", ["3:7: name: expected a name (text), found the number 7"]),
    "window a number": (HEAD + "window: 20\n", [f"3:9: window: {WINDOW}, found the number 20"]),
    "window empty": (HEAD + "window:\n", [f"3:8: window: {WINDOW}, found nothing"]),
    "unclosed": (
        "relations: {a: [\n",
        ["2:1: expected the node content, but found '<stream end>' (while parsing a flow node at line 2)"],
    ),
    "tab": ("relations:\n\ta: 1\n", ["2:1: a tab cannot indent YAML; use spaces"]),
    "colon": ("a: b: c\n", ["1:5: mapping values are not allowed here"]),
    "undefined alias": ("a: *b\n", ["1:4: found undefined alias 'b'"]),
    "two documents": (
        HEAD + "---\na: 1\n",
        ["3:1: but found another document (expected a single document in the stream at line 1)"],
    ),
    "control character": (HEAD + "name: \x07\n", ["3:7: character U+0007 is not allowed in YAML"]),
    "tag": (
        HEAD + "name: !!python/object/apply:os.system [ls]\n",
        [
            "3:7: name: expected a name (text), found a list",
            "3:7: tag !!python/object/apply:os.system is not supported; leave it out",
        ],
    ),
    "duplicate relation": (
        HEAD + "  a: {attributes: {y: text}}\n",
        ["3:3: key 'a' is written twice; first in line 2"],
    ),
    "duplicate attribute": (
        "relations:\n  a: {attributes: {x: text, x: integer}}\n",
        ["2:29: key 'x' is written twice; first in line 2"],
    ),
    "complex key": (HEAD + "? [a]\n: b\n", ["3:3: a key must be a name, not a list or a mapping"]),
    "self-containing alias": (
        HEAD + "joins: &j [*j]\n",
        [
            "3:8: an alias that contains itself",
            "3:8: joins: expected a condition such as a.x = b.y, or a mapping with 'on', found nothing",
        ],
    ),
    "relation empty": (
        HEAD + "  b:\n",
        ["3:5: b: expected a mapping with 'attributes', found nothing"],
    ),
    "attributes misspelt": (
        "relations:\n  a:\n    atributes: {x: text}\n    key: [x]\n",
        ["3:5: a: unknown key 'atributes'; did you mean 'attributes'?"],
    ),
    "key unlike any": (
        HEAD + "colour: red\n",
        [
            "3:1: unknown key 'colour'; expected one of version, name, window, synonyms, relations, unknown,"
            " joins"
        ],
    ),
    "attributes missing": ("relations:\n  a: {key: []}\n", ["2:3: a: 'attributes' is missing"]),
    "attributes empty": (
        "relations:\n  a: {attributes: {}}\n",
        ["2:7: a.attributes: expected at least one attribute, found none"],
    ),
    "type misspelt": (
        "relations:\n  a: {attributes: {x: interger}}\n",
        [f"2:23: unknown type 'interger'; expected one of {TYPES}; did you mean 'integer'?"],
    ),
    "analyzer misspelt": (
        "relations:\n  a: {analyzer: germann, attributes: {x: {type: text, analyzer: xx}}}\n",
        [
            f"2:17: unknown analyzer 'germann'; expected one of {ANALYZERS}; did you mean 'german'?",
            f"2:65: unknown analyzer 'xx'; expected one of {ANALYZERS}",
        ],
    ),
    "analyzer of a number": (
        "relations:\n  a: {attributes: {x: {type: integer, analyzer: german}}}\n",
        ["2:39: a.x: only a text attribute has an analyzer; this is integer"],
    ),
    "analyzer of no text": (
        "relations:\n  a: {attributes: {x: text}, analyzer: [german]}\n",
        [f"2:40: a.analyzer: expected an analyzer ({ANALYZERS}), found a list"],
    ),
    "type of the long form misspelt": (
        "relations:\n  a: {attributes: {x: {type: Text}}}\n",
        [f"2:30: unknown type 'Text'; expected one of {TYPES}; did you mean 'text'?"],
    ),
    "type unlike any": (
        "relations:\n  a: {attributes: {x: varchar}}\n",
        [f"2:23: unknown type 'varchar'; expected one of {TYPES}"],
    ),
    "type left out": (
        "relations:\n  a: {attributes: {x: , y: [text], z: {type: 3}}}\n",
        [
            f"2:22: a.x: expected a type ({TYPES}), found nothing",
            f"2:28: a.y: expected a type ({TYPES}), found a list",
            f"2:46: a.z.type: expected a type ({TYPES}), found the number 3",
        ],
    ),
    "names": (
        "relations:\n  a.b: {attributes: {'x y': text, 'x:y': text, '': text, -z: text}}\n",
        [
            f"2:3: 'a.b' cannot be a name: {NAME_RULE}",
            f"2:22: 'x y' cannot be a name: {NAME_RULE}",
            f"2:35: 'x:y' cannot be a name: {NAME_RULE}",
            f"2:48: '' cannot be a name: {NAME_RULE}",
            f"2:58: '-z' cannot be a name: {NAME_RULE}",
        ],
    ),
    "key a text": (
        HEAD + "    \n  b: {attributes: {x: text}, key: x}\n",
        ["4:35: b.key: expected a list of attribute names, such as [mid], found 'x'"],
    ),
    "key a number": (
        HEAD + "  b: {attributes: {x: text}, key: [1]}\n",
        ["3:36: b.key: expected the name of an attribute, found the number 1"],
    ),
    "roles name no attribute": (
        HEAD + "  b: {attributes: {mid: integer, title: text}, key: [mdi], search: [titel], time: when}\n",
        [
            "3:54: b.key: no attribute 'mdi'; did you mean 'mid'?",
            "3:69: b.search: no attribute 'titel'; did you mean 'title'?",
            "3:83: b.time: no attribute 'when'",
        ],
    ),
    "roles of wrong type": (
        HEAD + "  b: {attributes: {mid: integer, s: string}, search: [mid, s], time: s}\n",
        [
            "3:55: b.search: expected a text attribute; 'mid' is integer",
            "3:60: b.search: expected a text attribute; 's' is string",
            "3:70: b.time: expected a timestamp attribute; 's' is string",
        ],
    ),
    "named twice": (
        HEAD + "  b: {attributes: {x: text}, key: [x, x]}\n",
        ["3:39: b.key: 'x' is named twice"],
    ),
    "time of a table": (
        HEAD + "  b: {attributes: {w: timestamp}, time: w, table: true}\n",
        ["3:35: b.time: a table has no event time; leave out 'time' or 'table: true'"],
    ),
    "flags": (
        HEAD + "  b: {attributes: {w: timestamp}, table: yes, finite: 1}\n",
        [
            "3:42: b.table: expected true or false, found 'yes'",
            "3:55: b.finite: expected true or false, found the number 1",
        ],
    ),
    "bounds": (
        "relations:\n  a:\n    attributes:\n"
        "      i: {type: integer, min: 5, max: 3}\n"
        "      j: {type: integer, min: 0.5}\n"
        "      n: {type: number, max: many}\n"
        "      s: {type: string, min: 3}\n"
        "      w: {type: timestamp, min: yesterday}\n"
        "      b: {type: integer, min: true}\n"
        "      v: {type: timestamp, min: 2026-02-01, max: 2026-01-01}\n",
        [
            "4:31: a.i: min 5 exceeds max 3",
            "5:31: a.j.min: expected an integer, found 0.5",
            "6:30: a.n.max: expected a number, found 'many'",
            "7:25: a.s: min needs one of the types integer, number, timestamp; this is string",
            f"8:33: a.w.min: {TIMESTAMP}, found 'yesterday'",
            "9:31: a.b.min: expected a number or a timestamp, found the boolean true",
            "10:33: a.v: min 2026-02-01 exceeds max 2026-01-01",
        ],
    ),
    "joins a text": (
        HEAD + "joins: a.x = a.x\n",
        ["3:8: joins: expected a list of joins, found 'a.x = a.x'"],
    ),
    "join of unknown names": (
        JOINS + '  - aa.x = b.x\n  - "a.xx = b.y"\n',
        [
            "5:5: no relation 'aa'; did you mean 'a'?",
            "6:8: no attribute 'xx' in 'a'; did you mean 'x'?",
            "6:15: no attribute 'y' in 'b'",
        ],
    ),
    "join without =": (
        JOINS + "  - a.x b.x\n",
        [f"5:5: a join needs '=': {CONDITION}, found 'a.x b.x'"],
    ),
    "join with two =": (
        JOINS + "  - a.x == b.x\n",
        ["5:5: more than one '=' in 'a.x == b.x'; write a composite join as a list: on: [a.x = b.x, ...]"],
    ),
    "join of bare attributes": (JOINS + "  - x = b.x\n", ["5:5: expected relation.attribute, found 'x'"]),
    "join of types": (
        JOINS + "  - a.x = b.t\n  - a.n = b.w\n  - a.b = b.x\n",
        [
            "5:5: a.x is integer but b.t is text; a join needs equal types",
            "6:5: a.n is number but b.w is timestamp; a join needs equal types",
            "7:5: a.b is boolean but b.x is integer; a join needs equal types",
        ],
    ),
    "join's keys": (
        JOINS + "  - {nme: j, on: 4}\n  - {name: j}\n  - 5\n  - {on: []}\n  - {on: [a.x = b.x, 3]}\n",
        [
            "5:6: joins: unknown key 'nme'; did you mean 'name'?",
            "5:18: joins.on: expected a condition such as a.x = b.y, or a list of them, found the number 4",
            "6:5: joins: 'on' is missing",
            "7:5: joins: expected a condition such as a.x = b.y, or a mapping with 'on', found the number 5",
            "8:6: joins.on: expected at least one condition, found none",
            "9:22: joins.on: expected a condition such as a.x = b.y, found the number 3",
        ],
    ),
    "same join": (
        JOINS + "  - a.x = b.x\n  - {name: again, on: b.x=a.x}\n  - a.x  =  b.x\n",
        ["6:5: the same join as in line 5: again", "7:5: the same join as in line 5: a.x = b.x"],
    ),
    "join name taken": (
        JOINS + "  - {name: j, on: a.x = b.x}\n  - {name: j, on: a.t = b.t}\n",
        ["6:12: join name 'j' is taken by the join in line 5"],
    ),
    "composite of several pairs": (
        JOINS + "  - {on: [a.x = b.x, a.t = a.s]}\n  - {on: [a.x = b.x, b.x = a.x]}\n",
        [
            "5:22: all conditions of a join are between the same two relations; expected 'a' and 'b'",
            "6:22: condition b.x = a.x is written twice",
        ],
    ),
    "faults in one place hide none elsewhere": (
        "version: 3\nrelations:\n  a: {attributes: {x: interger, y: text}, key: [z]}\njoins: [a.q = b.x]\n",
        [
            "1:10: version: expected 1, the version of this format, found the number 3",
            f"3:23: unknown type 'interger'; expected one of {TYPES}; did you mean 'integer'?",
            "3:49: a.key: no attribute 'z'",
            "4:11: no attribute 'q' in 'a'",
            "4:15: no relation 'b'",
        ],
    ),
}


def said(text: str) -> list[str]:
    with pytest.raises(SchemaError) as caught:
        parse_schema(text, "s.yaml")
    assert caught.value.exit_code == 3
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    assert {p.source for p in caught.value.problems} == {"s.yaml"}
    return [f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems]


@pytest.mark.parametrize(("text", "expected"), GOLDEN.values(), ids=GOLDEN.keys())
def test_every_error_is_shown_at_its_place(text: str, expected: list[str]) -> None:
    assert said(text) == expected


def test_billion_laughs_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert said("\n".join(lines)) == ["1:1: anchors and aliases expand to more than 200000 values"]


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 5000, "{a: " * 5000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert len(said(text)) == 1
    assert "nested more than 40 deep" in said(text)[0]


def test_numbers_of_any_length() -> None:
    assert (
        said(f"version: {'9' * 6000}\nrelations:\n  a: {{attributes: {{x: text}}}}\n")[0]
        == "1:10: a number too large"
    )


def test_window_is_checked_by_who_knows_windows() -> None:
    def refuse(text: str) -> str | None:
        return None if text == "1:30" else f"{text!r} is no duration"

    assert parse_schema(HEAD + "window: 1:30", check_window=refuse).window == "1:30"
    with pytest.raises(SchemaError, match=r"^<schema>:3:9: window: 'soon' is no duration$"):
        parse_schema(HEAD + "window: soon", check_window=refuse)


def test_missing_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(HEAD)
    with pytest.raises(SchemaError, match=r"no such file.*did you mean 'schema.yaml'") as caught:
        load_schema(tmp_path / "shema.yaml")
    assert str(tmp_path / "shema.yaml") in str(caught.value)
    assert caught.value.exit_code == 3


def test_directory_and_other_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        load_schema(tmp_path)
    with pytest.raises(SchemaError, match="no such file"):
        load_schema(tmp_path / "none" / "s.yaml")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(HEAD.encode() + "name: é café".encode()[:-2] + b"\xe9\n")
    with pytest.raises(SchemaError) as caught:
        load_schema(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (3, 12)
    assert problem.message == "byte 0xE9 is not UTF-8; save the file as UTF-8"


def test_file_that_is_no_schema_for_its_size(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (5 << 20))
    with pytest.raises(SchemaError, match="larger than 1 MiB"):
        load_schema(path)
