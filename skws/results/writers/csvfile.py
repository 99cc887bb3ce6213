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


class CsvWriter(Writer):
    """UTF-8, records ended by a line feed; what is not known is empty, ``snapshot`` is true or false."""

    def __init__(self, opened: Destination) -> None:
        self._opened = opened
        self._line = io.StringIO()
        self._csv = csv.writer(self._line, lineterminator="\n")
        self._record(COLUMNS)

    def write(self, result: LiveResult) -> None:
        shown = result.to_dict()
        shown["tuples"] = orjson.dumps(shown["tuples"]).decode()
        shown["joins"] = orjson.dumps(shown.get("joins", [])).decode()
        shown["snapshot"] = "true" if result.snapshot else "false"
        self._record(shown.get(column) for column in COLUMNS)

    def _record(self, fields: Iterable[object]) -> None:
        self._csv.writerow(fields)
        self._opened.write(self._line.getvalue().encode())
        self._line.seek(0)
        self._line.truncate()
