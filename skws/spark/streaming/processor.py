"""The stateful stage: a shard's log in Spark's state store, its live search with a keeper.

The state store holds what a live search is made from: static tables, standing
queries, changes of the schema, the records of the last two windows in chunks, one a micro-batch, and
the states of queries that keep their own. Of all that a batch reads one row
and writes what it brought. ``mark`` holds the epoch that is committed; a
search of any other is never trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from skws.live.share import Share
from skws.spark.streaming.frames import Message
from skws.spark.streaming.lodging import Lodger
from skws.spark.streaming.parcels import Parcel
from skws.spark.streaming.unread import Unread
from windows.tuples import ALWAYS

if TYPE_CHECKING:
    from skws.watch.request import WatchRequest

OUTPUT: Final = "shard int, part int, told binary"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a shard stands. ``oldest`` to ``next``: numbers of its chunks; ``tables``: how many blobs."""

    epoch: int = 0
    oldest: int = 0
    next: int = 0
    tables: int = 0
    position: int = 0
    now: int = ALWAYS


_MOST_SCHEMAS: Final = 1000  # in one micro-batch
MARK: Final = "epoch long, oldest long, next long, tables long, position long, now long"


class MeshProcessor(StatefulProcessor):
    """Runs the shards; ``shares`` by the key that brings a shard to its partition."""

    def __init__(self, run: str, request: WatchRequest, shares: Mapping[int, Share]) -> None:
        self._run = run
        self._request = Unread(request)
        self._shares = shares

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._mark = handle.getValueState("mark", MARK)
        self._chunks = handle.getMapState("chunks", "number long", "chunk binary, records binary")
        self._queries = handle.getMapState("queries", "name string", "standing binary")
        self._states = handle.getMapState("states", "name string", "state binary")
        self._tables = handle.getMapState("tables", "number long", "records binary")
        self._schemas = handle.getMapState("schemas", "number long", "yaml string, chunk long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803, ARG002 - Spark's name
    ) -> Iterator[Row]:
        share = self._shares[key[0]]
        lodger = Lodger(self._run, self._request, share)
        try:
            mark = Mark(*(self._mark.get() or ()))
            for row in sorted(rows, key=lambda row: row.sequence):
                mark, told = self._worked(lodger, mark, bytes(row.parcel))
                yield from (Row(shard=share.number, part=part, told=blob) for part, blob in enumerate(told))
            self._mark.update((mark.epoch, mark.oldest, mark.next, mark.tables, mark.position, mark.now))
        finally:
            lodger.close()

    def _worked(self, lodger: Lodger, mark: Mark, blob: bytes) -> tuple[Mark, list[bytes]]:
        """One parcel: through the mesh, into the log."""
        question = {"op": "work", "epoch": mark.epoch, "chunk": mark.next, "past": False}
        answer = lodger.ask(question, [blob])
        if answer.head["op"] == "behind":
            self._tell(lodger, mark)
            answer = lodger.ask(question, [blob])
        if answer.head["op"] == "past":
            self._tell_chunks(lodger, mark, "past")
            answer = lodger.ask({**question, "past": True}, [blob])
        states = len(answer.head["states"])
        return self._kept(mark, Parcel.from_bytes(blob), answer), answer.blobs[states:]

    def _tell(self, lodger: Lodger, mark: Mark) -> None:
        """All that a mesh is made from."""
        tables = [_known(self._tables, number)[0] for number in range(mark.tables)]
        queries = [orjson.loads(bytes(value[0])) for value in self._queries.values()]
        queries.sort(key=lambda one: one.pop("place"))
        schemas = sorted((number[0], value[0], value[1]) for number, value in self._schemas.iterator())
        told_schemas = [(text, chunk) for _, text, chunk in schemas]
        lodger.ask({"op": "begin", "queries": queries, "schemas": told_schemas}, tables)
        self._tell_chunks(lodger, mark, "chunk")
        states = {name[0]: bytes(state[0]) for name, state in self._states.iterator()}
        told = {"position": mark.position, "now": mark.now, "epoch": mark.epoch, "states": list(states)}
        lodger.ask({"op": "stand", **told}, list(states.values()))

    def _tell_chunks(self, lodger: Lodger, mark: Mark, op: str) -> None:
        for number in range(mark.oldest, mark.next):
            chunk, records = _known(self._chunks, number)
            lodger.ask({"op": op, "chunk": orjson.loads(chunk)}, [records])

    def _kept(self, mark: Mark, parcel: Parcel, answer: Message) -> Mark:
        """The log with a parcel in it, and without what is over."""
        head = answer.head
        if parcel.tables:
            self._tables.updateValue((mark.tables,), (parcel.tables,))
        for place, text in enumerate(head["schemas"]):
            # Numbers that grow, whatever the epoch.
            self._schemas.updateValue((mark.epoch * _MOST_SCHEMAS + place,), (text, mark.next))
        for name in head["removed"]:
            self._queries.removeKey((name,))
            self._states.removeKey((name,))
        for place, one in enumerate(head["added"]):
            standing = {**one, "place": [mark.epoch, place]}
            self._queries.updateValue((one["name"],), (orjson.dumps(standing),))
        for name, state in zip(head["states"], answer.blobs, strict=False):
            self._states.updateValue((name,), (state,))
        if head["chunk"] is not None:
            self._chunks.updateValue((mark.next,), (orjson.dumps(head["chunk"]), parcel.records))
        for number in head["dropped"]:
            self._chunks.removeKey((number,))
        return Mark(
            epoch=mark.epoch + 1,
            oldest=max([mark.oldest, *(number + 1 for number in head["dropped"])]),
            next=mark.next + (head["chunk"] is not None),
            tables=mark.tables + bool(parcel.tables),
            position=head["position"],
            now=head["now"],
        )


def _known(state: MapState, number: int) -> list[bytes]:
    """Blobs that the mark says are there."""
    found = state.getValue((number,))
    if found is None:
        raise RuntimeError(f"the state of a shard has no blob {number}, though its mark says so")
    return [bytes(blob) for blob in found]
