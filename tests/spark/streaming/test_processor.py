"""The stateful stage with its state in memory gives what one worker gives, also if shard servers are lost."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from skws.data.batch import RecordBatch
from skws.data.packing import expanded
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.kinds import checked
from skws.queries.partitioning import Part, Partitioning
from skws.queries.stream_state import LoggedBatch
from skws.results.model import LiveResult
from skws.spark.streaming import processor
from skws.spark.streaming.processor import BLOBS, MeshProcessor
from skws.spark.streaming.shard_server import ShardServer
from skws.spec.query import PATTERN
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.counted import counted
from tests.spark.streaming.shard_runs import lines, micro_batch_of
from tests.spark.streaming.test_oracle_shards import PAIRS, cut, random_records, request
from tests.strategies import seeds


@dataclass
class Map:
    """As Spark's MapState."""

    held: dict[Any, Any] = field(default_factory=dict)

    def getValue(self, key: Any) -> Any:  # noqa: N802 - Spark's name
        return self.held.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802 - Spark's name
        assert all(isinstance(part, bytes) for part in value)
        self.held[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802 - Spark's name
        self.held.pop(key, None)

    def keys(self) -> Iterator[Any]:
        return iter(list(self.held))


class Handle:
    """As that which Spark gives a processor."""

    def __init__(self) -> None:
        self.maps: dict[str, Map] = {}

    def getMapState(self, name: str, key: str, value: str) -> Map:  # noqa: N802 - Spark's
        return self.maps.setdefault(name, Map())


class Lodgings:
    """Servers in this process, one a shard, for as long as nobody loses them."""

    def __init__(self) -> None:
        self.servers: dict[int, ShardServer] = {}

    def client(self, run: str, asked: bytes, share: Part) -> Any:
        server = self.servers.setdefault(share.number, ShardServer(pickle.loads(asked), share))

        def ask(*message: Any) -> Any:
            return pickle.loads(pickle.dumps(server.answer(pickle.loads(pickle.dumps(message)))))

        sent: list[Any] = []
        return SimpleNamespace(
            ask=ask,
            send=lambda *message: sent.append(message),
            answer=lambda: ask(*sent.pop()),
            close=lambda: None,
        )


COMMANDS = {
    3: [Command("add", "pairs", PAIRS, kind=PATTERN), Command("add", "late", "beta -no")],
    6: [Command("remove", "pairs"), Command("remove", "fifth"), Command("add", "7", "7", kind="counted")],
    8: [Command("add", "again", PAIRS, kind=PATTERN), Command("remove", "late")],
}


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("window", [TimeWindow(12), CountWindow(9), Unbounded()])
@seeds(1, 3)
def test_it_tells_what_one_worker_tells(
    monkeypatch: pytest.MonkeyPatch, seed: int, window: Window, together: int
) -> None:
    """``together``: micro-batches in a batch of Spark."""
    counted(monkeypatch)
    lodgings = Lodgings()
    monkeypatch.setattr(processor, "ShardClient", lodgings.client)
    rng = random.Random(seed)
    asked = request(window)
    shares = {key: Part(key, 2, Partitioning.ROOTS) for key in range(2)}
    stages = {key: MeshProcessor("run", asked, shares) for key in shares}
    handles = {key: Handle() for key in shares}
    for key, stage in stages.items():
        stage.init(handles[key])  # type: ignore[arg-type]
    log: list[LoggedBatch] = []
    one = Worker(asked, lambda _: log)
    snapshots = 0
    expected: list[LiveResult] = []
    waiting: list[SimpleNamespace] = []
    for number, batch in enumerate(cut(rng, random_records(rng, 250))):
        first = [Command.adding(standing) for standing in checked(asked).values()]
        commands = COMMANDS.get(number, []) if number else first
        before = one.live.position, one.live.now
        outcome = one.work(Entry(number + 1, {}, 0, tuple(commands), RecordBatch.of(batch)))
        log.append(LoggedBatch(*before, RecordBatch.of(batch)))
        micro_batch = micro_batch_of(batch, commands, number=number)
        expected += outcome.results
        waiting.append(SimpleNamespace(sequence=number, blob=micro_batch.to_bytes()))
        snapshots += number in COMMANDS and any(result.snapshot for result in outcome.results)
        if len(waiting) < together:
            continue
        told: list[bytes] = []
        for key, stage in stages.items():
            if rng.random() < 0.3:
                lodgings.servers.pop(key, None)
            rows = list(stage.handleInputRows((key,), iter(waiting), None))  # type: ignore[arg-type]
            told += [line for each in rows if each.part for line in expanded(each.output).split(b"\n")]
        assert sorted(told) == lines(expected), number
        expected, waiting = [], []
    assert snapshots
    shelves = [[*handle.maps[BLOBS].held] for handle in handles.values()]
    assert {name for shelf in shelves for kind, name in shelf if kind == "state"} == {"7"}
    if not isinstance(window, Unbounded):
        assert all(sum(kind == "chunk" for kind, _ in shelf) < len(log) for shelf in shelves)
