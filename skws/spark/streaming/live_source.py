"""The data source that Spark knows; apart from its reader, since two processes make one and never read."""

from __future__ import annotations

import pickle
import signal
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from skws.spark.streaming.reader import FeedReader, Reading

NAME: Final = "skws_live"
INPUT: Final = "shard int, sequence long, blob binary"


def source_of(reading: Reading) -> type[DataSource]:
    """The data source to register with Spark."""
    pickled = pickle.dumps(reading)

    class LiveSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return INPUT

        def simpleStreamReader(self, schema: StructType) -> FeedReader:  # noqa: N802, ARG002 - Spark's names
            from skws.queries.keywords.collector import expect_long_lived_objects  # noqa: PLC0415 - as below
            from skws.spark.streaming.reader import FeedReader  # noqa: PLC0415 - in the reader's own process

            if current_thread() is main_thread():
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver says when to end
                expect_long_lived_objects()
            return FeedReader(pickle.loads(pickled))  # noqa: S301 - just above

    return LiveSource
