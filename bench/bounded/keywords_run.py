"""A keyword query without a window on the bounded engine: ``-m bench.bounded.keywords_run RECORDS EVERY``.

News of a thousand companies, each with a word of its own. Up to half a million words are remembered, which
comes on top of what the engine keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from bench.bounded.load import SECOND, Meter
from skws.data.batch import Record, RecordBatch
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_engine import BoundedEngine
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

YAML: Final = """\
version: 1
name: news
window: none
relations:
  company: {attributes: {ticker: string, name: text, sector: text}, key: [ticker], table: true}
  news: {attributes: {ticker: string, line: text}}
joins: [company.ticker = news.ticker]
"""
QUERY: Final = "news:merger company:energy"
COMPANIES: Final = 1000
BATCH: Final = 5000


def companies() -> list[Record]:
    """Every other one is of the sector that the query names."""
    sectors = ("energy", "steel")
    return [Record(0, 0, (f"C{n}", f"company {n}", sectors[n % 2])) for n in range(COMPANIES)]


def news(first: int, count: int) -> Iterator[Record]:
    """One record a second; one in seven is of a merger."""
    for number in range(first, first + count):
        what = "merger" if number % 7 == 0 else "quarter"
        yield Record(1, number * SECOND, (f"C{number % COMPANIES}", f"{what} of note n{number}"))


def main(count: int, every: int) -> None:
    schema = parse_schema(YAML)
    engine = BoundedEngine.of(Plan(schema, parse_query(QUERY, schema), Unbounded(), 2))
    results = sum(1 for _ in engine.load_tables(companies()))
    meter, told = Meter(), 0
    for first in range(1, count + 1, BATCH):
        last = min(first + BATCH, count + 1)
        results += sum(1 for _ in engine.process_batches([RecordBatch.of(list(news(first, last - first)))]))
        if (last - 1) // every > told:
            told = (last - 1) // every
            meter.tell(last - 1, results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
