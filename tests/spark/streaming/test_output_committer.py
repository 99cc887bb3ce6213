"""Results waiting for slow sinks are delayed, but never lost or repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import numpy as np
import orjson
import pyarrow as pa
import pytest

from skws.data.batch import BadRecord, Record, RecordBatch
from skws.data.packing import decompress, pack
from skws.jobs.clock import StoppableClock
from skws.jobs.metrics import Gauges
from skws.results.frames import result_table
from skws.results.result import JsonRow, LiveResult, Op, Result, ResultTuple
from skws.spark.streaming.messages import RECORDS, BatchAnswer
from skws.spark.streaming.output_merger import AHEAD, OutputCommitter, OutputMerger, records_of, results_of
from skws.spark.streaming.run_directory import Output
from skws.spark.streaming.shard_server import blobs_of, encoded_tables
from tests.jobs.watching import Notes, request
from tests.spark.streaming.committers import committer

PATIENCE = 20.0


def output_of(number: int) -> Output:
    return Output(number, [(0, 0, b"{}")])


def numbers(outputs: list[Output]) -> list[int]:
    return [one.number for one in outputs]


def ahead(output_committer: OutputCommitter) -> Thread:
    """The job's thread, which puts one batch more than may wait."""
    for number in range(1, AHEAD + 1):
        output_committer.put(output_of(number))
    thread = Thread(target=output_committer.put, args=[output_of(AHEAD + 1)], daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    return thread


def test_slow_sinks_hold_up_the_job(tmp_path: Path) -> None:
    output_committer, outputs = committer(tmp_path)
    thread = ahead(output_committer)
    assert output_committer.deliver()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    output_committer.deliver_rest()
    assert numbers(outputs) == list(range(1, AHEAD + 2))
    assert not output_committer.deliver()
    output_committer.close()


@pytest.mark.parametrize("end", ["stopping", "stop_waiting"])
def test_stopping_releases_the_job_and_the_next_start_delivers_waiting_batches(
    tmp_path: Path, end: str
) -> None:
    clock = StoppableClock()
    output_committer, outputs = committer(tmp_path, clock=clock)
    endings: dict[str, Callable[[], None]] = {
        "stopping": clock.stopping.set,
        "stop_waiting": output_committer.stop_waiting,
    }
    thread = ahead(output_committer)
    endings[end]()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    output_committer.deliver_rest()
    assert numbers(outputs) == list(range(1, AHEAD + 1))
    output_committer.close()
    _, remaining = committer(tmp_path, committed=3)
    assert numbers(remaining) == list(range(4, AHEAD + 2))


def test_a_repeated_batch_is_skipped(tmp_path: Path) -> None:
    first, outputs = committer(tmp_path, size=100)
    for number in (1, 2, 2, 3):
        first.put(output_of(number))
        if number == 1:
            first.deliver_rest()
            first.commit()
    first.deliver_rest()
    assert numbers(outputs) == [1, 2, 3]
    first.close()
    second, later_outputs = committer(tmp_path, committed=1)
    assert numbers(later_outputs) == [2, 3]
    for number in (3, 4):  # the third was in the outbox, which the job did not know
        second.put(output_of(number))
    second.deliver_rest()
    assert numbers(later_outputs) == [2, 3, 4]
    # Everything is committed and the outbox empty, but the job repeats its last batch.
    second.commit()
    second.close()
    third, later_outputs = committer(tmp_path, committed=4)
    third.put(output_of(4))
    third.deliver_rest()
    assert later_outputs == []
    third.close()


@pytest.mark.parametrize("count", [0, 1, 6_000])
def test_results_of_a_server_are_delivered_unchanged(count: int) -> None:
    member = ResultTuple.given("movie", "movie:1", ("pulp",), {"mid": 1, "title": "Pulp Fiction"})
    results = [
        Result("+", "pulp", "pulp", f"{n:x}", n / 10, None, "movie{pulp}", (member,), ())
        for n in range(count)
    ]
    blobs = blobs_of(BatchAnswer(list(results), {"seconds": 0.1}, None, [], [], [], 0, 0))
    assert sum(map(len, blobs)) < 100 + 60 * count or count < 2
    output = Output(1, [(0, part, blob) for part, blob in enumerate(blobs)])
    assert [result.parsed for _, result in results_of(output)] == results


def test_a_result_that_never_lived_is_retracted_after_it_is_reported() -> None:
    """Its tuples had ended before it begins; another shard has results between these times."""
    results_by_shard: list[list[tuple[Op, str, float, float | None]]] = [
        [("+", "a", 1.0, None), ("+", "never", 76.0, 57.0), ("-", "never", 76.0, 57.0)],
        [("+", "b", 60.0, None)],
    ]
    rows: list[tuple[int, int, bytes]] = []
    for shard, found in enumerate(results_by_shard):
        results = [
            Result(op, "q", "q", name, begin, end, "movie{q}", (), ()) for op, name, begin, end in found
        ]
        blobs = blobs_of(BatchAnswer(list(results), {}, None, [], [], [], 0, 0))
        rows += [(shard, part, blob) for part, blob in enumerate(blobs)]
    merged = [(result.op, result.id) for _, result in results_of(Output(1, rows))]
    assert merged == [("+", "a"), ("+", "b"), ("+", "never"), ("-", "never")]


def test_an_unwritable_result_is_a_counted_dead_letter(tmp_path: Path) -> None:
    rows: list[JsonRow] = [{"title": "Pulp Fiction"}, {"title": "half of \ud800"}]
    tuples = [ResultTuple.given("movie", f"movie:{n}", ("pulp",), row) for n, row in enumerate(rows)]
    results = [
        Result("+", "pulp", "pulp", f"{n}", 1.0, None, "movie{pulp}", (one,), ())
        for n, one in enumerate(tuples)
    ]
    blobs = blobs_of(BatchAnswer(list(results), {"operators": 0, "waiting": 0}, None, [], [], [], 0, 0))
    output = Output(1, [(0, part, blob) for part, blob in enumerate(blobs)])
    notes, fan_out = Notes(), WrittenOutput()
    merger = OutputMerger(request(tmp_path), notes.log, Gauges(request(tmp_path), 0), lambda _: None)
    merger.deliver_to(fan_out)  # type: ignore[arg-type]  # all that is asked of one
    merger.take(output)
    assert [one.parsed for one in fan_out.results] == results[:1]
    (dead_letter,) = map(orjson.loads, fan_out.letters)
    assert (dead_letter["source"], orjson.loads(dead_letter["raw"])["id"]) == ("result", "1")
    assert "result of 'pulp': cannot be written: " in notes.lines[0]
    assert merger.bad_summary().startswith("1 bad record\n  result of 'pulp': cannot be written: ")


def test_updates_do_not_count_against_the_limit(tmp_path: Path) -> None:
    member = ResultTuple.given("movie", "movie:1", ("pulp",), {"title": "Pulp Fiction"})
    ops: list[Op] = ["+", "~", "+", "-"]
    results = [
        Result(op, "pulp", "pulp", f"{n}", 1.0, None, "movie{pulp}", (member,), ())
        for n, op in enumerate(ops)
    ]
    blobs = blobs_of(BatchAnswer(list(results), {"operators": 0, "waiting": 0}, None, [], [], [], 0, 0))
    job, fan_out = request(tmp_path, limit=2), WrittenOutput()
    merger = OutputMerger(job, Notes().log, Gauges(job, 0), lambda _: None)
    merger.deliver_to(fan_out)  # type: ignore[arg-type]  # all that is asked of one
    merger.take(Output(1, [(0, part, blob) for part, blob in enumerate(blobs)]))
    assert [one.op for one in fan_out.results] == ["+", "~", "+"]
    assert merger.full


@pytest.mark.parametrize("count", [0, 1, 6_000])
def test_a_server_can_return_its_results_as_tables(count: int) -> None:
    titles = ["Pulp Fiction", "half of \ud800", "Jackie Brown"]
    tuples = [
        ResultTuple.given("movie", f"movie:{n}", ("pulp",), {"title": one}) for n, one in enumerate(titles)
    ]
    results = [
        Result("+", "pulp", "pulp", f"{n:x}", n / 10, None, "movie{pulp}", (tuples[n % 2 * 2],), ())
        for n in range(count)
    ]
    unwritable = Result("+", "pulp", "pulp", "bad", 1.0, None, "movie{pulp}", (tuples[1],), ())
    for results_of_server in (results, [*results, unwritable]):
        stats, *blobs = blobs_of(BatchAnswer(results_of_server, {}, None, [], [], [], 0, 0), encoded_tables)
        tables = [pa.ipc.open_stream(decompress(blob)).read_all() for blob in blobs]
        assert pa.concat_tables([result_table([]), *tables]).equals(result_table(results))
        assert ("unwritable" in orjson.loads(stats)) == (unwritable in results_of_server)


class WrittenOutput:
    """Stands in for a fan-out: keeps what it would write."""

    def write(self, batch: int, results: Sequence[LiveResult], letters: Sequence[str]) -> list[BadRecord]:
        self.results, self.letters = results, letters
        return []


@pytest.mark.parametrize("shards", [1, 2])
def test_a_listener_sees_the_records_of_each_micro_batch_in_order(shards: int) -> None:
    """Records that were divided among shards are merged again."""
    batches = [RecordBatch.of([Record(0, n, (n, "a")) for n in range(first, first + 5)]) for first in (0, 5)]
    rows: list[tuple[int, int, bytes]] = []
    for shard in range(shards):
        for batch in batches:
            numbers = np.arange(shard, 5, shards)
            packed = pack(batch) if shards == 1 else pack(batch.take(numbers), numbers)
            rows += [(shard, 0, b"{}"), (shard, 1, b"a result"), (shard, RECORDS, packed)]
    observed = [list(records.records()) for records in records_of(Output(1, rows))]
    assert observed == [list(batch.records()) for batch in batches]
    assert list(records_of(Output(1, [(0, 0, b"{}")]))) == []
