"""A database without a schema file: its schema is inferred, shown and kept, and can be edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import PASSWORD, Database
from tests.serve.serving import Stream, serving
from tests.waiting import until

TABLES = (
    "CREATE TABLE customer (cid bigint PRIMARY KEY, name text, price int)",
    "CREATE TABLE purchase (pid bigint PRIMARY KEY, cid bigint REFERENCES customer, item text)",
    "INSERT INTO customer VALUES (7, 'Ada Byron', 5), (8, 'Zoë 東京タワー', 50)",
    "INSERT INTO purchase VALUES (1, 7, 'travel kettle'), (2, 8, 'lamp')",
)


@pytest.mark.check
def test_a_database_is_served_without_a_schema(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES)
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with serving(database.uri(), environment=environment) as server, server.client() as client:
        (schema_file,) = (tmp_path / "skws" / "schemas").iterdir()
        text = "".join(server.raw)
        assert str(schema_file) in text
        assert "purchase.cid = customer.cid" in text
        assert PASSWORD not in text + schema_file.read_text()

        def count_of(query: str) -> int:
            answer = client.post("/search", json={"query": query})
            assert answer.status_code == 200, answer.text
            return int(answer.json()["found"])

        until(lambda: count_of("ada kettle") == 1)
        for query, count in {
            "ada ketlte~": 1,
            "zoe lamp": 1,
            "東京 l?mp": 1,
            "byron price<10": 1,
            "byron price>10": 0,
            "lamp !price>10": 1,
            "lamp customer.price=50": 1,
        }.items():
            assert count_of(query) == count, query
        client.put("/queries/kettles", json={"query": "ada kettle price<10"})
        stream = Stream(client, "/queries/kettles/events")
        stream.wait_for("ready")
        database.run("UPDATE customer SET price = 20 WHERE cid = 7")
        stream.wait_for("result", 2)
        assert [event["result"]["op"] for event in stream.of("result")] == ["+", "-"]
        assert server.stop() == 130  # it also drops its replication slot
    schema_file.write_text(
        schema_file.read_text().replace("name: text", "name: {type: text, analyzer: none}")
    )
    with serving(database.uri(), environment=environment) as server, server.client() as client:
        assert "edited" in "".join(server.raw)
        assert client.post("/search", json={"query": "ada"}).json()["found"] == 0
        assert client.post("/search", json={"query": "kettle"}).json()["found"] == 1
