"""Reads a source of skws for Spark, beside the driver: a feed, and its records as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final

from pyspark.sql.datasource import SimpleDataSourceStreamReader

from skws.data.batch import Chunk
from skws.formats.dead_letters import BadRecordLog, place, record_line
from skws.library import schema_of
from skws.sources.addresses import parse_source
from skws.sources.feed import Feed, SystemClock
from skws.sources.retry import RetryingFeed
from skws.spec.enums import OnError
from skws.spec.job import AHEAD, read_ahead
from skws_schema.errors import UsageError, nearest

_OPTIONS: Final = ("source", "schema", "records", "ahead", "on_error")
_POLICIES: Final = (OnError.FAIL, OnError.SKIP)
_RECORDS: Final = 50_000
_Rows = Iterator[tuple[str, int | None]]


class SourceReader(SimpleDataSourceStreamReader):
    """Polls a feed beside the driver. Raises UsageError, SchemaError, SourceError, BadRecordsError.

    Bad records that are left out are told on standard error, the first few of them.
    """

    def __init__(self, options: dict[str, str]) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise UsageError(f"format skws: no option {name!r}{nearest(name, _OPTIONS)}")
        for name in ("source", "schema"):
            if name not in options:
                raise UsageError(f"format skws: the option {name} is missing")
        records = options.get("records", str(_RECORDS))
        if not records.isdecimal() or not int(records):
            raise UsageError(f"format skws: records {records}: expected a number above 0")
        policy = options.get("on_error", OnError.FAIL)
        if policy not in _POLICIES:
            raise UsageError(f"format skws: on_error {policy}: expected {' or '.join(_POLICIES)}")
        self._bad = BadRecordLog(OnError(policy), remedy=f"on_error={OnError.SKIP} leaves bad records out")
        self._ahead = read_ahead(options.get("ahead", AHEAD))
        self._options = options
        self._most = int(records)
        self._opened: Feed | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new stream begins."""
        feed = self._feed()
        start = feed.start()
        for _ in feed.tables():
            pass  # a source gives them before its stream
        return {"feed": start}

    def read(self, start: dict[str, Any]) -> tuple[_Rows, dict[str, Any]]:
        """What is there behind ``start``, and where that ends."""
        batch = self._feed().poll(start["feed"], self._most)
        for notice in batch.notices:
            _tell(notice)
        return self._rows(batch.read), {"feed": batch.end}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> _Rows:  # noqa: N802 - Spark's name
        """The same once more."""
        return self._rows(self._feed().replay(start["feed"], end["feed"]))

    def commit(self, end: dict[str, Any]) -> None:
        """The source may forget what is done."""
        self._feed().commit(end["feed"])

    def _feed(self) -> Feed:
        if self._opened is None:
            self._schema = schema_of(self._options["schema"])
            source = parse_source(self._options["source"], ahead=self._ahead)
            self._opened = RetryingFeed(source, self._schema, SystemClock())
        return self._opened

    def _rows(self, read: Chunk) -> _Rows:
        told = len(self._bad.first)
        self._bad.take(read.bad)
        for line in (*(f"{place(one)}: {one.reason}" for one in self._bad.first[told:]), *self._bad.news()):
            _tell(line)
        lines = [record_line(record, self._schema).decode() for record in read.records.records()]
        partitions = repeat(None) if read.partitions is None else read.partitions.tolist()
        return zip(lines, partitions, strict=False)


def _tell(line: str) -> None:
    print(f"skws: {line}", file=sys.stderr)
