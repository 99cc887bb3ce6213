"""Tables and the terminal UI show the name of a row that is identified by a string."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.results.result import JsonRow, Result, ResultTuple
from skws.sinks.formats import open_writer
from skws.sinks.row_names import RowNames, is_name
from skws.spec.enums import OutputFormat
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_tui.services.result_drawing import Drawer, TableColumns
from skws_tui.services.view import View
from skws_tui.themes import palette
from skws_windows.window import Unbounded
from tests.tui.ui import movies

_SCHEMA = """
window: none
relations:
  package:
    attributes: {{name: {name}, source: string, section: string, version: {{type: string, order: debian}}}}
    key: [name]
  depends:
    attributes: {{package: string, needs: string}}
    key: [package, needs]
  change:
    attributes: {{source: string, version: {{type: string, order: debian}}, nr: string, text: text}}
    key: [source, version]
joins:
  - change.source = package.source
  - depends.needs = package.name
"""
BY_STRING = parse_schema(_SCHEMA.format(name="string"))
BY_TEXT = parse_schema(_SCHEMA.format(name="{type: text, analyzer: none}"))


def change_tuple(source: str = "libxml2") -> ResultTuple:
    row: JsonRow = {"source": source, "version": "2.9.14", "nr": "17", "text": "Fixes a leak."}
    return ResultTuple.given("change", f"change:{source}", ("leak",), row)


def package(name: str, source: str = "libxml2") -> ResultTuple:
    row: JsonRow = {"name": name, "source": source, "section": "libs", "version": "2.9.14"}
    return ResultTuple.given("package", f"package:{name}", (), row)


def dependency_tuple(name: str, needs: str) -> ResultTuple:
    return ResultTuple.given("depends", f"depends:{name}", (), {"package": name, "needs": needs})


def result(*tuples: ResultTuple) -> Result:
    names = ("change.source = package.source", "depends.needs = package.name")
    joins = ((0, 1, names[0]), (2, 1, names[1]))[: len(tuples) - 1]
    return Result("+", "leak", "leak", "1", None, None, "a network", tuples, joins)


@pytest.mark.parametrize(
    ("schema", "tuples", "naming_columns"),
    [
        (BY_STRING, [change_tuple()], ["source"]),
        (BY_STRING, [change_tuple("17-4")], [""]),
        (BY_STRING, [change_tuple(), package("libxml2")], ["source", ""]),
        (BY_STRING, [change_tuple(), package("libxml2-dev")], ["source", "name"]),
        (
            BY_STRING,
            [change_tuple(), package("xml", "xml"), dependency_tuple("nginx", "xml")],
            ["source", "name", "package"],
        ),
        (BY_TEXT, [change_tuple(), package("libxml2-dev")], ["", ""]),
        (
            BY_TEXT,
            [change_tuple(), package("libxml2"), dependency_tuple("nginx", "libxml2")],
            ["", "", "package"],
        ),
        (BY_TEXT, [change_tuple()], ["source"]),
    ],
)
def test_rows_are_named_by_their_first_name_like_column(
    schema: Schema, tuples: list[ResultTuple], naming_columns: list[str]
) -> None:
    assert list(RowNames(schema).of(result(*tuples))) == naming_columns


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((text, True) for text in ("libxml2", "Ada Byron", "ca9", "東京", "gcc-12", "facade")),
        *((text, False) for text in ("", "17", "c17", "ORD-2024-0001", "deadbeef00", "x" * 61)),
        *((value, False) for value in (None, 7, True, "550e8400-e29b-41d4-a716-446655440000")),
    ],
)
def test_names_are_short_texts_and_not_codes(value: object, expected: bool) -> None:
    assert is_name(value) == expected


def last_table_line(schema: Schema, query: str, *tuples: ResultTuple) -> str:
    out = io.BytesIO()
    plan = Plan(schema, parse_query(query, schema), Unbounded())
    with open_writer(OutputFormat.TABLE, None, plan, out) as writer:
        writer.write(result(*tuples))
    return out.getvalue().decode().splitlines()[-1]


def test_a_table_names_rows_that_have_a_name_column() -> None:
    tuples = change_tuple(), package("libxml2-dev")
    assert last_table_line(BY_STRING, "leak", *tuples).endswith("libxml2 - Fixes a leak. - libxml2-dev")
    assert last_table_line(BY_TEXT, "leak", *tuples).endswith("  Fixes a leak. - libxml2-dev")
    same_name = change_tuple(), package("libxml2")
    # A column shown for a condition is not repeated.
    assert last_table_line(BY_STRING, "leak !package.name>a", *same_name).endswith(
        "  Fixes a leak. - libxml2"
    )


def test_the_terminal_ui_names_rows_that_have_a_name_column(tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(_SCHEMA.format(name="string"))
    view = View(movies(path=schema))
    view.queries = ("leak",)
    view.results.take([result(change_tuple(), package("libxml2-dev"))])
    (row,) = view.results.rows()
    drawer = Drawer(view, palette(BUILTIN_THEMES["textual-dark"]))
    line = drawer.line(row, TableColumns(70)).plain
    assert "libxml2 · Fixes a leak. · libxml2-dev" in line
    parent, child = (line.plain for line in drawer.tree(row, 40))
    assert parent.startswith("change  source libxml2  Fixes a leak.")
    assert child.startswith("└ package  name libxml2-dev")
