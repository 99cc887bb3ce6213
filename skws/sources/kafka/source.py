"""Topics of Kafka as a source."""

from __future__ import annotations

from dataclasses import dataclass, field

from schema.model import Schema
from skws.sources.clock import Clock, SystemClock
from skws.sources.feed import Feed
from skws.sources.kafka.address import Address
from skws.sources.kafka.feed import KafkaFeed


@dataclass(frozen=True)
class KafkaSource:
    """Topics to follow."""

    address: Address
    clock: Clock = field(default_factory=SystemClock)
    local_only: bool = False

    @property
    def name(self) -> str:
        return self.address.shown

    def open(self, schema: Schema) -> Feed:
        return KafkaFeed(self.address, schema, self.clock)
