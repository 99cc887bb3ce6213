"""The time to rebuild the mesh of a shard of a live search after its executor was killed.

python -m bench.live_recovery make LOG --megabytes 1000 --shards 2
python -m bench.live_recovery rebuild LOG

``make`` runs the first of the shards over a stream until the log of all shards has that size, and stores its
state as Spark would. The load is the one with a key, with a window that fits the size of the log. ``rebuild``
rebuilds the shard from that state in this process. It leaves out Spark, which has to start an executor and to
fetch the state.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from bench.load import KEYED, KEYWORDS, START, WORDS
from bench.processes import peak
from skws.data.batch import RecordBatch, Rows
from skws.data.blocks import ColumnBlock
from skws.data.texts import Texts
from skws.jobs.control import JobCommand
from skws.memory import expect_long_lived_objects, return_large_arrays
from skws.queries.partitioning.parts import Partitioning
from skws.spark.streaming.layout import LayoutRequest
from skws.spark.streaming.messages import BatchAnswer, BatchHeader, LogEnd, MicroBatch
from skws.spark.streaming.processor import LocalRebuilder, MeshProcessor, ShardProgress
from skws.spark.streaming.shard_server import ShardServer
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS
from skws_windows.window import MICROSECOND, TimeWindow

_BYTES: Final = 28  # per record in the log
_WORDS: Final = 8
_SECOND: Final = 100  # tuples of each relation per second


class KeptState:
    """Stands in for Spark's handle and its state variable, with the blobs of a shard."""

    def __init__(self, blobs: dict[tuple[str, str], tuple[bytes, bytes]]) -> None:
        self.blobs = blobs

    def getMapState(self, *_: object) -> KeptState:  # noqa: N802 - Spark's name
        return self

    def getValue(self, key: tuple[str, str]) -> tuple[bytes, bytes] | None:  # noqa: N802 - Spark's name
        return self.blobs.get(key)

    def updateValue(self, key: tuple[str, str], value: tuple[bytes, bytes]) -> None:  # noqa: N802 - Spark's
        self.blobs[key] = value

    def removeKey(self, key: tuple[str, str]) -> None:  # noqa: N802 - Spark's name
        self.blobs.pop(key, None)

    def keys(self) -> Iterator[tuple[str, str]]:
        return iter(list(self.blobs))

    @property
    def log_bytes(self) -> int:
        return sum(len(body) for (kind, _), (_, body) in self.blobs.items() if kind in ("chunk", "live"))


class InProcess(LocalRebuilder):
    """A server that is called directly."""

    def __init__(self, server: ShardServer) -> None:
        super().__init__()
        self._server = server

    def ask(self, operation: str, *arguments: Any) -> Any:
        return self._server.answer((operation, *arguments))


def job_of(live: int) -> Job:
    """A search whose window holds about ``live`` tuples, with as many joins as in the load with a key."""
    seconds = live // (KEYED.relations * _SECOND)
    load = replace(KEYED, selectivity=live // KEYED.relations * 5 // 6)
    query = Query(load.query, load.max_size, name="load")
    window = TimeWindow(seconds * MICROSECOND)
    return Job({"load": query}, load.schema(), "kept", window=window, max_size=load.max_size)


def batches(job: Job, selectivity: int, records: int, seed: int = 1) -> Iterator[RecordBatch]:
    """Endless batches of ``records`` records in order of time."""
    rng = np.random.default_rng(seed)
    words = np.frombuffer(" ".join(WORDS).encode() + b" ", dtype=np.uint8).reshape(len(WORDS), -1)
    relations, start = len(job.schema.relations), 0
    while True:
        positions = np.arange(start, start + records)
        relation = positions % relations
        blocks = []
        for number in range(relations):
            row_count = int(np.count_nonzero(relation == number))
            texts = words[rng.integers(0, len(WORDS), (row_count, _WORDS))].reshape(row_count, -1)
            rows = [row.tobytes()[:-1] for row in texts]
            for keyword in KEYWORDS[: KEYED.keywords]:
                for row in np.flatnonzero(rng.random(row_count) < KEYED.kwf).tolist():
                    rows[row] += b" " + keyword.encode()
            ends = np.cumsum([0, *map(len, rows)])
            keys = rng.integers(1, selectivity + 1, row_count)
            blocks.append(ColumnBlock(number, [Texts(b"".join(rows), ends), keys], {0}))
        times = START * MICROSECOND + positions // relations * MICROSECOND // _SECOND
        yield RecordBatch(relation, times, Rows.in_order(relation, blocks))
        start += records


def make(path: Path, megabytes: int, shards: int, records: int) -> None:
    total = megabytes * 1_000_000
    live = total // _BYTES // 2
    job = job_of(live)
    selectivity = live // KEYED.relations * 5 // 6
    layout = LayoutRequest(shards, Partitioning.KEYS).layout(
        list(job.named().values()), job.stream, job.plan_window
    )
    share = next(iter(layout.shares.values()))
    server, state = ShardServer(job, share), KeptState({})
    processor = MeshProcessor("", job, {})
    processor.init(state)  # type: ignore[arg-type]  # all that the processor uses of it
    mark = ShardProgress(ended=ALWAYS, part=(share.number, share.shards, str(share.spread)))
    server.answer(("begin", LogEnd(0, ALWAYS, None, ALWAYS), [], [], [], {}))
    server.answer(("seek", 0, ALWAYS, 0))
    head = BatchHeader(0.0, tuple(JobCommand.add(query) for query in job.named().values()))
    for number, batch in enumerate(batches(job, selectivity, records)):
        blob = layout.pack(batch)[0]
        head = replace(head, number=number, reached=int(batch.time.max()))
        micro_batch = MicroBatch(head, b"", blob)
        outcome: BatchAnswer = server.answer(("work", mark.epoch, micro_batch.to_bytes(), False))
        mark = processor._store_answer(mark, micro_batch, outcome)  # noqa: SLF001 - as a task does
        head = replace(head, commands=())
        if number % 20 == 0:
            print(f"{number}: {state.log_bytes / 1e6:,.0f} MB", flush=True)
        if state.log_bytes * shards >= total:
            break
    state.updateValue(("mark", ""), (b"", orjson.dumps(asdict(mark))))
    with path.open("wb") as file:
        pickle.dump((job, share, state.blobs), file)
    print(f"{state.log_bytes / 1e6:,.0f} MB, {mark.position:,} tuples")


def rebuild(path: Path) -> None:
    expect_long_lived_objects()
    return_large_arrays()
    with path.open("rb") as file:
        job, share, blobs = pickle.load(file)
    state, server = KeptState(blobs), ShardServer(job, share)
    processor = MeshProcessor("", job, {})
    processor.init(state)  # type: ignore[arg-type]  # all that the processor uses of it
    mark = ShardProgress(**orjson.loads(blobs["mark", ""][1]))
    base_memory, began, spent = peak(), time.perf_counter(), time.process_time()
    processor.rebuild(InProcess(server), mark)
    seconds, spent = time.perf_counter() - began, time.process_time() - spent
    size, megabytes = state.log_bytes / 1e6, (peak() - base_memory) / 1e6
    print(f"{size:,.0f} MB: {seconds:.2f} s, {spent:.2f} s of the processor, {megabytes:,.0f} MB held")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "rebuild"))
    parser.add_argument("log", type=Path)
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the log of all shards")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument(
        "--records", type=int, default=200_000, help="records of a micro-batch, over all shards"
    )
    args = parser.parse_args()
    if args.what == "make":
        make(args.log, args.megabytes, args.shards, args.records)
    else:
        rebuild(args.log)


if __name__ == "__main__":
    main()
