"""Rows in arrays of JSON objects form separate relations, joined to the enclosing rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skws
from skws.data.batch import BadRecord, Record
from skws.formats import plan, read_split
from skws.formats.nested import nested_rows
from skws.sources.inferred_schemas import inferred
from skws_schema.errors import SchemaError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema

COMMITS: list[dict[str, Any]] = [
    {"sha": "a1", "message": "Fix", "files": [{"path": "lexer", "hunks": [{"line": 1}, {"line": 7}]}]},
    {"sha": "b2", "message": "Docs", "files": [{"path": "index", "hunks": []}, {"path": "style"}]},
    {"sha": "c3", "message": "Start", "files": []},
]


def lines(path: Path, items: list[Any]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def document(path: Path, item: object) -> Path:
    path.write_text(json.dumps(item, indent=1))
    return path


def read(path: Path, schema: Schema, split_bytes: int = 1 << 20) -> tuple[dict[str, list[Any]], list[str]]:
    """The rows by relation, and the reasons of bad records."""
    rows: dict[str, list[Any]] = {relation.name: [] for relation in schema.relations}
    bad = []
    for split in plan(path, schema, split_bytes=split_bytes):
        for item in read_split(split, schema):
            if isinstance(item, Record):
                rows[schema.relations[item.relation].name].append(item.row)
            elif isinstance(item, BadRecord):
                bad.append(item.reason)
    return rows, bad


def draft(path: Path) -> Schema:
    schema = inferred([str(path)]).schema()
    assert parse_schema(inferred([str(path)]).to_yaml()) == schema
    return schema


@pytest.mark.parametrize("split_bytes", [1 << 20, 10])
def test_every_array_of_objects_is_a_relation(tmp_path: Path, split_bytes: int) -> None:
    path = lines(tmp_path / "commits.jsonl", COMMITS)
    schema = draft(path)
    assert {r.name: r.origin for r in schema.relations} == {
        "commits": None,
        "commits_files": "commits.files",
        "commits_files_hunks": "commits_files.hunks",
    }
    assert [join.name for join in schema.joins] == [
        "commits_files.commits_sha = commits.sha",
        "commits_files_hunks.commits_files_row = commits_files.row",
    ]
    rows, bad = read(path, schema, split_bytes)
    assert bad == []
    assert rows["commits"] == [("a1", "Fix"), ("b2", "Docs"), ("c3", "Start")]
    assert [row[:2] for row in rows["commits_files"]] == [("a1", "lexer"), ("b2", "index"), ("b2", "style")]
    lexer = rows["commits_files"][0][2]
    assert rows["commits_files_hunks"] == [(lexer, 1), (lexer, 7)]
    assert len({row[2] for row in rows["commits_files"]}) == 3


@pytest.mark.parametrize("indent", [None, 1])
def test_an_object_that_wraps_the_rows_is_unwrapped(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"count": 3, "page": {"next": None}, "items": COMMITS}, indent=indent))
    inference = inferred([str(path)])
    schema = inference.schema()
    assert schema.relations[0].origin == "answer.items"
    assert [column.name for column in inference.relations[0].left_out] == ["count", "page.next"]
    rows, bad = read(path, schema)
    assert bad == []
    assert [row[0] for row in rows["answer"]] == ["a1", "b2", "c3"]
    assert len(rows["answer_files"]) == 3


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ('{"items": [\n{"n": "Ada"},\n{"n": "Bob"}]}', "answer.items"),
        ('{"data": {"users": [{"n": "Ada"}, {"n": "Bob"}]}, "next": null}', "answer.data.users"),
        ('{"id": 7, "lines": [{"n": "Ada"}, {"n": "Bob"}]}', None),
        ('{"tags": ["x"], "lines": [{"n": "Ada"}, {"n": "Bob"}]}', None),
    ],
)
def test_an_anonymous_object_around_a_single_list_is_unwrapped(
    tmp_path: Path, text: str, origin: str | None
) -> None:
    path = tmp_path / "answer.json"
    path.write_text(text)
    schema = draft(path)
    assert schema.relations[0].origin == origin
    rows, bad = read(path, schema)
    assert bad == []
    assert len(rows[schema.relations[0 if origin else 1].name]) == 2


def test_all_pages_of_an_answer_are_unwrapped(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for page in range(1, 4):
        items = [{"n": f"Ada {page}", "of": [{"x": "lamp"}]}] if page < 3 else []
        document(folder / f"{page}.json", {"page": page, "items": items})
    schema = draft(folder)
    assert [(r.name, r.origin) for r in schema.relations] == [
        ("pages", "pages.items"),
        ("pages_of", "pages.of"),
    ]
    rows, bad = read(folder, schema)
    assert bad == []
    assert [row[0] for row in rows["pages"]] == ["Ada 1", "Ada 2"]


def test_arrays_may_be_missing_in_some_rows(tmp_path: Path) -> None:
    items = [{"id": 1, "tags": [{"t": "a"}]}, {"id": 2, "tags": None}, {"id": 3}, {"id": 4, "tags": []}]
    path = document(tmp_path / "rows.json", items)
    schema = draft(path)
    assert [a.name for a in schema.relation("rows").attributes] == ["id"]
    rows, bad = read(path, schema)
    assert (bad, len(rows["rows"]), len(rows["rows_tags"])) == ([], 4, 1)


def test_an_object_with_several_arrays_is_a_row(tmp_path: Path) -> None:
    path = document(
        tmp_path / "shop.json", {"town": "Bonn", "staff": [{"n": "Ada"}], "stock": [{"i": "lamp"}]}
    )
    schema = draft(path)
    assert {r.name for r in schema.relations} == {"shop", "shop_staff", "shop_stock"}
    results = list(skws.search("ada lamp", [path]))
    assert [sorted(tuple_.relation for tuple_ in result.tuples) for result in results] == [
        ["shop", "shop_staff", "shop_stock"]
    ]


@pytest.mark.parametrize("outer_names", [(), ("data", "the users")])
def test_objects_keyed_by_name_are_reported_with_a_conversion(
    tmp_path: Path, outer_names: tuple[str, ...]
) -> None:
    item: dict[str, Any] = {f"u{n}": {"name": name, "age": n} for n, name in enumerate(["Ada", "Bob", "Cy"])}
    for name in reversed(outer_names):
        item = {name: item, "version": 1}
    path = document(tmp_path / "users.json", item)
    (note,) = inferred([str(path)]).notes
    jq_path = '.["data"]["the users"] | ' if outer_names else ""
    assert note == (
        "1 record of users.json holds 3 objects by name; to search them as rows:"
        f" jq -c '{jq_path}to_entries[] | {{key}} + .value' {path} > rows.jsonl"
    )
    assert inferred([str(document(tmp_path / "one.json", {"a": {"x": 1}, "b": {"y": 2}}))]).notes == ()


def test_a_join_between_two_arrays_is_inferred(tmp_path: Path) -> None:
    """The key refers to the name of the array, not of its relation, which begins with the file's name."""
    item = {
        "users": [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}],
        "orders": [{"id": 10, "user_id": 1, "item": "kettle"}, {"id": 11, "user_id": 2, "item": "lamp"}],
    }
    path = document(tmp_path / "shop.json", item)
    assert "shop_orders.user_id = shop_users.id" in [join.name for join in draft(path).joins]


