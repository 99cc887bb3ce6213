"""Saved searches over joined tables in plain SQL; needs only the standard library.

``triggers``: SQLite maintains words and results by triggers. ``sqlite`` and ``duckdb``: after every N changes
the joins of all searches are evaluated again and compared with the earlier results. All write ``live.json``.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

_TABLES: Final = """
CREATE TABLE saved (item TEXT, body TEXT);
CREATE TABLE complaint (nr INTEGER PRIMARY KEY, pid INTEGER);
CREATE TABLE item_word (pid INTEGER, word TEXT);
CREATE TABLE body_word (nr INTEGER, word TEXT);
"""
_INDEXES: Final = """
CREATE INDEX saved_item ON saved (item, body);
CREATE INDEX complaint_pid ON complaint (pid);
CREATE INDEX item_pid ON item_word (pid);
CREATE INDEX body_nr ON body_word (nr);
"""
_LIVE: Final = """
SELECT DISTINCT s.item, s.body, i.pid, c.nr FROM item_word i JOIN complaint c ON c.pid = i.pid
JOIN body_word b ON b.nr = c.nr JOIN saved s ON s.item = i.word AND s.body = b.word
"""
# Triggers delete a row's results and insert those of its new version, by the purchase or by the complaint.
_TRIGGERS: Final = f"""
CREATE TABLE live (item TEXT, body TEXT, pid INTEGER, nr INTEGER);
CREATE INDEX live_pid ON live (pid);
CREATE INDEX live_nr ON live (nr);
CREATE TABLE told (op TEXT, item TEXT, body TEXT, pid INTEGER, nr INTEGER);
CREATE TRIGGER comes AFTER INSERT ON live
BEGIN INSERT INTO told VALUES ('+', NEW.item, NEW.body, NEW.pid, NEW.nr); END;
CREATE TRIGGER goes AFTER DELETE ON live
BEGIN INSERT INTO told VALUES ('-', OLD.item, OLD.body, OLD.pid, OLD.nr); END;
CREATE TABLE purchase_in (pid INTEGER, item TEXT);
CREATE TRIGGER purchase_changes AFTER INSERT ON purchase_in BEGIN
    DELETE FROM live WHERE pid = NEW.pid;
    DELETE FROM item_word WHERE pid = NEW.pid;
    INSERT INTO item_word SELECT NEW.pid, value FROM json_each(NEW.item);
    INSERT INTO live {_LIVE} WHERE i.pid = NEW.pid;
END;
CREATE TABLE complaint_in (nr INTEGER, pid INTEGER, body TEXT);
CREATE TRIGGER complaint_changes AFTER INSERT ON complaint_in BEGIN
    DELETE FROM live WHERE nr = NEW.nr;
    DELETE FROM body_word WHERE nr = NEW.nr;
    DELETE FROM complaint WHERE nr = NEW.nr;
    INSERT INTO complaint SELECT NEW.nr, NEW.pid WHERE NEW.pid IS NOT NULL;
    INSERT INTO body_word SELECT NEW.nr, value FROM json_each(NEW.body) WHERE NEW.pid IS NOT NULL;
    INSERT INTO live {_LIVE} WHERE c.nr = NEW.nr;
END;
"""


def main(kind: str, interval: str = "1") -> None:
    searches = json.loads(Path("searches.json").read_text())
    with Path("stream.jsonl").open() as lines:
        records = [json.loads(line) for line in lines]
    if kind == "triggers":
        live = _by_triggers(searches, records)
    else:
        live = _by_polls(kind, searches, records, int(interval))
    Path("live.json").write_text(json.dumps(list(live)))


def _by_triggers(searches: list[list[str]], records: list[dict[str, Any]]) -> Iterable[Any]:
    Path("triggers.db").unlink(missing_ok=True)
    database = sqlite3.connect("triggers.db")
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    database.executescript(_TABLES + _INDEXES + _TRIGGERS)
    database.executemany("INSERT INTO saved VALUES (?, ?)", searches)
    database.execute("ANALYZE")
    for record in records:
        row = record["row"]
        words = json.dumps(sorted(set(row.get("item", row.get("body", "")).split())))
        if record["relation"] == "purchase":
            database.execute("INSERT INTO purchase_in VALUES (?, ?)", (row["pid"], words))
        else:
            database.execute("INSERT INTO complaint_in VALUES (?, ?, ?)", (row["nr"], row.get("pid"), words))
    return database.execute("SELECT item, body, pid, nr FROM live").fetchall()


def _by_polls(
    kind: str, searches: list[list[str]], records: list[dict[str, Any]], interval: int
) -> set[tuple[Any, ...]]:
    database = _open_database(kind)
    for statement in (_TABLES + (_INDEXES if kind == "sqlite" else "")).split(";\n"):
        if statement.strip():
            database.execute(statement)
    _insert(kind, database, "saved", searches)
    live: set[tuple[Any, ...]] = set()
    for begin in range(0, len(records), interval):
        _apply(kind, database, records[begin : begin + interval])
        now = set(database.execute(_LIVE).fetchall())
        changes = [*(("+", *row) for row in now - live), *(("-", *row) for row in live - now)]
        del changes  # a real program would send them
        live = now
    return live


def _apply(kind: str, database: Any, records: list[dict[str, Any]]) -> None:
    """Write the last version of each row of a batch, in few statements."""
    purchases: dict[int, Any] = {}
    complaints: dict[int, Any] = {}
    for record in records:
        row = record["row"]
        if record["relation"] == "purchase":
            purchases[row["pid"]] = row
        else:
            complaints[row["nr"]] = row if record["op"] == "+" else None
    _delete(database, "item_word", "pid", purchases)
    for table in ("body_word", "complaint"):
        _delete(database, table, "nr", complaints)
    live_complaints = {nr: row for nr, row in complaints.items() if row is not None}
    items = [(pid, word) for pid, row in purchases.items() for word in set(row["item"].split())]
    bodies = [(nr, word) for nr, row in live_complaints.items() for word in set(row["body"].split())]
    _insert(kind, database, "item_word", items)
    _insert(kind, database, "body_word", bodies)
    _insert(kind, database, "complaint", [(nr, row["pid"]) for nr, row in live_complaints.items()])


def _delete(database: Any, table: str, key: str, numbers: Iterable[int]) -> None:
    number_list = ", ".join(map(str, numbers))
    if number_list:
        database.execute(f"DELETE FROM {table} WHERE {key} IN ({number_list})")


def _insert(kind: str, database: Any, table: str, rows: list[Any]) -> None:
    """Insert rows; into DuckDB by columns, as it is slow at inserting single rows."""
    if not rows:
        return
    if kind == "sqlite":
        database.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        return
    left_values, right_values = (list(column) for column in zip(*rows, strict=True))
    database.execute(f"INSERT INTO {table} SELECT unnest(?), unnest(?)", [left_values, right_values])


def _open_database(kind: str) -> Any:
    if kind == "sqlite":
        return sqlite3.connect(":memory:")
    import duckdb  # noqa: PLC0415 - only needed for this engine

    return duckdb.connect(":memory:")


if __name__ == "__main__":
    main(*sys.argv[1:])
