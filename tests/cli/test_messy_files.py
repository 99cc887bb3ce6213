"""Files as found in practice, without a schema: each is searched, or a message says what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.sources.folder import listing
from skws_schema.yaml.load import load_schema
from tests.commands import Skws

PEOPLE = "id,name,city\n1,Ada Byron,Leeds\n2,Grace Murray,York\n"
ROWS = [{"id": 1, "name": "Ada Byron", "city": "Leeds"}, {"id": 2, "name": "Grace Murray", "city": "York"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
NESTED = [
    {"id": 1, "who": {"name": "Ada Byron", "home": {"city": "Leeds"}}, "tags": ["tea cup", "kettle"]},
    {"id": 2, "who": {"name": "Grace Murray", "home": {"city": "York"}}, "tags": []},
]


def zip_bytes(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def parquet_bytes(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


PREAMBLES = [
    "Sales report of May",
    "Sales report of May\n",
    "Sales report,,\n,,",
    "People, all of them",
    "People: all\nof them\n",
    "# written by x, on y\n# and z",
    "# written by x, on y, at z\n# and more",
    "# made",
    "#made, of old\n",
]


SEARCHABLE: list[tuple[str, str, bytes, str]] = [
    ("a plain file", "people.csv", PEOPLE.encode(), "Ada Byron"),
    ("a byte order mark", "people.csv", b"\xef\xbb\xbf" + PEOPLE.encode(), "Ada Byron"),
    ("UTF-16 of Excel", "people.csv", PEOPLE.encode("utf-16"), "Ada Byron"),
    ("big-endian UTF-16", "people.csv", b"\xfe\xff" + PEOPLE.encode("utf-16-be"), "Ada Byron"),
    ("UTF-16 of JSON lines", "people.jsonl", LINES.encode("utf-16"), "Ada Byron"),
    ("UTF-16 without a byte order mark", "people.csv", PEOPLE.encode("utf-16-le"), "Ada Byron"),
    ("big-endian UTF-16 without a byte order mark", "people.csv", PEOPLE.encode("utf-16-be"), "Ada Byron"),
    ("line endings of old Macs", "people.csv", PEOPLE.replace("\n", "\r").encode(), "Ada Byron"),
    (
        "line endings of old Macs in UTF-16",
        "people.csv",
        PEOPLE.replace("\n", "\r").encode("utf-16"),
        "Ada Byron",
    ),
    (
        "line endings of old Macs in JSON lines",
        "people.jsonl",
        LINES.replace("\n", "\r").encode(),
        "Ada Byron",
    ),
    (
        "a line that names the separator",
        "people.csv",
        b"sep=;\n" + PEOPLE.replace(",", ";").encode(),
        "Ada Byron",
    ),
    (
        "a line of Excel that names the separator",
        "people.csv",
        f"sep=;\r\n{PEOPLE.replace(',', ';')}".encode("utf-16"),
        "Ada",
    ),
    (
        "a line that names an unusual separator",
        "people.csv",
        b"sep=^\n" + PEOPLE.replace(",", "^").encode(),
        "Ada Byron",
    ),
    ("one more field than the header", "people.csv", b"id,name\n1,Bo,Ada Byron\n2,Cy,x\n", "Ada Byron"),
    ("line endings of Windows", "people.csv", PEOPLE.replace("\n", "\r\n").encode(), "Ada Byron"),
    ("no newline at the end", "people.csv", PEOPLE.rstrip("\n").encode(), "Ada Byron"),
    ("semicolons", "people.csv", PEOPLE.replace(",", ";").encode(), "Ada Byron"),
    ("tabs", "people.tsv", PEOPLE.replace(",", "\t").encode(), "Ada Byron"),
    ("vertical bars", "people.csv", PEOPLE.replace(",", "|").encode(), "Ada Byron"),
    ("blank lines before and after", "people.csv", b"\n\n" + PEOPLE.encode() + b"\n\n", "Ada Byron"),
    ("blanks in the header", "people.csv", PEOPLE.replace("name", " Full Name ").encode(), "Ada Byron"),
    (
        "a header that names a column twice",
        "people.csv",
        b"name,name\nx y,Ada Byron\nz w,Bo Ek\n",
        "Ada Byron",
    ),
    ("a column without a name", "people.csv", b",name\n0,Ada Byron\n1,Bo Ek\n", "Ada Byron"),
    ("symbols in the header", "people.csv", "€ %,the.name\n1,Ada Byron\n2,Bo Ek\n".encode(), "Ada Byron"),
    ("a file name with blanks", "2024 people (1).csv", PEOPLE.encode(), "Ada Byron"),
    ("an upper-case suffix", "People.CSV", PEOPLE.encode(), "Ada Byron"),
    ("quoted newlines", "people.csv", b'id,name\n1,"Ada\nByron"\n2,"Bo ""E"" Ek"\n', "Byron"),
    ("empty fields at the end", "people.csv", PEOPLE.replace("Leeds", "Leeds,,").encode(), "Ada Byron"),
    ("numbers, texts and empty fields", "mixed.csv", b"v,w\n1,Ada Byron\nx,2\n,3.5\n", "Ada Byron"),
    (
        "values of several types",
        "mixed.jsonl",
        b'{"v":"Ada Byron"}\n{"v":1.5}\n{"v":true}\n{"v":null}\n',
        "Ada Byron",
    ),
    ("gzip", "people.csv.gz", gzip.compress(PEOPLE.encode()), "Ada Byron"),
    ("bzip2", "people.jsonl.bz2", bz2.compress(LINES.encode()), "Ada Byron"),
    ("zip", "people.csv.zip", zip_bytes({"people.csv": PEOPLE}), "Ada Byron"),
    ("an array", "people.json", json.dumps(ROWS, indent=2).encode(), "Ada Byron"),
    ("an array in gzip", "people.json.gz", gzip.compress(json.dumps(ROWS).encode()), "Ada Byron"),
    ("one object over several lines", "people.json", json.dumps(ROWS[0], indent=2).encode(), "Ada Byron"),
    ("JSON lines in a .json file", "people.json", LINES.encode(), "Ada Byron"),
    ("nested objects and arrays", "people.json", json.dumps(NESTED).encode(), "Ada Byron"),
    ("a text in an array", "people.json", json.dumps(NESTED).encode(), "tea cup"),
    (
        "a field that not all objects have",
        "people.jsonl",
        LINES.encode() + b'{"id":3,"more":"Bo Ek"}\n',
        "Bo Ek",
    ),
    (
        "an object where others have a value",
        "people.jsonl",
        b'{"n":"Bo","who":1}\n{"who":{"x":"Ada Byron"}}\n',
        "Ada",
    ),
    ("nested columns of Parquet", "people.parquet", parquet_bytes(NESTED), "Ada Byron"),
    ("records of relations", "any.jsonl", b'{"relation":"people","row":{"n":"Ada Byron"}}\n', "Ada Byron"),
]
"""The peculiarity, the name and content of the file, and words that a search finds."""
REPORTED: list[tuple[str, str, bytes, int, str]] = [
    (
        "Latin-1 in some rows",
        "people.csv",
        PEOPLE.encode() + "3,Zoë Ek,Malmö\n".encode("latin-1"),
        0,
        "iconv -f",
    ),
    ("Latin-1 in JSON", "people.jsonl", LINES.encode() + '{"name":"Zoë"}\n'.encode("latin-1"), 0, "iconv -f"),
    ("rows of other lengths", "people.csv", PEOPLE.encode() + b"3\n4,x,y,z\n", 0, "the header names 3"),
    ("an open quote", "people.csv", PEOPLE.encode() + b'3,"Bo,York\n', 0, "a quoted field is never closed"),
    ("lines that are not JSON", "people.jsonl", LINES.encode() + b"oops\n", 0, "not JSON"),
    ("an empty file", "people.csv", b"", 4, "no records in"),
    ("only a header", "people.csv", b"id,name\n", 4, "no records in"),
    ("an empty array", "people.json", b"[]", 4, "no records in"),
    (
        "objects of several lines each",
        "people.json",
        b'{\n"a":1\n}\n{\n"a":2\n}\n',
        4,
        "into JSON lines: jq -c .",
    ),
    ("truncated UTF-16", "people.csv", PEOPLE.encode("utf-16")[:-1], 4, "save it as UTF-8"),
    (
        "truncated gzip",
        "people.csv.gz",
        gzip.compress(PEOPLE.encode())[:-9],
        4,
        "the gzip stream is cut off",
    ),
    (
        "zip of two files",
        "people.csv.zip",
        zip_bytes({"a.csv": PEOPLE, "b.csv": PEOPLE}),
        4,
        "unpack it first",
    ),
    (
        "a .zip file that is not a zip archive",
        "people.csv.zip",
        PEOPLE.encode(),
        4,
        "people.csv.zip: cannot read",
    ),
    ("Excel", "people.xlsx", b"PK\x03\x04", 4, "unknown format; replay files end in .jsonl"),
    ("a .parquet file that is not Parquet", "people.parquet", b"PAR1", 4, "cannot read as Parquet"),
    ("a .sqlite file that is not a database", "people.sqlite", b"text", 4, "not a database"),
]
"""The fault, the name and content of the file, the exit code, and a part of the message."""


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))


@pytest.mark.parametrize(
    ("name", "content", "words"), [case[1:] for case in SEARCHABLE], ids=[case[0] for case in SEARCHABLE]
)
@pytest.mark.parametrize("command", ["search", "watch"])
def test_messy_files_are_searched(
    skws: Skws, tmp_path: Path, command: str, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    source = (path,) if command == "search" else (f"replay:{path}?speed=1e12",)
    outcome = skws(command, *source, words, "-f", "jsonl")
    assert outcome.code == 0, outcome.err
    assert len(outcome.records) == 1, outcome.err
    text = json.dumps([tuple_["row"] for tuple_ in outcome.records[0]["tuples"]])
    assert all(word in text for word in words.split())
    assert " bad" not in outcome.err
    assert path.with_name(f"{name}.schema.yaml").is_file()


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [case[1:] for case in REPORTED],
    ids=[case[0] for case in REPORTED],
)
def test_unreadable_parts_of_messy_files_are_reported(
    skws: Skws, tmp_path: Path, name: str, content: bytes, code: int, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    outcome = skws("search", tmp_path / name, "ada", "-f", "jsonl")
    assert (outcome.code, message in outcome.err) == (code, True), outcome.err
    assert len(outcome.records) == (code == 0)  # valid records are searched
    assert "Traceback" not in outcome.err


CODES = {
    "AB-1234": "ab-1234",
    "0306406152": "0306406152",
    "ada@example.org": "ada@example.org",
    "https://shop.example/p/17?from=mail": "https://shop.example/p/17?from=mail",
    "6fa459ea-ee8a-3ca4-894e-db77e160355e": "6fa459ea-ee8a-3ca4-894e-db77e160355e",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "PG-13": "pg-13",
    "+49 30 901820": "901820",
    "USA": "usa",
}
"""Values of columns without words, and the keyword that finds each."""


@pytest.mark.check
@pytest.mark.parametrize(("code", "keyword"), CODES.items())
@pytest.mark.parametrize("kind", ["csv", "jsonl", "db"])
def test_codes_without_words_are_searchable(
    skws: Skws, tmp_path: Path, kind: str, code: str, keyword: str
) -> None:
    data = tmp_path / f"items.{kind}"
    other = "".join(chr(ord(c) + 1) if c.isalnum() and c not in "9zZ" else c for c in code)
    rows = [{"n": 1, "code": other}, {"n": 2, "code": code}]
    if kind == "db":
        with closing(sqlite3.connect(data)) as connection, connection:
            connection.execute("CREATE TABLE items (n INTEGER, code TEXT PRIMARY KEY)")
            connection.executemany("INSERT INTO items VALUES (:n, :code)", rows)
    else:
        lines = [f"{row['n']},{row['code']}" for row in rows]
        csv = "n,code\n" + "\n".join(lines)
        data.write_text(csv if kind == "csv" else "\n".join(map(json.dumps, rows)))
    outcome = skws("search", data, f'"{keyword}"' if ":" in keyword else keyword, "-f", "jsonl")
    assert outcome.code == 0, outcome.err
    assert [tuple_["row"]["n"] for result in outcome.records for tuple_ in result["tuples"]] == [2]


def test_a_code_finds_its_own_row_but_no_references_to_it(skws: Skws, tmp_path: Path) -> None:
    data = tmp_path / "shop"
    data.mkdir()
    (data / "item.csv").write_text("sku,name\n" + "".join(f"AB-{n},thing {n}\n" for n in range(9)))
    (data / "sale.csv").write_text("sku,who\n" + "".join(f"AB-{n % 9},Bo Ek\n" for n in range(50)))
    outcome = skws("search", data, "ab-7", "-f", "jsonl")
    assert [[tuple_["relation"] for tuple_ in result["tuples"]] for result in outcome.records] == [["item"]]
    draft = (tmp_path / "shop.schema.yaml").read_text()
    assert "refers to item, where it is searched" in draft
    assert len(skws("search", data, "ab-7", "ek", "-f", "jsonl").records) == 5


@pytest.mark.parametrize("command", ["search", "watch"])
def test_numbered_files_of_a_folder_are_one_relation(skws: Skws, tmp_path: Path, command: str) -> None:
    (tmp_path / "shop" / "order").mkdir(parents=True)
    (tmp_path / "shop" / "people.csv").write_text(PEOPLE)
    for number in range(1, 12):
        order = {"number": number, "people_id": 1 + number % 2, "item": {"name": "tea kettle"}}
        (tmp_path / "shop" / "order" / f"{number}.json").write_text(json.dumps(order))
    outcome = skws(command, tmp_path / "shop", "byron", "kettle", "-f", "jsonl", "--limit", 5)
    assert "inferred 2 relations: " in outcome.err
    assert {
        tuple(sorted(tuple_["relation"] for tuple_ in result["tuples"])) for result in outcome.records
    } == {("order", "people")}


def mixed_folder(folder: Path) -> Path:
    """A folder with a CSV table, a JSON array, a README, an image, an empty file and a hidden file."""
    (folder / "more").mkdir(parents=True)
    (folder / "people.csv").write_text(PEOPLE)
    (folder / "more" / "orders.json").write_text(
        json.dumps([{"order": n, "people_id": 1 + n % 2, "item": "tea kettle"} for n in range(6)])
    )
    (folder / "README.md").write_text("notes")
    (folder / "logo.png").write_bytes(b"\x89PNG")
    (folder / "empty.csv").write_text("")
    (folder / ".hidden").write_text("x")
    return folder


def shop_database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """CREATE TABLE people ("people id" INTEGER PRIMARY KEY, "full name" TEXT);
            CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT,
                "who?" INTEGER REFERENCES people ("people id"));
            INSERT INTO people VALUES (1, 'Grace Murray'), (2, 'Ada Byron');
            INSERT INTO orders VALUES (1, 'tea kettle', 2), (2, 'lamp', 1);"""
        )
    return path


@pytest.mark.parametrize("command", ["search", "watch"])
@pytest.mark.parametrize(
    "create", [lambda p: mixed_folder(p / "shop"), lambda p: shop_database(p / "shop.db")]
)
def test_folders_and_databases_are_joined(
    skws: Skws, tmp_path: Path, command: str, create: Callable[[Path], Path]
) -> None:
    data = create(tmp_path)
    outcome = skws(command, data, "byron", "kettle", "-f", "jsonl", "--limit", 1)
    assert outcome.code == 0, outcome.err
    (result,) = outcome.records
    assert sorted(tuple_["relation"] for tuple_ in result["tuples"]) == ["orders", "people"]
    assert "1 join: " in outcome.err
    if data.is_dir() and command == "search":  # a watch stops at the limit, before it lists files again
        assert "README.md" in outcome.err
        assert "logo.png" in outcome.err
        assert ".hidden" not in outcome.err


@pytest.mark.parametrize("preamble", PREAMBLES)
@pytest.mark.parametrize("command", ["search", "watch"])
def test_text_before_the_header_is_skipped_with_a_note(
    skws: Skws, tmp_path: Path, preamble: str, command: str
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"{preamble}\n{PEOPLE}3,Bo,Ek,x\n")
    source = [path, "byron"] if command == "search" else ["byron", "--source", f"replay:{path}?speed=1e9"]
    outcome = skws(command, *source, "--format", "jsonl")
    assert [tuple_["row"]["id"] for result in outcome.records for tuple_ in result["tuples"]] == [1]
    assert "ignored: text before the header in people.csv" in outcome.err
    line = preamble.count("\n") + 5
    assert f"people.csv:{line}: 4 fields, but the header names 3" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "name\nAda Byron\nBo, Ek\n",
        "name,city\nAda Byron,Leeds\n",
        "id,name,a,b\n1,Ada Byron,,\n2,Bo Ek,,\n",
        "#id,name\n1,Ada Byron\n2,Bo Ek\n",
        "what is told\nAda Byron\n",
    ],
)
def test_a_header_is_not_mistaken_for_a_title(skws: Skws, tmp_path: Path, text: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text)
    outcome = skws("search", path, "byron", "--format", "jsonl")
    assert len(outcome.records) == 1
    assert "before the header" not in outcome.err
    schema = Path(f"{path}.schema.yaml").read_text()
    assert all(name.strip() in schema for name in text.splitlines()[0].split(","))


def test_a_file_in_another_encoding_is_rejected_with_a_remedy(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("id,name\n1,Zoë Byron\n".encode("latin-1"))
    outcome = skws("search", path, "byron")
    assert outcome.code == 4
    assert "people.csv:2: not UTF-8: b'\\xeb'; save the file as UTF-8, as by iconv" in outcome.err


def test_a_header_that_looks_like_values_is_reported(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("1,Ada Byron,2026-01-01\n2,Bo Ek,2026-01-02\n")
    assert "columns of people are called 1, 2026-01-01: if these are values" in skws("search", path, "ek").err


def test_empty_texts_are_omitted_from_table_rows(skws: Skws, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [("kettle", "", "attic"), ("lamp", "red", " ")]
    lines = [json.dumps(dict(zip(("name", "colour", "place"), row, strict=True))) for row in rows]
    path.write_text("\n".join(lines))
    for words, match in (("kettle", "kettle - attic"), ("lamp", "lamp - red")):
        line = skws("search", path, words, "--format", "table", "-q").out.splitlines()[-1]
        assert line.endswith(f"  {match}")


def numbered_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number, text in enumerate(("Ada Byron", "Bo Ek")):
        (folder / f"people{number}.csv").write_text(f"id,name\n{number},{text}\n")
    return folder


@pytest.mark.parametrize(
    ("start", "source"), [("people", "."), ("people/sub", ".."), ("people", "../people")]
)
def test_a_folder_of_numbered_files_is_searched_from_inside(
    skws: Skws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, source: str
) -> None:
    numbered_files(tmp_path / "people")
    (tmp_path / start).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / start)
    outcome = skws("search", source, "byron", "--format", "jsonl")
    assert [record["network"] for record in outcome.records] == ["people{byron}"]
    assert [
        file.named_relation
        for file in listing(Path(source), load_schema(tmp_path / "people.schema.yaml")).files
    ] == [0, 0]


def test_links_to_numbered_files_are_named_after_their_own_folder(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    for file in numbered_files(tmp_path / "people").iterdir():
        (tmp_path / "links" / file.name).symlink_to(file)
    outcome = skws("search", tmp_path / "links", "byron", "--format", "jsonl")
    assert [record["network"] for record in outcome.records] == ["links{byron}"]


def test_folders_of_partitions_hold_one_relation(skws: Skws, tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / "shop" / "orders" / f"year=2026/day={day}"
        folder.mkdir(parents=True)
        (folder / "part-00000-3f2a.c000.csv").write_text(f"oid,item\n{day},kettle number{day}\n")
    for source in (tmp_path / "shop", tmp_path / "shop" / "orders"):
        outcome = skws("search", source, "kettle", "--format", "jsonl")
        assert [record["network"] for record in outcome.records] == ["orders{kettle}"] * 2
        watched = skws("watch", source, "kettle", "--limit", "2", "-f", "jsonl")
        assert [record["network"] for record in watched.records] == ["orders{kettle}"] * 2
    day_folder = tmp_path / "shop" / "orders" / "year=2026" / "day=1"
    outcome = skws("search", day_folder, "kettle", "--format", "jsonl")
    assert [record["network"] for record in outcome.records] == ["day_1{kettle}"]


def test_a_series_of_files_may_have_a_folder_between_them(skws: Skws, tmp_path: Path) -> None:
    folder = tmp_path / "people"
    (folder / "1").mkdir(parents=True)
    for name in ("1.csv", "2.csv"):
        (folder / name).write_text(PEOPLE)
    (folder / "1" / "orders.csv").write_text("oid,item\n1,kettle\n")
    outcome = skws("search", folder, "byron", "--format", "jsonl")
    assert {record["network"] for record in outcome.records} == {"people{byron}"}


@pytest.mark.parametrize("source", [".shop", ".shop/.orders.csv"])
def test_hidden_folders_and_files_are_searched(skws: Skws, tmp_path: Path, source: str) -> None:
    (tmp_path / ".shop").mkdir()
    for name in ("orders.csv", ".orders.csv"):
        (tmp_path / ".shop" / name).write_text("oid,item\n1,kettle\n")
    for _ in range(2):  # the second time with the stored schema
        outcome = skws("search", tmp_path / source, "kettle", "--format", "jsonl")
        assert [record["network"] for record in outcome.records] == ["orders{kettle}"]


def test_a_single_part_file_is_searched(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    path = tmp_path / "people" / "part-0.csv"
    path.write_text(PEOPLE)
    for source, name in ((path, "part-0"), (path.parent, "people")):
        outcome = skws("search", source, "byron", "--format", "jsonl")
        assert [record["network"] for record in outcome.records] == [f"{name}{{byron}}"]


def test_columns_that_only_look_like_numbers_and_times_are_reported(tmp_path: Path, skws: Skws) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,boss,paid\n" + "".join(f'{n},{n // 2 or "NULL"},"{n},50"\n' for n in range(1, 9)))
    assert (
        "read as text, also by conditions:"
        " people.boss (whole numbers, but for the text 'NULL' in 1 of 8 values),"
        " people.paid (numbers with a decimal comma)\n"
    ) in skws("search", path, "x").err
    path.write_text(path.read_text().replace("NULL", ""))
    err = skws("search", path, "x").err
    assert "1 join: people.boss = people.id" in err
    assert "read as text, also by conditions: people.paid" in err


def test_names_of_columns_in_another_encoding_are_reported(tmp_path: Path, skws: Skws) -> None:
    path = tmp_path / "stock.csv"
    path.write_bytes("Stückzahl;article\n1;lamp\n2;desk\n".encode("cp1252"))
    outcome = skws("search", path, "lamp")
    assert "warning: the names of columns of stock are not UTF-8; save the file as UTF-8" in outcome.err
    assert len(outcome.out.splitlines()) == 2
    path.write_text("Stückzahl;article\n1;lamp\n2;desk\n")
    assert "UTF-8" not in skws("search", path, "lamp").err


@pytest.mark.parametrize("name", ["export.zip", "export.gz", "export.BZ2"])
def test_a_compressed_file_without_a_second_suffix_is_named(tmp_path: Path, skws: Skws, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(b"x")
    (tmp_path / "in" / "a.csv").write_text("id,text\n1,lamp\n")
    advice = f"give it a name that says what it holds, such as export.csv{name[6:]}"
    outcome = skws("search", tmp_path / "in" / name, "lamp")
    assert outcome.code == 4
    assert advice in outcome.err
    outcome = skws("search", tmp_path / "in", "lamp")
    assert len(outcome.out.splitlines()) == 2
    assert advice in outcome.err


def test_skipped_files_that_could_be_read_in_another_form_are_named_first(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "in").mkdir()
    for name in ("README.txt", "a.png", "b.png", "c.png", "report.xlsx"):
        (tmp_path / "in" / name).write_bytes(b"x")
    (tmp_path / "in" / "a.csv").write_text("id,text\n1,lamp\n")
    err = skws("search", tmp_path / "in", "lamp").err
    lines = [line for line in err.splitlines() if line.startswith("skipped: ")]
    assert "report.xlsx" in lines[0]
    assert lines[0].endswith("; save its sheets as .csv")
    assert lines[-1] == "skipped: 2 more files"


def test_milliseconds_since_the_epoch_are_reported(tmp_path: Path, skws: Skws) -> None:
    path = tmp_path / "log.jsonl"
    lines = [
        f'{{"ts": {1709280000000 + 1000 * n}, "size": {1709280000000 + n}, "msg": "lamp"}}\n'
        for n in range(9)
    ]
    path.write_text("".join(lines))
    err = skws("search", path, "lamp").err
    assert (
        "not read as times: log.ts"
        " (milliseconds since the epoch, by the name; skws reads seconds, or ISO 8601)\n"
    ) in err
    path.write_text("".join(lines).replace('000, "size', ', "size'))
    outcome = skws("search", path, "lamp")
    assert "not read as times" not in outcome.err
    assert "2024-03-01T08:00:00Z" in outcome.out


def test_the_schema_of_a_file_whose_name_is_not_utf_8_is_inferred(tmp_path: Path, skws: Skws) -> None:
    path = tmp_path / os.fsdecode(b"m\xfc.csv")
    try:
        path.write_text("name,room\nada,1\nbob,2\n")
    except OSError:  # as on macOS
        pytest.skip("the file system only has names in UTF-8")
    assert skws("search", path, "ada").code == 0