def test_rows_without_a_key_are_identified_by_position(tmp_path: Path) -> None:
    items = [{"who": "Ada", "of": [{"x": "lamp"}]}, {"who": "Ada", "of": [{"x": "desk"}]}]
    path = lines(tmp_path / "orders.jsonl", items)
    schema = draft(path)
    assert schema.relation("orders").key == ("row",)
    rows, _ = read(path, schema)
    assert [row[0] for row in rows["orders_of"]] == [row[1] for row in rows["orders"]]
    assert len({row[1] for row in rows["orders"]}) == 2


def test_rows_in_arrays_have_the_time_of_their_parent(tmp_path: Path) -> None:
    items = [{"id": 1, "time": 5, "of": [{"x": "lamp"}]}, {"id": 2, "time": 9, "of": [{"x": "desk"}]}]
    path = lines(tmp_path / "orders.jsonl", items)
    schema = parse_schema(
        "relations:\n  orders: {attributes: {id: integer}, key: [id]}\n"
        "  of: {from: orders.of, attributes: {order: {type: integer, from: orders.id}, x: text}}\n"
        "joins: [of.order = orders.id]\n"
    )
    (split,) = plan(path, schema)
    times = [(item.relation, item.time) for item in read_split(split, schema) if isinstance(item, Record)]
    assert times == [(0, 5_000_000), (1, 5_000_000), (0, 9_000_000), (1, 9_000_000)]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"id": 1, "of": [{"x": "a"}, 3]}, "expected a row (a JSON object) of of, got 3"),
        ({"id": 1, "of": "none"}, "expected an array of rows at 'of', got 'none'"),
        ({"id": 1, "of": [{"x": "a"}, {"x": {"y": 1}}]}, "of.x: expected"),
    ],
)
def test_an_invalid_nested_row_is_a_bad_record(tmp_path: Path, item: object, reason: str) -> None:
    path = lines(tmp_path / "orders.jsonl", [{"id": 0, "of": None}, item])
    schema = parse_schema(
        "relations:\n  orders: {attributes: {id: integer}, key: [id], table: true}\n"
        "  of:\n    from: orders.of\n    table: true\n"
        "    attributes: {order: {type: integer, from: orders.id}, x: text}\n"
        "joins: [of.order = orders.id]\n"
    )
    rows, bad = read(path, schema)
    assert rows["orders"][0] == (0,)
    assert any(reason in text for text in bad)


