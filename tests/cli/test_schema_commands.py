"""``skws schema``: reports all problems, prints schemas, and infers them from every format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws import Session, search
from skws_schema.yaml.load import load_schema, parse_schema
from tests.commands import REPLAY, SCHEMA, Skws


def test_check_counts_relations_and_joins(skws: Skws) -> None:
    assert skws("schema", "check", SCHEMA) == (0, "ok: 4 relations, 3 joins\n", "")


def test_check_warns_of_a_relation_without_joins(skws: Skws, tmp_path: Path) -> None:
    file = tmp_path / "lonely.yaml"
    file.write_text("relations: {a: {attributes: {x: text}}, b: {attributes: {x: text}}}\njoins: []\n")
    outcome = skws("schema", "check", file)
    assert (outcome.code, outcome.out) == (0, "ok: 2 relations, 0 joins\n")
    assert "warning: relation 'a' has no join" in outcome.err


def test_check_shows_every_problem_with_its_line(skws: Skws, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("window: 20 minuts\nrelations:\n  a: {attributes: {x: texd}}\njoins:\n  - a.x = b.x\n")
    outcome = skws("schema", "check", file)
    assert (outcome.code, outcome.out) == (3, "")
    heading, *problems = outcome.err.splitlines()
    assert heading == "skws: 3 problems"
    assert [p.removeprefix(str(file)).split(": ")[0].split(":")[1] for p in problems] == ["1", "3", "5"]
    assert "did you mean 'minute'?" in problems[0]


def test_show_prints_every_format(skws: Skws) -> None:
    assert "director.did = movie.did" in skws("schema", "show", SCHEMA).out
    assert skws("schema", "show", SCHEMA, "--format", "dot").out.startswith('graph "movies" {')
    assert parse_schema(skws("schema", "show", SCHEMA, "-f", "yaml").out) == load_schema(SCHEMA)


def write_crm(folder: Path) -> Path:
    data = folder / "crm"
    data.mkdir()
    (data / "users.csv").write_text("id,name\n1,Ada Byron\n2,Grace Hopper\n3,Alan Turing\n")
    (data / "tickets.csv").write_text("id,opened_by,text\n7,1,it leaks\n8,2,it broke\n9,3,it is late\n")
    return data


@pytest.mark.parametrize("argument", ["crm", "crm.schema.yaml"])
def test_an_empty_search_suggests_a_join_that_can_be_added(skws: Skws, tmp_path: Path, argument: str) -> None:
    data = write_crm(tmp_path)
    unjoined = skws("search", data, "ada", "leaks")
    hint = f"add it with skws schema join {data}.schema.yaml tickets.opened_by=users.id"
    assert hint in unjoined.err
    outcome = skws("schema", "join", tmp_path / argument, "tickets.opened_by=users.id")
    assert outcome == (0, f"{data}.schema.yaml: joined by tickets.opened_by = users.id\n", "")
    joined_search = skws("search", data, "ada", "leaks", "-f", "jsonl")
    assert len(joined_search.records) == 1
    assert "possible" not in joined_search.err
    assert "tickets.opened_by = users.id" in skws("schema", "show", data).out
    repeated = skws("schema", "join", data, "tickets.opened_by=users.id")
    assert (repeated.code, repeated.err) == (
        2,
        "skws: the schema has the join tickets.opened_by = users.id\n",
    )


def test_a_schema_that_cannot_be_written_is_named_once(skws: Skws, tmp_path: Path) -> None:
    file = tmp_path / f"{'x' * 245}.yaml"  # too long for the name of a temporary file beside it
    file.write_text("relations: {a: {attributes: {x: text}}, b: {attributes: {x: text}}}\njoins: []\n")
    outcome = skws("schema", "join", file, "a.x=b.x")
    assert (outcome.code, outcome.err) == (4, f"skws: {file}: cannot write: File name too long\n")


def test_a_join_between_matching_relations_is_suggested_first(skws: Skws, tmp_path: Path) -> None:
    data = write_crm(tmp_path)
    (data / "orders.csv").write_text("id,item\n" + "".join(f"{n},lamp {n}\n" for n in range(70, 90)))
    numbers = "".join(f"{n},{n + 63},{n % 3 + 1},note {n}\n" for n in range(7, 17))
    (data / "tickets.csv").write_text(f"id,order_no,opened_by,text\n{numbers}")
    for words, column in (("ada note", "tickets.opened_by"), ("lamp note", "tickets.order_no")):
        errors = skws("search", data, words).err
        hints = [line for line in errors.splitlines() if line.startswith("possible: ")]
        assert len(hints) == 2
        assert hints[0].startswith(f"possible: {column} = ")


def test_a_join_that_connects_the_keywords_is_suggested_first(skws: Skws, tmp_path: Path) -> None:
    """Even through other joins, and before joins that lead from a keyword to other relations."""
    data = write_crm(tmp_path)
    (data / "orders.csv").write_text(
        "code,user_id,item\n" + "".join(f"X{n},{n % 3 + 1},lamp\n" for n in range(9))
    )
    (data / "tickets.csv").write_text(
        "id,opened_by,text\n" + "".join(f"{n},{n % 3 + 1},leak\n" for n in range(7, 16))
    )
    (data / "remarks.csv").write_text("nr,about,words\n" + "".join(f"{n + 40},X{n},hm\n" for n in range(9)))
    errors = skws("search", data, "hm byron").err
    hints = [line for line in errors.splitlines() if line.startswith("possible: ")]
    assert hints[0].startswith("possible: remarks.about = orders.code")
    assert len(hints) == 2


@pytest.mark.parametrize("suffix", ["", ".db"])
def test_networks_and_explain_accept_a_source(skws: Skws, tmp_path: Path, suffix: str) -> None:
    data = write_crm(tmp_path)
    if suffix:
        with closing(sqlite3.connect(f"{data}{suffix}")) as connection:
            connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
            connection.execute("CREATE TABLE tickets (opened_by INTEGER REFERENCES users, text TEXT)")
    else:
        skws("schema", "join", data, "tickets.opened_by=users.id")
    outcome = skws("networks", f"{data}{suffix}", "ada", "leaks")
    assert "  users{ada} - tickets{leaks}\n" in outcome.out, outcome.err
    assert "users{ada} - tickets{leaks}" in skws("explain", f"{data}{suffix}", "ada", "leaks").out
    assert "tickets.opened_by = users.id" in skws("schema", "show", f"{data}{suffix}").out


def test_networks_and_explain_need_a_source_or_a_schema(skws: Skws, tmp_path: Path) -> None:
    for command in ("networks", "explain"):
        assert "no such file or folder" in skws(command, tmp_path / "none", "ada").err
        assert "no schema: expected SOURCE" in skws(command).err
        assert "use --schema FILE" in skws(command, "kafka://one:9092/a", "ada").err


def test_a_search_of_a_database_suggests_joins(skws: Skws, tmp_path: Path) -> None:
    file = tmp_path / "crm.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE users (id, name)")
        connection.execute("CREATE TABLE tickets (id, opened_by, text)")
        rows = [(1, "Ada Byron"), (2, "Grace Hopper"), (3, "Alan Turing")]
        connection.executemany("INSERT INTO users VALUES (?, ?)", rows)
        tickets = [(7, 1, "it leaks"), (8, 2, "it broke"), (9, 3, "it is late")]
        connection.executemany("INSERT INTO tickets VALUES (?, ?, ?)", tickets)
        connection.commit()
    assert (
        f"skws schema join {file}.schema.yaml tickets.opened_by=users.id"
        in skws("search", file, "ada", "leaks").err
    )
    assert skws("schema", "join", file, "tickets.opened_by=users.id").code == 0
    assert len(skws("search", file, "ada", "leaks", "-f", "jsonl").records) == 1


def test_json_schema_is_printed(skws: Skws) -> None:
    document = json.loads(skws("schema", "json-schema").out)
    assert "relations" in document["properties"]


def rows_by_relation() -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {}
    for line in REPLAY.read_text().splitlines():
        record = json.loads(line)
        rows.setdefault(record["relation"], []).append(record["row"])
    return rows


def write_rows(kind: str, folder: Path) -> None:
    for relation, rows in rows_by_relation().items():
        file = folder / f"{relation}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        elif kind == "csv":
            lines = [",".join(json.dumps(str(v)).replace('\\"', '""') for v in row.values()) for row in rows]
            file.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_change_events(folder: Path) -> None:
    events = [
        {"payload": {"op": "c", "before": None, "after": row, "source": {"table": relation}, "ts_ms": 1}}
        for relation, rows in rows_by_relation().items()
        for row in rows
    ]
    deletion = {"payload": {"op": "d", "before": {"mid": 1}, "after": None, "source": {"table": "movie"}}}
    lines = [json.dumps(event) for event in (*events, deletion, None)]
    (folder / "changes.jsonl").write_text("not json\n" + "\n".join(lines) + "\n")


def write_flat_csv(folder: Path) -> None:
    lines = ["relation,time,op,row"]
    for relation, rows in rows_by_relation().items():
        lines += [f'{relation},1,+,"{json.dumps(row).replace(chr(34), chr(34) * 2)}"' for row in rows]
    (folder / "stream.csv").write_text("\n".join([*lines, 'movie,2,-,"{""mid"": 1}"', "x,y"]) + "\n")


@pytest.mark.parametrize("form", ["folder", "database"])
def test_the_library_uses_a_saved_schema_but_saves_none(skws: Skws, tmp_path: Path, form: str) -> None:
    """It also uses the schema after rows were added."""
    data = write_crm(tmp_path)
    if form == "database":
        file = tmp_path / "crm.db"
        with closing(sqlite3.connect(file)) as connection:
            for name in ("users", "tickets"):
                pd.read_csv(data / f"{name}.csv").to_sql(name, connection, index=False)
        data = file
    paths = set(tmp_path.iterdir())
    assert not len(search("ada leaks", data))
    assert set(tmp_path.iterdir()) == paths
    assert skws("schema", "join", data, "tickets.opened_by=users.id").code == 0
    assert [result["network"] for result in search("ada leaks", data).to_dicts()] == [
        "users{ada} - tickets{leaks}"
    ]
    assert len(Session(str(data), tables=str(data)).add("ada leaks")) == 1
    if form == "folder":
        with (data / "tickets.csv").open("a") as tickets:
            tickets.write("10,1,it leaks again\n")
        assert len(search("ada leaks", [data])) == 2


@pytest.mark.parametrize("kind", ["replay", "jsonl", "csv", "parquet", "changes", "flat"])
def test_infer_finds_the_joins_in_every_format(skws: Skws, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "films"
    source.mkdir()
    match kind:
        case "replay":
            source = REPLAY
        case "changes":
            write_change_events(source)
        case "flat":
            write_flat_csv(source)
        case _:
            write_rows(kind, source)
    schema = parse_schema(skws("schema", "infer", source, "--name", "films", "-w", "1 hour").out)
    assert (schema.name, schema.window) == ("films", "1 hour")
    sides = {frozenset({j.left, j.right}) for j in schema.joins}
    assert sides == {frozenset(p) for p in (("director", "movie"), ("movie", "plays"), ("plays", "actor"))}
    assert schema.relation("movie").columns.keys() == {"mid", "title", "did", "released"}
    # Rows without a time make a static table, timed records a stream.
    assert schema.relation("actor").table == (kind in {"jsonl", "csv", "parquet"})


def test_infer_names_the_schema_after_the_path(skws: Skws, tmp_path: Path) -> None:
    write_rows("jsonl", tmp_path)
    assert f"name: {tmp_path.name}" in skws("schema", "infer", tmp_path).out


def test_infer_without_records_fails(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    empty, missing = skws("schema", "infer", tmp_path), skws("schema", "infer", tmp_path / "none")
    assert (empty.code, missing.code) == (4, 4)
    assert "no records in" in empty.err
    assert skws("schema", "infer", SCHEMA).code == 4
