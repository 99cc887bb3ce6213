"""A place in the topics: the next offset of each partition, and of which cluster they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from schema.errors import SourceError
from skws.sources.feed import Offset
from skws.sources.kafka.merging import Partition

_Nested = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Position:
    """``first``: where partitions began that were found later, unless at 0."""

    cluster: str
    next: dict[Partition, int]
    first: dict[Partition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """Raises SourceError if this is no offset of Kafka's."""
        try:
            return cls(str(offset["cluster"]), _flat(offset["next"]), _flat(offset.get("first", {})))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SourceError(f"{offset!r} is no offset of Kafka topics") from None

    def offset(self) -> Offset:
        found: Offset = {"cluster": self.cluster, "next": _nested(self.next)}
        return found | ({"first": _nested(self.first)} if self.first else {})


def _flat(nested: _Nested) -> dict[Partition, int]:
    return {(topic, int(n)): int(at) for topic, parts in nested.items() for n, at in parts.items()}


def _nested(flat: dict[Partition, int]) -> _Nested:
    found: _Nested = {}
    for (topic, number), at in sorted(flat.items()):
        found.setdefault(topic, {})[str(number)] = at
    return found
