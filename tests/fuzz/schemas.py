"""Schemas in YAML."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import strategies as st

from skws_schema.errors import SchemaError
from skws_schema.show import show, to_dot, to_yaml
from skws_schema.yaml.load import parse_schema, warnings
from tests.fuzz.fuzzing import ODD_TEXTS, Language, words_and_signs

_NAMES: Final = ("id", "name", "at", "on", "no", "null", "größe", "über-satz", "x1", "1")
_TYPES: Final = ("integer", "number", "text", "string", "boolean", "timestamp")


class _Writer:
    """Writes a schema, with each part in one of its forms."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def text(self) -> str:
        names = self._draw(st.lists(st.sampled_from(("a", "b", "Order", "yes")), min_size=1, unique=True))
        columns = {name: self._columns() for name in names}
        parts = [
            self._one_of("", "version: 1", "# all of it"),
            self._one_of("", "name: shop", "name: 'a shop'", 'name: "caf\\u00e9"'),
            self._one_of("", "window: 20 minutes", "window: 1000 tuples", "window: none # nothing expires"),
            self._one_of("", "", "unknown: fail", "unknown: ignore"),
            self._one_of(
                "", "", 'synonyms: ["car, automobile"]', "synonyms:\n  - cheap, inexpensive\n  - a1, b2"
            ),
            "\n".join(["relations:", *(self._relation(name, columns[name]) for name in names)]),
            self._joins(columns),
        ]
        return "\n".join(part for part in parts if part) + self._one_of("\n", "")

    def _columns(self) -> dict[str, str]:
        names = self._draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=5, unique=True))
        return {name: self._one_of(*_TYPES) for name in names}

    def _relation(self, name: str, columns: dict[str, str]) -> str:
        is_flow = self._draw(st.booleans())
        attributes = [f"{column}: {self._attribute(kind)}" for column, kind in columns.items()]
        # As a value, unlike as a key, a number or null is only a name in quotes.
        values = {f"'{c}'" if c in ("1", "null") else c: kind for c, kind in columns.items()}
        texts = [column for column, kind in values.items() if kind == "text"]
        times = [column for column, kind in values.items() if kind == "timestamp"]
        table = self._one_of("", "", "table: true")
        parts = [
            self._one_of("", f"key: [{next(iter(values))}]", f"key: [{', '.join(values)}]"),
            self._one_of("", f"search: [{', '.join(texts)}]", "search: []"),
            self._one_of("", "", "analyzer: german", "analyzer: simple"),
            f"time: {times[0]}" if times and not table and self._draw(st.booleans()) else "",
            table,
            "source: rows.csv" if table and self._draw(st.booleans()) else "",
            "finite: true" if not table and self._one_of("", "", "finite") else "",
        ]
        parts = [part for part in parts if part]
        if is_flow:
            inner = ", ".join(["attributes: {" + ", ".join(attributes) + "}", *parts])
            return f"  {name}: {{{inner}}}"
        block = [f"  {name}:", "    attributes:", *(f"      {attribute}" for attribute in attributes)]
        return "\n".join([*block, *(f"    {part}" for part in self._draw(st.permutations(parts)))])

    def _attribute(self, kind: str) -> str:
        bounds = {
            "integer": ("min: 0", "min: -5, max: 7"),
            "number": ("max: 2.5", "min: 0, max: 1e3"),
            "timestamp": ("min: 2026-01-01", 'max: "2026-12-31T23:59:59Z"'),
            "text": ("analyzer: none", "analyzer: french"),
        }
        properties = [*bounds.get(kind, ()), "from: a.b", 'from: "Order ID"']
        return self._one_of(kind, kind, kind, *(f"{{type: {kind}, {text}}}" for text in properties))

    def _joins(self, columns: dict[str, dict[str, str]]) -> str:
        pairs = [
            f"{left}.{a} = {right}.{b}"
            for left, left_columns in columns.items()
            for right, right_columns in columns.items()
            for a, kind in left_columns.items()
            for b, other_kind in right_columns.items()
            if kind == other_kind and (left, a) < (right, b)
        ]
        if not pairs:
            return self._one_of("", "joins: []", "joins:")
        joins = self._draw(st.lists(st.sampled_from(pairs), max_size=3, unique=True))
        lines = [
            self._one_of(
                f"  - {pair}", f"  - {{on: {pair}}}", f"  - {{name: j{i}, on: [{pair}]}}", f'  - "{pair}"'
            )
            for i, pair in enumerate(joins)
        ]
        return "\n".join(["joins:", *lines])


@st.composite
def _schemas(draw: st.DrawFn) -> str:
    return _Writer(draw).text()


def check(text: str, _random: Random) -> bool:
    """Parsed schemas equal the written ones and can be shown; problems have positions in the text."""
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        return check_positions(error, text)
    reparsed = parse_schema(to_yaml(schema))
    assert reparsed == schema
    assert show(reparsed) == show(schema)
    assert to_dot(reparsed) == to_dot(schema)
    assert warnings(reparsed) == warnings(schema)
    return True


def check_positions(error: SchemaError, text: str) -> bool:
    """False for a rejected text; fails unless each problem has a position in it."""
    assert error.problems
    lines = 1 + sum(text.count(end) for end in "\n\r\x85\u2028\u2029")
    for problem in error.problems:
        assert 1 <= problem.line <= lines + 1
        assert problem.column >= 1
        assert problem.message
    return False


_ODD: Final = (
    "&a ",
    "*a ",
    "!!map ",
    "!x ",
    "<<: *a",
    "? ",
    "- ",
    "---",
    "...",
    "\ufeff",
    "on: ",
    "{type: integer, min: }",
)
LANGUAGE: Final = Language("schemas", _schemas(), check, words_and_signs, (*ODD_TEXTS, *_ODD))
