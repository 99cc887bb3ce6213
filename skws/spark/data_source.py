"""The sources of skws as a streaming DataFrame: ``spark.readStream.format("skws")``.

A row is a record as JSON, as ``skws.spark.search`` takes it. Spark looks for data sources in every session,
so what reads is loaded only where it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from skws.data.batch import Chunk
    from skws.sources.feed import Feed, Offset

NAME: Final = "skws"
_OPTIONS: Final = ("source", "schema", "records")
_RECORDS: Final = 50_000
_Rows = Iterator[tuple[str]]


class SkwsSource(DataSource):
    """Follows a source of skws; a row is a record as JSON, in the column ``value``.

    Options: ``source``, an address as ``skws watch --source`` takes it (``postgresql://...``, ``kafka://...``,
    files, ``replay:...``); ``schema``, a path of YAML or its text; ``records``, about how many a micro-batch
    has at most, 50,000 if not given. Rows of static tables are left out.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "value string"

    def simpleStreamReader(self, schema: StructType) -> SourceReader:  # noqa: N802, ARG002 - Spark's names
        return SourceReader({name: str(value) for name, value in self.options.items()})


class SourceReader(SimpleDataSourceStreamReader):
    """Polls a feed beside the driver. Raises UsageError, SchemaError, SourceError."""

    def __init__(self, options: dict[str, str]) -> None:
        from skws_schema.errors import UsageError, nearest  # noqa: PLC0415 - see above

        for name in options:
            if name not in _OPTIONS:
                raise UsageError(f"format skws: no option {name!r}{nearest(name, _OPTIONS)}")
        for name in ("source", "schema"):
            if name not in options:
                raise UsageError(f"format skws: the option {name} is missing")
        records = options.get("records", str(_RECORDS))
        if not records.isdecimal() or not int(records):
            raise UsageError(f"format skws: records {records}: expected a number above 0")
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
        return self._rows(batch.read), {"feed": batch.end}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> _Rows:  # noqa: N802 - Spark's name
        """The same once more."""
        return self._rows(self._feed().replay(start["feed"], end["feed"]))

    def commit(self, end: dict[str, Any]) -> None:
        """The source may forget what is done."""
        feed: Offset = end["feed"]
        self._feed().commit(feed)

    def _feed(self) -> Feed:
        if self._opened is None:
            from skws.library import schema_of  # noqa: PLC0415 - see above
            from skws.sources.addresses import parse_source  # noqa: PLC0415
            from skws.sources.feed import SystemClock  # noqa: PLC0415
            from skws.sources.retry import RetryingFeed  # noqa: PLC0415

            self._schema = schema_of(self._options["schema"])
            source = parse_source(self._options["source"])
            self._opened = RetryingFeed(source, self._schema, SystemClock())
        return self._opened

    def _rows(self, read: Chunk) -> _Rows:
        from skws.formats.dead_letters import place, record_line  # noqa: PLC0415 - see above
        from skws_schema.errors import BadRecordsError  # noqa: PLC0415

        for bad in read.bad:
            raise BadRecordsError(f"{place(bad)}: {bad.reason}")
        return iter([(record_line(record, self._schema).decode(),) for record in read.records.records()])
