"""The sources of skws for Spark: ``spark.readStream.format("skws")``, and the input of a streaming search.

Spark looks for data sources in every session, so the readers are loaded only where they read.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from skws.spark.source_reader import SourceReader

PARTITION: Final = "skws_partition"
"""The number of a record's partition of a topic; NULL for other sources."""


class SkwsSource(DataSource):
    """Follows a source of skws. A row is a record as JSON in the column ``value``, and its PARTITION.

    Options: ``source``, an address as ``skws watch --source`` takes it (``postgresql://...``, ``kafka://...``,
    files, ``replay:...``); ``schema``, a path of YAML or its text; ``records``, the approximate limit for a
    micro-batch, 50,000 by default; ``ahead``, how far a record may be ahead of the clock, ``1 day`` by
    default, ``none`` for any time; ``on_error``, ``fail`` (the default) or ``skip`` for bad records. Rows of
    static tables are left out.
    """

    @classmethod
    def name(cls) -> str:
        return "skws"

    def schema(self) -> str:
        return f"value string, {PARTITION} long"

    def streamReader(self, schema: StructType) -> SourceReader:  # noqa: N802, ARG002 - Spark's names
        from skws.spark.source_reader import reader_of  # noqa: PLC0415 - see above

        return reader_of({name: str(value) for name, value in self.options.items()})


def piece_source(pickled: bytes, source_name: str) -> type[DataSource]:
    """A data source for one search: the pieces of its ``SourceReader``.

    The reader is pickled, so processes that only pass it on load no modules for it.
    """

    class PieceSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            from skws.spark.pieces import SHARED  # noqa: PLC0415 - see above

            return SHARED

        def streamReader(self, schema: StructType) -> SourceReader:  # noqa: N802, ARG002 - Spark's names
            reader: SourceReader = pickle.loads(pickled)  # noqa: S301 - by the search
            return reader

    return PieceSource
