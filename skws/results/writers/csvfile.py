"""Results as CSV: a header always, one result a record, the nested parts as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Final

import orjson

from skws.results.model import LiveResult
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination

COLUMNS: Final = ("op", "query", "id", "start", "end", "network", "tuples", "joins", "snapshot")
RANKED: Final = ("score", "explanation", "event", "rank", "at", "reason", "group", "folded")


class CsvWriter(Writer):
    """UTF-8, records ended by a line feed; what is not known is empty, ``snapshot`` is true or false.

    ``ranked``: with the columns of results that have a score.
    """

    def __init__(self, opened: Destination, *, ranked: bool = False) -> None:
        self._columns = (*COLUMNS, *RANKED) if ranked else COLUMNS
        self._opened = opened
        self._line = io.StringIO()
        self._csv = csv.writer(self._line, lineterminator="\n")
        self._record(self._columns)

    def write(self, result: LiveResult) -> None:
        shown = result.to_dict()
        shown["tuples"] = orjson.dumps(shown["tuples"]).decode()
        shown["joins"] = orjson.dumps(shown.get("joins", [])).decode()
        shown["snapshot"] = "true" if result.snapshot else "false"
        if "explanation" in shown:
            shown["explanation"] = orjson.dumps(shown["explanation"]).decode()
        self._record(shown.get(column) for column in self._columns)

    def _record(self, fields: Iterable[object]) -> None:
        self._csv.writerow(fields)
        self._opened.write(self._line.getvalue().encode())
        self._line.seek(0)
        self._line.truncate()
