"""The sources of skws as a streaming DataFrame: ``spark.readStream.format("skws")``.

A row is a record as JSON, as ``skws.spark.search`` takes it. Spark looks for data sources in every session,
so what reads is loaded only where it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from skws.spark.source_reader import SourceReader

PARTITION: Final = "skws_partition"
"""A number of the partition that a record of a topic was in; NULL of other sources."""


class SkwsSource(DataSource):
    """Follows a source of skws; a row is a record as JSON, in the column ``value``; beside it is PARTITION.

    Options: ``source``, an address as ``skws watch --source`` takes it (``postgresql://...``, ``kafka://...``,
    files, ``replay:...``); ``schema``, a path of YAML or its text; ``records``, about how many a micro-batch
    has at most, 50,000 if not given; ``ahead``, how far a record may be ahead of the clock, ``1 day`` if not
    given, ``none`` for any time; ``on_error``, ``fail`` (if not given) or ``skip`` for bad records. Rows of
    static tables are left out.
    """

    @classmethod
    def name(cls) -> str:
        return "skws"

    def schema(self) -> str:
        return f"value string, {PARTITION} long"

    def simpleStreamReader(self, schema: StructType) -> SourceReader:  # noqa: N802, ARG002 - Spark's names
        from skws.spark.source_reader import SourceReader  # noqa: PLC0415 - see above

        return SourceReader({name: str(value) for name, value in self.options.items()})
