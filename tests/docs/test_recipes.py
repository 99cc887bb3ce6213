"""The recipes run against a Kafka broker, a PostgreSQL server and a Spark cluster on this machine."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socketserver
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from email import message_from_bytes
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import skws
from docs.page_files import files
from tests.commands import FOLDER
from tests.conftest import partitioned
from tests.docs.blocks import Block, matches, steps
from tests.docs.shell import Shell, text, with_places
from tests.kafka import MockBroker
from tests.kafka_broker import Broker
from tests.places import ROOT
from tests.postgres import Database
from tests.spark.test_submit import cluster
from tests.waiting import until

pytestmark = pytest.mark.check

RECIPES = ROOT / "docs" / "recipes"
CLUSTER = ROOT / "docs" / "cluster.md"
LIVE_PAGES = str(ROOT / "tests" / "docs" / "test_live_pages.py")
FILM = {
    "director": {"did": 1, "name": "Quentin Tarantino"},
    "movie": {"mid": 2, "title": "Pulp Fiction", "did": 1, "released": "1994-10-14"},
    "plays": {"mid": 2, "aid": 3, "role": "Vincent Vega"},
    "actor": {"aid": 3, "name": "John Travolta"},
}
TABLES = (
    "CREATE TABLE director (did int PRIMARY KEY, name text)",
    "CREATE TABLE movie (mid int PRIMARY KEY, title text, did int, released timestamptz)",
    "CREATE TABLE plays (mid int, aid int, role text, PRIMARY KEY (mid, aid))",
    "CREATE TABLE actor (aid int PRIMARY KEY, name text)",
    "INSERT INTO director VALUES (1, 'Quentin Tarantino')",
    "INSERT INTO movie VALUES (2, 'Pulp Fiction', 1, '1994-10-14')",
    "INSERT INTO plays VALUES (2, 3, 'Vincent Vega')",
    "INSERT INTO actor VALUES (3, 'John Travolta')",
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    new_shell = Shell(tmp_path)
    yield new_shell
    new_shell.close()


def test_the_csv_folder_recipe_searches_and_watches_files(shell: Shell, tmp_path: Path) -> None:
    search, watch = steps(RECIPES / "csv-folder.md", __file__, tmp_path)
    output = shell.run(search)
    assert search.output is not None
    assert matches(search.output, output), output
    assert "from: Order ID" in (tmp_path / "shop.schema.yaml").read_text()
    output_file = shell.start(watch)
    until(lambda: "The lid leaks" in text(output_file))
    with (tmp_path / "shop" / "complaint.csv").open("a") as file:
        file.write("1,It leaks again.,2026-03-01T11:00:00Z\n")
    until(lambda: "It leaks again" in text(output_file))
    shell.interrupt()


@pytest.mark.parametrize("page", ["add-a-join.md", "json-of-an-api.md", "best-first.md"])
def test_recipes_for_joining_data_give_their_output(shell: Shell, tmp_path: Path, page: str) -> None:
    recipe_steps = steps(RECIPES / page, __file__, tmp_path)
    assert recipe_steps
    for step in recipe_steps:
        output = shell.run(step, notes=True)
        assert step.output is not None
        assert matches(step.output, output), output


SHOP = files(ROOT / "docs" / "tutorial.md")["shop.sql"]


class _MailServer(socketserver.StreamRequestHandler):
    """Accepts mail over SMTP."""

    mails: list[str] = []  # noqa: RUF012 - one test uses it

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            command = line.decode().strip().upper()
            if command == "DATA":
                self.wfile.write(b"354 go on\r\n")
                self.mails.append("".join(part.decode() for part in iter(self.rfile.readline, b".\r\n")))
            if command == "QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


def test_the_mail_recipe_sends_results(tmp_path: Path) -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _MailServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_address[1]}"
    shell = Shell(tmp_path, MAIL_HOST=host, MAIL_FROM="skws@example.org")
    try:
        shell.run(Block(steps(ROOT / "README.md", LIVE_PAGES, tmp_path)[0].commands[:4], None, None, None, 0))
        (watch,) = steps(RECIPES / "mail.md", __file__, tmp_path)
        shell.start(watch)
        until(lambda: _MailServer.mails)
        shell.interrupt()
    finally:
        shell.close()
        server.shutdown()
        server.server_close()
    (mail,) = _MailServer.mails
    assert "To: ann@example.org" in mail
    assert "Subject: 1 new: leaks" in mail
    body = message_from_bytes(mail.encode()).get_payload(decode=True)
    assert isinstance(body, bytes)
    assert "Ada Byron · " in body.decode()


def test_the_postgresql_in_python_recipe_runs(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database.run(SHOP)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    page = (RECIPES / "postgresql-in-python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        code = block.replace("postgresql://localhost/shop", database.uri())
        exec(compile(code, "postgresql-in-python.md", "exec"), names)
    output = capsys.readouterr().out
    assert output.count("complaint{leaks}") == 3
    assert "'item': 'travel kettle'" in output


def _fill(folder: Path) -> sqlite3.Connection:
    """The shop in SQLite, which replaces MySQL here and quotes names the same way."""
    connection = sqlite3.connect(folder / "mysql.db")
    connection.executescript(re.sub(r"REFERENCES \w+", "", SHOP))
    return connection


def test_the_mysql_and_excel_recipe_searches_tables_and_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = RECIPES / "mysql-and-excel.md"
    export, _ = steps(page, __file__, tmp_path)
    _fill(tmp_path).close()
    (tmp_path / "pymysql.py").write_text(
        "import sqlite3\ndef connect(**_):\n    return sqlite3.connect('mysql.db')\n"
    )
    program = files(page)["export.py"]
    assert "SHOW TABLES" in program
    tables = program.replace("SHOW TABLES", "SELECT name FROM sqlite_master WHERE type = 'table'")
    (tmp_path / "export.py").write_text(tables)
    shell = Shell(tmp_path, MYSQL_PWD="secret")
    try:
        output = shell.run(export, notes=True)
    finally:
        shell.close()
    assert export.output is not None
    assert matches(export.output, output), output

    (tmp_path / "again").mkdir()
    connection = _fill(tmp_path / "again")
    sheets = {
        name: pd.read_sql(f"SELECT * FROM {name}", connection)
        for name in ("customer", "purchase", "complaint")
    }
    connection.close()
    monkeypatch.setattr(pd, "read_excel", lambda *_, **__: sheets)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    exec(compile(block, page.name, "exec"), {})
    assert capsys.readouterr().out == "customer{byron} - purchase{} - complaint{leaks}\n"


def test_the_mysql_recipe_reads_changes_from_kafka(shell: Shell, tmp_path: Path) -> None:
    rows = {
        "customer": {"cid": 7, "name": "Ada Byron"},
        "purchase": {"pid": 1, "cid": 7, "item": "travel kettle"},
        "complaint": {"nr": 1, "pid": 1, "body": "The lid leaks."},
    }
    with closing(Broker()) as broker:
        for table in rows:
            broker.create(f"mysql.shop.{table}")
        _, watch = steps(RECIPES / "mysql-and-excel.md", __file__, tmp_path)
        output_file = shell.start(with_places(watch, {"one:9092": broker.address}))
        producer = Producer({"bootstrap.servers": broker.address})
        for table, row in rows.items():
            source = {"connector": "mysql", "db": "shop", "table": table, "ts_ms": 1_770_000_000_000}
            event = {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 1_770_000_000_000}
            producer.produce(f"mysql.shop.{table}", json.dumps(event))
        assert producer.flush(60) == 0
        until(lambda: "complaint{leaks}" in text(output_file))
        shell.interrupt()


@pytest.fixture
def films() -> Iterator[Broker]:
    with closing(Broker()) as broker:
        for topic in (*FILM, "alerts"):
            broker.create(topic)
        yield broker


def send(films: Broker, **rows: dict[str, object]) -> None:
    """Sends rows with the time of the film's release; with a later time, the film could arrive late."""
    producer = Producer({"bootstrap.servers": films.address})
    day = datetime(1994, 10, 14, tzinfo=UTC)
    for topic, row in rows.items():
        producer.produce(topic, json.dumps(row), timestamp=round(1000 * day.timestamp()))
    assert producer.flush(60) == 0


