"""The Mondial data as a SQLite file, with the keys and references that its schema describes."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from pathlib import Path

from skws_schema.yaml.load import load_schema
from tests.places import DATA, ROOT

MONDIAL = DATA / "mondial" / "csv"


def write_mondial(path: Path) -> None:
    schema = load_schema(ROOT / "examples" / "mondial" / "schema.yaml")
    types = {"text": "TEXT", "string": "TEXT", "integer": "INTEGER", "number": "REAL", "timestamp": "DATE"}
    with closing(sqlite3.connect(path)) as connection, connection:
        for relation in schema.relations:
            parts = [f"{a.name} {types[a.type]}" for a in relation.attributes]
            parts += [f"PRIMARY KEY ({', '.join(relation.key)})"] if relation.key else []
            for join in schema.joins:
                if join.left == relation.name:
                    columns, referenced_columns = (", ".join(side) for side in zip(*join.on, strict=True))
                    parts.append(f"FOREIGN KEY ({columns}) REFERENCES {join.right} ({referenced_columns})")
            connection.execute(f"CREATE TABLE {relation.name} ({', '.join(parts)})")
            with (MONDIAL / f"{relation.name}.csv").open(newline="", encoding="utf-8") as file:
                rows = [[row[a.name] or None for a in relation.attributes] for row in csv.DictReader(file)]
            placeholders = ", ".join("?" * len(relation.attributes))
            connection.executemany(f"INSERT INTO {relation.name} VALUES ({placeholders})", rows)
