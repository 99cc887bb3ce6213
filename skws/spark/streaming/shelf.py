"""What a shard keeps in Spark's state store, by name.

Spark opens each variable of state anew in every batch, which takes it some
25 ms each, whatever it holds: so there is one for all blobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle

Kind = Literal["chunk", "mark", "query", "schema", "state", "table"]

# As objects: texts are sent to Java to be parsed, twice each in every batch.
_KEY: Final = StructType([StructField("kind", StringType()), StructField("name", StringType())])
_VALUE: Final = StructType([StructField("head", BinaryType()), StructField("body", BinaryType())])


class Shelf:
    """Blobs, each with a small one that says what it is."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._state: MapState = handle.getMapState("shelf", _KEY, _VALUE)

    def put(self, kind: Kind, name: object, body: bytes, head: bytes = b"") -> None:
        self._state.updateValue((kind, str(name)), (head, body))

    def find(self, kind: Kind, name: object) -> bytes | None:
        """The body, if it is there."""
        found = self._state.getValue((kind, str(name)))
        return None if found is None else bytes(found[1])

    def get(self, kind: Kind, name: object) -> tuple[bytes, bytes]:
        """Head and body of what the shard knows to be there."""
        found = self._state.getValue((kind, str(name)))
        if found is None:
            raise RuntimeError(f"the state of a shard has no {kind} {name}, though its mark says so")
        return bytes(found[0]), bytes(found[1])

    def drop(self, kind: Kind, name: object) -> None:
        """Nothing happens if it is not there."""
        self._state.removeKey((kind, str(name)))

    def names(self) -> dict[Kind, list[str]]:
        """Of all that is there; Spark reads through all of it for that."""
        found: dict[Kind, list[str]] = {}
        keys: Iterator[tuple[Kind, str]] = self._state.keys()
        for kind, name in keys:
            found.setdefault(kind, []).append(name)
        return found