INSTALLED = parse_schema(
    "relations:\n  pip: {from: pip.installed, attributes: {n: integer, name: text}, table: true}\n"
)
PACKAGES: list[Any] = [{"n": 1, "name": "six"}, {"n": "bad", "name": "idna"}, 7, {"n": 3, "name": "attrs"}]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_bad_row_of_an_object_that_is_no_row_spoils_no_other(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pip.{suffix}"
    packages = PACKAGES
    if suffix == "jsonl":
        lines(path, [{"version": "1", "installed": packages}])
    else:
        packages = [{**package, "n": str(package["n"])} for package in PACKAGES if isinstance(package, dict)]
        pq.write_table(pa.table({"installed": [packages]}), path)
    (split,) = plan(path, INSTALLED)
    items = list(read_split(split, INSTALLED))
    assert [item.row for item in items if isinstance(item, Record)] == [(1, "six"), (3, "attrs")]
    bad = [(json.loads(item.raw), item.reason) for item in items if isinstance(item, BadRecord) and item.raw]
    expected: list[tuple[Any, str]] = [(packages[1], "installed[1]: pip.n: expected an integer, got 'bad'")]
    if suffix == "jsonl":
        expected.append((7, "installed[2]: expected a row (a JSON object) of pip, got 7"))
    assert bad == expected


@pytest.mark.parametrize("levels", [300, 1_020])
def test_a_bad_row_may_have_very_many_levels(tmp_path: Path, levels: int) -> None:
    path = tmp_path / "pip.jsonl"
    row = '{"n": 2, "name": ' + "[" * levels + "]" * levels + "}"
    path.write_text('{"installed": [{"n": 1, "name": "six"}, ' + row + "]}\n")
    (split,) = plan(path, INSTALLED)
    record, bad = read_split(split, INSTALLED)
    assert isinstance(record, Record)
    assert record.row == (1, "six")
    assert isinstance(bad, BadRecord)
    assert bad.raw in {row.encode(), b""}  # with more levels than Python encodes, the reason alone remains
    assert bad.reason.startswith("installed[1]: pip.name: expected a text, got [[[")


def test_a_bad_row_in_python_spoils_no_other() -> None:
    packages = [*PACKAGES, {"n": 1 << 70, "name": "many bits"}]
    items = list(nested_rows(INSTALLED, 0, "pip", [{"installed": packages}], 0))
    assert [item.row for item in items if isinstance(item, Record)] == [(1, "six"), (3, "attrs")]
    assert sum(isinstance(item, BadRecord) for item in items) == 3


@pytest.mark.parametrize(
    ("origin", "fault"),
    [
        ("a.", "b.from: expected a name or RELATION.PATH, found 'a.'"),
        ("c.x", "b.from: no relation 'c'"),
        ("a.x", "b.from: a takes its rows from b"),
    ],
)
def test_an_invalid_origin_is_rejected(origin: str, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault.replace(".", r"\.")):
        parse_schema(
            f"relations:\n  a: {{from: b.y, attributes: {{x: text}}}}\n"
            f"  b: {{from: {origin}, attributes: {{x: text}}}}\n"
        )


NESTED = """\
relations:
  commits: {attributes: {sha: string, message: text}, key: [sha]}
  files: {from: commits.files, attributes: {sha: {type: string, from: commits.sha}, path: text}}
joins: [files.sha = commits.sha]
"""


@pytest.mark.parametrize("schema", [None, NESTED])
@pytest.mark.parametrize("time_field", [{}, {"time": datetime(2026, 1, 1, tzinfo=UTC)}])
def test_nested_rows_in_python_are_searched(schema: str | None, time_field: dict[str, Any]) -> None:
    rows = [{**commit, **time_field} for commit in COMMITS]
    (result,) = skws.search("fix lexer", {"commits": rows}, schema=schema)
    assert result.tuples[0].relation == "commits"
    assert result.start == (time_field["time"].timestamp() if time_field else None)


def test_nested_rows_in_python_are_processed_by_a_session() -> None:
    session = skws.Session(NESTED, window="1 hour")
    session.add("fix lexer")
    rows = [{**commit, "time": "2026-01-01T00:00:00Z"} for commit in COMMITS]
    assert len(session.process({"commits": rows})) == 1


def test_nested_rows_in_python_may_be_ignored_by_the_schema() -> None:
    schema = "relations:\n  commits: {attributes: {sha: text}}\n"
    assert len(list(skws.search("a1", {"commits": COMMITS}, schema=schema))) == 1


def test_an_origin_in_python_may_be_any_name() -> None:
    schema = (
        "relations:\n  details: {from: Order Details, attributes: {id: integer, what: text}}\n"
        "  people: {attributes: {id: integer, name: text}}\njoins: [details.id = people.id]\n"
    )
    data = {"Order Details": [{"id": 1, "what": "lamp"}], "people": [{"id": 1, "name": "Ada"}]}
    assert len(list(skws.search("ada lamp", data, schema=schema))) == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_field_may_be_a_text_an_object_or_an_array_of_both(tmp_path: Path, wrapped: bool) -> None:
    """As the ``text`` of an exported chat; no value of the sample makes a bad record."""
    texts: list[Any] = [
        "hello",
        ["see ", {"type": "link", "text": "here"}, " now"],
        [{"type": "bold", "text": "only"}, {"type": "link", "text": "that"}],
        {"type": "bold", "text": "one"},
        "",
        None,
        [],
    ]
    messages = [{"id": number, "text": text} for number, text in enumerate(texts)]
    chat = {"name": "chat", "id": 1, "messages": messages}
    path = document(tmp_path / "chat.json", chat) if wrapped else lines(tmp_path / "chat.jsonl", messages)
    schema = draft(path)
    rows, bad = read(path, schema)
    assert bad == []
    relation = schema.relation("chat_messages" if wrapped else "chat")
    columns = [relation.columns[name] for name in ("id", "text", "text_type", "text_text")]
    assert [tuple(row[column] for column in columns) for row in rows[relation.name]] == [
        (0, "hello", None, None),
        (1, "see ,  now", "link", "here"),
        (2, None, "bold, link", "only, that"),
        (3, None, "bold", "one"),
        (4, "", None, None),
        (5, None, None, None),
        (6, None, None, None),
    ]
    if not wrapped:
        assert len(skws.search("see here", {"chat": messages})) == 1


def test_one_odd_value_among_arrays_of_objects_is_a_bad_record(tmp_path: Path) -> None:
    items = [{"id": number, "files": [{"path": f"p{number}"}]} for number in range(500)]
    path = lines(tmp_path / "commits.jsonl", [*items, {"id": 500, "files": "none"}])
    schema = draft(path)
    rows, bad = read(path, schema)
    assert len(rows["commits_files"]) == 500
    assert bad == ["expected an array of rows at 'files', got 'none'"]


def test_an_array_in_an_object_that_is_elsewhere_a_value_is_no_relation(tmp_path: Path) -> None:
    items = [
        {"id": 1, "files": [{"path": "a", "hunks": [{"line": 7}, {"line": 8}]}]},
        {"id": 2, "files": "b"},
    ]
    path = lines(tmp_path / "commits.jsonl", items)
    schema = draft(path)
    assert [relation.name for relation in schema.relations] == ["commits"]
    rows, bad = read(path, schema)
    assert bad == []
    assert [row[1:] for row in rows["commits"]] == [("a", "7, 8", None), (None, None, "b")]


def test_empty_texts_arrays_and_objects_are_null(tmp_path: Path) -> None:
    """PHP writes [] for an object without fields, Lua {} for an array without elements."""
    orders: list[dict[str, Any]] = [
        {"id": 1, "price": 5, "note": "kettle", "address": {"city": "Leeds"}, "lines": [{"item": "lamp"}]},
        {"id": 2, "price": [], "note": {}, "address": [], "lines": {}},
        {"id": 3, "price": "", "note": ["x", {}, []], "address": {}, "lines": []},
    ]
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(json.dumps(order) + "\n" for order in orders))
    schema = inferred([str(path)]).schema()
    (split,) = plan(path, schema)
    records = list(read_split(split, schema))
    assert [r.row for r in records if isinstance(r, Record) and r.relation == schema.index["orders"]] == [
        (1, 5, "kettle", "Leeds"),
        (2, None, None, None),
        (3, None, "x", None),
    ]
    assert len(records) == 4
