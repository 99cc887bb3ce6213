"""DuckDB over the tables of ``bench.store``: loads them from CSV files, then joins and searches them.

python duckdb_tables.py FOLDER WORD WORD

DuckDB has no text index that follows changes, so a search reads all texts. Prints, as JSON, the seconds,
CPU seconds and bytes of both steps, and the number of purchases in the result of the search.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import duckdb

TEXTS = ("p.about", "c.about", "d.about")


def main(folder: Path, words: list[str]) -> None:
    database = duckdb.connect(str(folder / "duck.db"))
    began, cpu = perf_counter(), process_time()
    for name in ("customer", "product", "purchase"):
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{folder / name}.csv')")
    database.execute("CHECKPOINT")
    load_costs = _costs_since(began, cpu)
    began, cpu = perf_counter(), process_time()
    conditions = " AND ".join(
        f"({' OR '.join(_contains_word(text, word) for text in TEXTS)})" for word in words
    )
    ((count,),) = database.execute(
        "SELECT count(*) FROM purchase p JOIN customer c ON p.customer = c.id"
        f" JOIN product d ON p.product = d.id WHERE {conditions}"
    ).fetchall()
    search_costs = _costs_since(began, cpu)
    size = (folder / "duck.db").stat().st_size
    print(json.dumps({"loaded": load_costs, "searched": search_costs, "found": count, "disk": size}))


def _contains_word(text: str, word: str) -> str:
    return f"list_contains(string_split({text}, ' '), '{word}')"


def _costs_since(began: float, cpu: float) -> dict[str, Any]:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": perf_counter() - began, "cpu": process_time() - cpu, "memory": most}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