@pytest.mark.parametrize("page", ["recipes/kafka.md", "sources.md"])
def test_commands_for_kafka_run(shell: Shell, tmp_path: Path, films: Broker, page: str) -> None:
    shutil.copy(FOLDER / "schema.yaml", tmp_path / "films.yaml")
    hosts = {"one:9092,two:9092": films.address, "one:9092": films.address}
    search, *alerts = (with_places(step, hosts) for step in steps(ROOT / "docs" / page, __file__, tmp_path))
    output_file = shell.start(search)
    until(lambda: any((tmp_path / "run" / "journal").glob("*.log")))
    send(films, **FILM)
    until(lambda: "director{tarantino}" in text(output_file))
    shell.interrupt()
    for alert in alerts:
        shell.start(alert)
        until(lambda: films.log("alerts").committed)
        shell.interrupt()
        (message, *_) = films.log("alerts").committed
        assert (message["op"], message["query"]) == ("+", "tarantino travolta")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def checkout(folder: Path) -> None:
    """Creates what the pages expect in a folder: an environment, a schema, the examples, a replay."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text("")  # PATH has that of the tests
    shutil.copy(FOLDER / "schema.yaml", folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared" / "replay").mkdir()
    shutil.copy(FOLDER / "replay.jsonl", folder / "shared" / "replay")


def places(folder: Path, master: str, database: Database) -> dict[str, str]:
    return {
        "spark://HOST:7077": master,
        "postgresql://HOST/films": database.uri(),
        "/shared": str(folder / "shared"),
        "--executor-memory 4g": "--executor-memory 1g",
    }


def watch_until_results(shell: Shell, block: Block, results: Path) -> None:
    shell.start(block)
    until(lambda: "director{tarantino} - movie{} - plays{} - actor{travolta}" in text(results))
    shell.interrupt()


@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_submit_recipe_runs(shell: Shell, tmp_path: Path, master: str, database: Database) -> None:
    checkout(tmp_path)
    database.run(*TABLES)
    search, watch, local = (
        with_places(step, places(tmp_path, master, database))
        for step in steps(RECIPES / "spark-submit.md", __file__, tmp_path)
    )
    shell.run(search)
    results = [json.loads(line) for line in text(tmp_path / "shared" / "results.jsonl").splitlines()]
    assert len(results) == 2
    watch_until_results(shell, watch, tmp_path / "shared" / "run.jsonl")
    assert "director{tarantino}" in shell.run(local)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_commands_of_the_cluster_page_run(
    shell: Shell, tmp_path: Path, master: str, database: Database, which: int
) -> None:
    checkout(tmp_path)
    database.run(*TABLES)
    blocks = steps(CLUSTER, __file__, tmp_path)
    assert len(blocks) == 2
    step = with_places(blocks[which], places(tmp_path, master, database))
    watch_until_results(shell, step, tmp_path / "shared" / "run1.jsonl")


@pytest.mark.spark
def test_the_notebook_recipe_runs_on_spark(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    page = (RECIPES / "spark-notebook.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(block, "spark-notebook.md", "exec"), {})
    assert "purchase{byron} - complaint{leaks}" in capsys.readouterr().out


def traces(partitions: int, count: int, lag: int) -> list[list[dict[str, object]]]:
    """Records of each partition, in order of time; each partition is ``lag`` seconds behind the next."""
    rng = random.Random(7)
    records_by_partition: list[list[dict[str, object]]] = []
    for partition in range(partitions):
        time, records = 1_770_000_000 + partition * lag, []
        for _ in range(count):
            time += rng.randint(0, 8)
            relation, column = rng.choice((("request", "path"), ("span", "body")))
            words = rng.choice(("checkout", "cart") if relation == "request" else ("timeout", "fine"))
            row = {"trace": f"t{rng.randint(1, 40)}", column: words}
            records.append({"relation": relation, "time": time, "row": row})
        records_by_partition.append(records)
    return records_by_partition


def ids(partitions: list[list[dict[str, object]]], folder: Path) -> list[str]:
    """The ids of the results of a search in process over all records in order of time."""
    records = sorted(chain(*partitions), key=itemgetter("time"))
    (folder / "all.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    options: dict[str, Any] = {"schema": folder / "traces.yaml", "window": "10 minutes"}
    result_ids = sorted(
        result.id for result in skws.search("checkout timeout", folder / "all.jsonl", **options)
    )
    assert len(result_ids) > 300
    return result_ids


@pytest.mark.spark
@pytest.mark.slow
def test_64_partitions_ten_minutes_apart_are_joined_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    page = RECIPES / "kafka-on-spark.md"
    program = files(page)["alerts.py"]
    partitions = traces(64, 60, 600)
    for name, content in files(page).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    places = {
        "traces.yaml": str(tmp_path / "traces.yaml"),
        "/shared": str(tmp_path),
        "shards=16": "shards=2",
        '/traces"),': '/traces", records=1_000),',
        "query.awaitTermination()": "query.processAllAvailable(); query.stop()",
    }
    with closing(MockBroker()) as broker, partitioned(spark, 2):
        places["one:9092,two:9092"] = broker.address
        for documented, actual in places.items():
            assert documented in program
            program = program.replace(documented, actual)
        broker.create("traces", 64)
        rng = random.Random(8)
        for start in range(2):  # the second run continues from the checkpoint
            for number, records in enumerate(partitions):
                records_sent = records if start else records[: rng.randint(1, len(records))]
                broker.send("traces", records_sent, partition=number)
                del records[: len(records_sent)]
            exec(compile(program, "alerts.py", "exec"), {})
    rows = spark.read.parquet(str(tmp_path / "alerts")).collect()
    assert {row.op for row in rows} == {"+"}
    assert sorted(row.id for row in rows) == ids(traces(64, 60, 600), tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_one_reader_joins_64_partitions(shell: Shell, tmp_path: Path, master: str) -> None:
    checkout(tmp_path)
    page = RECIPES / "kafka-on-spark.md"
    (watch,) = steps(page, __file__, tmp_path)
    partitions = traces(64, 40, 600)
    with closing(MockBroker()) as broker:
        broker.create("traces", 64)
        for number, records in enumerate(partitions):
            broker.send("traces", records, partition=number)
        places = {
            "spark://HOST:7077": master,
            "one:9092,two:9092": broker.address,
            "/shared": str(tmp_path / "shared"),
            "--executor-memory 2g": "--executor-memory 1g",
            "spark.skws.shards=16": "spark.skws.shards=2",
        }
        expected = ids(partitions, tmp_path)
        shell.start(with_places(watch, places))
        alerts = tmp_path / "shared" / "alerts.jsonl"
        until(lambda: text(alerts).count("\n") >= len(expected))
        shell.interrupt()
    results = [json.loads(line) for line in text(alerts).splitlines()]
    assert sorted(result["id"] for result in results) == expected
