"""Which topics are followed, and their partitions: those of the address, or those named as the relations."""

from __future__ import annotations

from dataclasses import dataclass

from schema.errors import SourceError, nearest
from schema.model import Schema
from skws.sources.kafka.address import Address
from skws.sources.kafka.client import Client
from skws.sources.kafka.merging import Partition
from skws.sources.kafka.messages import relation_of


@dataclass(frozen=True, slots=True)
class Topics:
    """``streams`` are followed; ``tables`` hold the rows of static tables."""

    partitions: tuple[Partition, ...]
    streams: tuple[str, ...]
    tables: dict[str, tuple[Partition, ...]]
    notices: tuple[str, ...] = ()


def found_topics(address: Address, schema: Schema, client: Client) -> Topics:
    """Raises SourceError if there is none, or one of the address is missing; KafkaException."""
    known = client.topics()
    gone = schema.evolution.removed_relations
    here = {r.name for n, r in enumerate(schema.relations) if n not in gone and r.source is None}
    wanted = address.topics or tuple(name for name in schema.index if name in here)
    missing = [topic for topic in wanted if topic not in known]
    if missing and (address.topics or len(missing) == len(wanted)):
        raise SourceError(
            f"{address.shown}: there is no topic {missing[0]}{nearest(missing[0], known)}"
            + ("" if address.topics else " (without topics in the address, they are named as the relations)")
        )
    there = {topic: client.partitions(topic) for topic in wanted if topic in known}
    tables = {topic: tuple(there[topic]) for topic in there if _is_table(topic, schema)}
    streams = tuple(topic for topic in there if topic not in tables)
    notices = tuple(f"there is no topic {topic} yet; it is looked for" for topic in missing)
    return Topics(tuple(one for topic in streams for one in there[topic]), streams, tables, notices)


def _is_table(topic: str, schema: Schema) -> bool:
    relation = relation_of(topic, schema)
    return relation is not None and schema.relations[relation].table
