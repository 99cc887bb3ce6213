"""A streaming source with the columns of Spark's connector for Kafka, which tests do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

NAME: Final = "kafka_stand_in"


def stand_in() -> type[DataSource]:
    """The class to register. Workers get it by value, since they do not know the tests."""

    class Range(InputPartition):
        def __init__(self, number: int, begin: int, end: int) -> None:
            super().__init__(number)
            self.number, self.begin, self.end = number, begin, end

    class Reader(DataSourceStreamReader):
        """Reads all that there is, a task for each partition."""

        def __init__(self, options: dict[str, str]) -> None:
            self._brokers = options["kafka.bootstrap.servers"]
            self._topic = options["subscribe"]

        def _consumer(self) -> Any:
            from confluent_kafka import Consumer

            return Consumer({"bootstrap.servers": self._brokers, "group.id": "none"})

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            consumer = self._consumer()
            partitions = consumer.list_topics(self._topic).topics[self._topic].partitions
            consumer.close()
            return {str(number): 0 for number in sorted(partitions)}

        def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802 - Spark's name
            from confluent_kafka import TopicPartition

            consumer = self._consumer()
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(self._topic, int(number)))[1]
                for number in self.initialOffset()
            }
            consumer.close()
            return ends

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [Range(int(number), start[number], to) for number, to in end.items() if to > start[number]]

        def read(self, partition: Any) -> Iterator[tuple[bytes, str, int, int]]:
            from confluent_kafka import TopicPartition

            consumer = self._consumer()
            consumer.assign([TopicPartition(self._topic, partition.number, partition.begin)])
            offset = partition.begin
            while offset < partition.end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    offset = message.offset() + 1
                    yield message.value(), self._topic, partition.number, offset - 1
            consumer.close()

        def commit(self, end: dict[str, int]) -> None: ...

    class StandIn(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return "value binary, topic string, partition int, offset long"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
            return Reader(dict(self.options))

    return StandIn
