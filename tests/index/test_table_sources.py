"""Tables from files, SQLite and PostgreSQL: indexed once, and searched like tables in memory."""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import skws
from skws.durable import cache_folder
from skws.formats import Replay
from skws.index.index_cache import open_tables
from skws.index.kept import TABLES
from skws.index.postings import ChunkCollector, IndexFile, Postings, packed_folder
from skws.keywords.analysis import tokens
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.spec.job import Job
from skws_schema.errors import QueryError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_schema.yaml.load import load_schema
from tests.commands import Skws
from tests.jobs.watching import Collected, Notes, opened, request, steps
from tests.postgres import Database
from tests.spark.streaming.spark_runs import running
from tests.strategies import examples

PRODUCTS: list[tuple[int | None, str | None, float | None]] = [
    (1, "red kettle", 12.5),
    (2, "blue lamp", None),
    (3, "Blåhaj, “green” lamp", 3.0),
    (None, "lamp of nothing", 1.0),
    (5, None, 2.0),
    (2, "lamp that replaces the blue one", 9.0),
]
SALES = [(1, 2, "gift wrapped"), (2, 3, "a gift"), (3, 5, "gift"), (4, None, "gift"), (5, 1, "returned")]
ODD = ["lamp post", "Lamps\x1cx", "\ufb02at"]
SCHEMA = """
version: 1
name: shop
window: 20 seconds
relations:
  product:
    attributes: {pid: integer, name: text, price: number}
    key: [pid]
    table: true
    source: '%s'
  sale:
    attributes: {oid: integer, pid: integer, note: text}
joins:
  - sale.pid = product.pid
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "cache"))


def shop(folder: Path, source: str) -> tuple[Path, Path]:
    """Writes a schema whose table has a source, and the stream."""
    schema, sales = folder / "shop.yaml", folder / "sales.jsonl"
    schema.write_text(SCHEMA % source)
    rows = [
        {"relation": "sale", "time": n, "row": {"oid": oid, "pid": pid, "note": note}}
        for n, (oid, pid, note) in enumerate(SALES)
    ]
    sales.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return schema, sales


def shop_in_replay(folder: Path) -> tuple[Path, Path]:
    """Writes the same schema without a source, with the table in the replay."""
    _, sales = shop(folder, "-")
    schema = folder / "whole.yaml"
    schema.write_text((SCHEMA % "-").replace("    source: '-'\n", ""))
    replay = folder / "replay"
    replay.mkdir()
    (replay / "sale.jsonl").write_bytes(sales.read_bytes())
    write_jsonl(replay / "product.jsonl")
    return schema, replay


def write_jsonl(path: Path) -> None:
    names = ("pid", "name", "price")
    path.write_bytes(b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in PRODUCTS))


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("pid", "name", "price"), *PRODUCTS])


def write_parquet(path: Path) -> None:
    columns = list(zip(*PRODUCTS, strict=True))
    kinds = [pa.int32(), pa.string(), pa.float64()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    pq.write_table(pa.table(arrays, ["pid", "name", "price"]), path, row_group_size=2)


def write_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE product (pid INTEGER, name TEXT, price REAL)")
        connection.executemany("INSERT INTO product VALUES (?, ?, ?)", PRODUCTS)


def write_other(path: Path) -> None:
    write_sqlite(path.with_name("other"))


WRITERS: dict[str, Callable[[Path], None]] = {
    "p.jsonl": write_jsonl,
    "p.csv": write_csv,
    "p.parquet": write_parquet,
    "p.sqlite": write_sqlite,
    "sqlite:other": write_other,
}


def search_results(skws: Skws, paths: tuple[Path, Path], *options: str) -> list[dict[str, Any]]:
    schema, replay = paths
    outcome = skws("search", "lamp", "gift", "-s", schema, "-r", replay, "-f", "jsonl", *options)
    assert outcome.code == 0, outcome.err
    return outcome.records


@pytest.mark.check
@pytest.mark.parametrize("source", WRITERS)
@pytest.mark.parametrize("mesh", ["columnar", "full"])
def test_every_table_source_gives_the_same_results(
    skws: Skws, tmp_path: Path, source: str, mesh: str
) -> None:
    WRITERS[source](tmp_path / source)
    options = ["--engine", "local", "--mesh", mesh, *(["--rank", "relevance"] if mesh == "columnar" else [])]
    expected = search_results(skws, shop_in_replay(tmp_path), *options)
    assert len(expected) == 2
    assert search_results(skws, shop(tmp_path, source), *options) == expected


def test_a_table_may_be_a_folder_of_files(skws: Skws, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    write_csv(parts / "a.csv")
    (parts / "b.jsonl").write_text('{"pid": 1, "name": "a lamp now", "price": 1}\n')
    schema, sales = shop(tmp_path, "parts")
    results = search_results(skws, (schema, sales), "--engine", "local")
    assert [result["tuples"][0]["id"] for result in results] == ["product:2", "product:3"]
    schema.write_text(schema.read_text().replace("20 seconds", "'longest match [sale] .* [sale]'"))
    outcome = skws(
        "search", "lamp", "returned", "-s", schema, "-r", sales, "--engine", "local", "-f", "jsonl"
    )
    assert "a lamp now" in outcome.out, outcome.err


@pytest.mark.check
def test_a_table_in_postgresql_is_indexed_until_it_changes(
    skws: Skws, tmp_path: Path, database: Database
) -> None:
    database.run("CREATE TABLE product (pid integer, name text, price float)")
    values = ", ".join(
        f"({pid or 'NULL'}, {'NULL' if name is None else repr(name)}, {price or 'NULL'})"
        for pid, name, price in PRODUCTS
    )
    database.run(f"INSERT INTO product VALUES {values}")
    expected = search_results(skws, shop_in_replay(tmp_path), "--engine", "local")
    paths = shop(tmp_path, database.uri())
    assert search_results(skws, paths, "--engine", "local") == expected
    folders = cached_indexes()
    assert search_results(skws, paths, "--engine", "local") == expected
    assert cached_indexes() == folders
    database.run("UPDATE product SET name = 'chair' WHERE pid = 3")
    assert len(search_results(skws, paths, "--engine", "local")) == 1


def cached_indexes() -> list[tuple[str, int]]:
    """The cached indexes, and the times at which they were built."""
    return sorted((p.name, p.stat().st_mtime_ns) for p in cache_folder(TABLES).glob("*/*.index"))


def test_a_table_is_reindexed_only_when_its_data_changes(skws: Skws, tmp_path: Path) -> None:
    write_csv(tmp_path / "p.csv")
    paths = shop(tmp_path, "p.csv")
    first = search_results(skws, paths, "--engine", "local")
    indexes = cached_indexes()
    assert search_results(skws, paths, "--engine", "local") == first
    assert cached_indexes() == indexes
    (tmp_path / "p.csv").write_text("pid,name,price\n5,the only lamp,1\n")
    (result,) = search_results(skws, paths, "--engine", "local")
    assert result["tuples"][0]["row"]["name"] == "the only lamp"
    assert len(cached_indexes()) == 2
    (tmp_path / "p.csv").write_text("pid,name,price\n")
    assert search_results(skws, paths, "--engine", "local") == []
    assert len(cached_indexes()) == 2


@pytest.mark.parametrize(
    ("source", "text", "code", "message"),
    [
        ("none.csv", None, 4, "none.csv: no such file"),
        ("p.csv", "pid,name,price\n1,a,b\n", 5, "p.csv:2: product.price"),
        ("p.csv", "pid,title,price\n1,a,2\n", 5, "product has no attribute 'title'"),
        ("p.csv", "pid,name\n1,a\n", 0, ""),
        ("p.jsonl", '{"relation": "sale", "time": 1, "row": {"oid": 1}}\n', 5, "p.jsonl"),
        ("p.sqlite", "no database", 4, "p.sqlite: file is not a database"),
        ("ftp://x/y", None, 2, "ftp://x/y: expected files, sqlite:FILE or postgresql://... for a table"),
    ],
)
def test_an_invalid_table_source_is_reported(
    skws: Skws, tmp_path: Path, source: str, text: str | None, code: int, message: str
) -> None:
    if text is not None:
        (tmp_path / source).write_text(text)
    schema, sales = shop(tmp_path, source)
    outcome = skws("search", "lamp", "gift", "-s", schema, "-r", sales, "--engine", "local")
    assert outcome.code == code
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert (code == 5) == ("whatever --on-error says" in outcome.err)
    assert cached_indexes() == [] or code == 0


def test_stream_records_of_a_sourced_table_are_bad(skws: Skws, tmp_path: Path) -> None:
    write_csv(tmp_path / "p.csv")
    schema, sales = shop(tmp_path, "p.csv")
    sales.write_text('{"relation": "product", "row": {"pid": 1, "name": "x"}}\n')
    outcome = skws("search", "lamp", "gift", "-s", schema, "-r", sales, "--engine", "local")
    assert (outcome.code, "rows of product come only from its source" in outcome.err) == (5, True)


def test_only_a_table_may_have_a_source(skws: Skws, tmp_path: Path) -> None:
    schema, sales = shop(tmp_path, "p.csv")
    schema.write_text(schema.read_text().replace("    table: true\n", ""))
    outcome = skws("search", "lamp", "-s", schema, "-r", sales, "--engine", "local")
    assert (outcome.code, "add 'table: true'" in outcome.err) == (3, True)


def test_a_relative_cache_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors of Spark have other working folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKWS_CACHE", "cache")
    assert cache_folder(TABLES) == tmp_path / "cache" / TABLES


def test_an_unwritable_cache_is_reported(skws: Skws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "p.csv")
    schema, sales = shop(tmp_path, "p.csv")
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "p.csv"))
    outcome = skws("search", "lamp", "-s", schema, "-r", sales, "--engine", "local")
    assert (outcome.code, "SKWS_CACHE names another folder" in outcome.err) == (4, True)


def live_job(folder: Path, source: str) -> Job:
    schema, sales = shop(folder, source)
    return request(sales, queries={"lamp gift": "lamp gift"}, schema=load_schema(schema))


def test_a_live_search_joins_an_indexed_table(tmp_path: Path) -> None:
    write_parquet(tmp_path / "p.parquet")
    sink = Collected()
    watch = opened(live_job(tmp_path, "p.parquet"), sink)
    steps(watch)
    assert [r.tuples[0].id for r in sink.results] == ["product:2", "product:3"]


@pytest.mark.spark
def test_spark_joins_an_indexed_table_like_the_local_engine(
    skws: Skws, tmp_path: Path, spark: SparkSession
) -> None:
    write_parquet(tmp_path / "p.parquet")
    paths = shop(tmp_path, "p.parquet")
    assert search_results(skws, paths) == search_results(skws, paths, "--engine", "local")


@pytest.mark.spark
@pytest.mark.slow
def test_a_live_search_on_spark_joins_an_indexed_table(tmp_path: Path, spark: SparkSession) -> None:
    write_csv(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open("a") as file:
        file.write("9,bell,NaN\n")
    with running(live_job(tmp_path, "p.csv"), wanted=2) as run:
        run.results(2)
    assert sorted(r.tuples[0].id for r in run.sink.results) == ["product:2", "product:3"]
    assert sum("product.price: NaN and infinity are not numbers" in line for line in run.notes.lines) == 1


@given(st.lists(st.one_of(st.none(), st.text(max_size=12), st.sampled_from(ODD))))
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_postings_contain_every_matching_row(tmp_path: Path, texts: list[str | None]) -> None:
    schema = text_schema()
    path = tmp_path / "postings"
    with packed_folder(path) as folder, closing(ChunkCollector(folder)) as collector:
        collector.add(0, pa.array(texts[:3], pa.string()))
        collector.add(3, pa.array(texts[3:], pa.string()))
        collector.save(folder, piece=16)  # two positions of words at a time
    postings = Postings(IndexFile(path))
    words = [word for text in texts if text for word in text.split()]
    for word in {"lamp*", '"lamp post"', "flat", *words}:
        try:
            matcher = Matcher(parse_query(word, schema), schema)
        except QueryError:  # not every word can be searched
            continue
        row_numbers = [postings.containing(alternative) for _, alternative in matcher.alternatives()]
        candidates = set(np.concatenate(row_numbers).tolist())
        assert {n for n, text in enumerate(texts) if matcher.bitmap(0, (text,))} <= candidates


@pytest.mark.check
def test_arrow_white_space_never_splits_a_token() -> None:
    """Arrow splits the texts of the index, and Python those of rows, at the white space known to Arrow."""
    characters = [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
    part_counts = pc.list_value_length(
        pc.utf8_split_whitespace(pa.array([f"a{c}b" for c in characters]))
    ).to_pylist()
    white_space = [char for char, count in zip(characters, part_counts, strict=True) if count == 2]
    assert len(white_space) > 20
    for char in white_space:
        assert {token.stem for token in tokens(f"a{char}b")} == {"a", "b"}, hex(ord(char))


def text_schema() -> Schema:
    return Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())


def test_missing_table_values_are_reported_on_every_search(skws: Skws, tmp_path: Path) -> None:
    write_csv(tmp_path / "p.csv")
    write_sqlite(tmp_path / "p.db")
    with (tmp_path / "p.csv").open("a") as file:
        file.write("9,lamp,NaN\n")
    with closing(sqlite3.connect(tmp_path / "p.db")) as connection, connection:
        connection.execute("INSERT INTO product VALUES (9, 'lamp', 9e999)")
    for source in ("p.csv", "sqlite:p.db"):
        schema, sales = shop(tmp_path, source)
        for _ in range(2):
            outcome = skws("search", "gift", "lamp", "--replay", sales, "--schema", schema)
            assert outcome.code == 0, outcome.err
            assert (
                "product.price: NaN and infinity are not numbers, so they are missing (1 value)"
                in outcome.err
            )


def test_missing_table_values_are_reported_live_and_in_python(tmp_path: Path) -> None:
    write_csv(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open("a") as file:
        file.write("9,lamp,NaN\n")
    schema, sales = shop(tmp_path, "p.csv")
    note = "product.price: NaN and infinity are not numbers, so they are missing"
    results = skws.search("gift lamp", sales, schema=schema)
    assert list(results)
    assert results.bad.passed_over == {note: 1}
    with pytest.warns(UserWarning, match=f"ignored: {note}"):
        session = skws.Session(schema)
    assert session.bad.passed_over == {note: 1}
    for _ in range(2):
        notes = Notes()
        watch = opened(Job({"gift": "gift lamp"}, load_schema(schema), str(sales)), notes=notes)
        watch.close()
        assert sum(note in line for line in notes.lines) == 1


def test_a_replay_needs_no_file_for_a_sourced_table(tmp_path: Path) -> None:
    write_csv(tmp_path / "p.csv")
    schema, sales = shop(tmp_path, "p.csv")
    parsed_schema = load_schema(schema)
    assert len(Replay.open(sales, parsed_schema).splits) == 1
    (table,) = open_tables(parsed_schema)
    assert len(table) == 5
    assert table.texts == {1: (4, sum(len(n) for _, n, _ in [PRODUCTS[0], *PRODUCTS[2:4], PRODUCTS[5]] if n))}
