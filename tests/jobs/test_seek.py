"""Moving a replay in time: at each instant a job has the state of a job that ran to that instant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.stepped_run import SteppedClock
from skws.data.batch import RecordBatch
from skws.jobs.control import JobCommand, Move, RunControl
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.results.result import LiveResult
from skws.sinks.base import SinkRun
from skws.sources.replays import TimeBuckets
from skws.spec.enums import OnError
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.yaml.load import load_schema
from tests.strategies import examples

SECOND = 1_000_000
SCHEMA = """\
version: 1
name: shop
window: {window}
relations:
  item:
    attributes: {{id: integer, name: text}}
    key: [id]
  visit:
    attributes: {{id: integer, note: text}}
joins:
  - item.id = visit.id
"""


CHANGES = {
    "a removed join": ("joins:\n  - item.id = visit.id\n", "joins: []\n"),
    "an added join": ("joins:\n", "joins:\n  - visit.id = visit.id\n"),
    "a removed relation": (
        "  visit:\n    attributes: {{id: integer, note: text}}\njoins:\n  - item.id = visit.id\n",
        "joins: []\n",
    ),
    "an added relation": (
        "joins:\n",
        "  tag:\n    attributes: {{id: integer, word: text}}\njoins:\n  - item.id = tag.id\n",
    ),
    "a relation with another attribute": ("note: text", "note: text, more: text"),
}


class LiveResults:
    """A sink that tracks the live results from the events of a job."""

    name = "alive"
    every = 1.0

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], LiveResult] = {}
        self.moves = 0

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        for result in results:
            if result.op == "-":
                self.results.pop((result.query, result.id), None)
            else:
                self.results[result.query, result.id] = result

    def at(self, now: float) -> set[tuple[str, str]]:
        return {key for key, result in self.results.items() if result.end is None or result.end > now}

    def moved(self) -> None:
        self.results.clear()
        self.moves += 1

    def open(self, run: SinkRun) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def load_tables(self, records: Sequence[Any]) -> None: ...
    def add(self, batch: RecordBatch) -> None: ...


class ReplayJob:
    """A job over a replay on a manual clock, one second of the replay per second."""

    def __init__(self, folder: Path, replay: Path, *, keeps_records: bool = True) -> None:
        self.sink, self.clock = LiveResults(), SteppedClock()
        job = Job(
            {},
            load_schema(folder / "shop.yaml"),
            f"replay:{replay}?speed=1&memory={1_000 * keeps_records}",
            on_error=OnError.SKIP,
        )
        self.control = RunControl(job, self.clock)
        self.watch = LocalWatch(
            job, [self.sink], Log(), control=self.control, job_listener=self.sink, keep_alive=True
        )
        self.watch.open()
        for text in ("lamp red", "blue", "red"):
            self.control.submit(JobCommand.add(Query(text, name=text)))
        self.watch.step()

    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        while self.watch.step():
            pass

    def move(self, move: Move) -> None:
        self.control.seek(move)
        self.watch.step()

    def change_schema(self, text: str) -> None:
        answer = self.control.submit(JobCommand("schema", "", schema=text))
        self.watch.step()
        assert not answer.result(0).error

    @property
    def alive(self) -> set[tuple[str, str]]:
        return self.sink.at((self.watch.event_time or 0) / SECOND)


Record = tuple[int, str, int, str, bool]
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.sampled_from(["item", "visit"]),
        st.integers(0, 3),
        st.sampled_from(["red lamp", "blue", "lamp", "red", "green"]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=40,
)


def write_replay(path: Path, records: list[Record]) -> Path:
    lines = []
    for time, relation, row_id, words, delete in records:
        row = {"id": row_id, {"item": "name", "visit": "note", "tag": "word"}[relation]: words}
        line: dict[str, Any] = {"relation": relation, "time": time, "row": row}
        lines.append(json.dumps(line | ({"op": "-"} if delete else {})))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.check
@pytest.mark.parametrize("window", ["5 s", "20 s", "3 tuples", "none"])
@given(data=st.data(), ordered=st.booleans(), keeps_records=st.booleans())
@examples(8)
def test_a_move_gives_the_state_of_a_job_that_ran_to_that_time(
    window: str, keeps_records: bool, data: st.DataObject, ordered: bool
) -> None:
    records = data.draw(RECORDS)
    records = sorted(records, key=lambda r: r[0]) if ordered else records
    moves: list[Move] = data.draw(
        st.lists(st.integers(-5, 70) | st.sampled_from(["next", "previous"]), min_size=1, max_size=4)
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.yaml").write_text(SCHEMA.format(window=window))
        run = ReplayJob(folder, write_replay(folder / "whole.jsonl", records), keeps_records=keeps_records)
        times = sorted({time for time, *_ in records})
        for move in moves:
            now = (run.watch.event_time or 0) // SECOND
            if move == "next":
                expected_time = min((time for time in times if time > now), default=now)
            elif move == "previous":
                expected_time = max((time for time in times if time < now), default=times[0])
            else:
                expected_time = max((time for time in times if time <= int(move)), default=times[0])
            run.move(move * SECOND if isinstance(move, int) else move)
            assert (run.watch.event_time or 0) / SECOND == expected_time
            prefix = [record for record in sorted(records, key=lambda r: r[0]) if record[0] <= expected_time]
            reference = ReplayJob(folder, write_replay(folder / "prefix.jsonl", prefix))
            reference.pass_time(1_000)
            assert run.alive == reference.alive
        run.pass_time(1_000)
        reference = ReplayJob(folder, write_replay(folder / "prefix.jsonl", records))
        reference.pass_time(1_000)
        assert run.alive == reference.alive
        assert run.watch.ended


@pytest.mark.check
@pytest.mark.parametrize("change", CHANGES)
@given(
    data=st.data(),
    records=st.lists(
        st.tuples(
            st.integers(0, 30),
            st.sampled_from(["item", "visit", "tag"]),
            st.integers(0, 2),
            st.sampled_from(["red lamp", "blue", "lamp", "red"]),
            st.sampled_from([False, False, False, True]),
        ),
        min_size=2,
        max_size=25,
    ),
    window=st.sampled_from(["5 s", "20 s", "none"]),
    keeps_records=st.booleans(),
)
@examples(12)
def test_a_move_after_a_schema_change_gives_the_state_under_the_new_schema(
    change: str, records: list[Record], window: str, keeps_records: bool, data: st.DataObject
) -> None:
    """An added relation lacks earlier records until the state is rebuilt.

    Records of a removed relation still advance the time, so the other job knows the relation, but does not
    search it.
    """
    new_schema = SCHEMA.replace(*CHANGES[change]).format(window=window)
    adds_records = change in {"an added relation", "a relation with another attribute"}
    moves = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.yaml").write_text(SCHEMA.format(window=window))
        run = ReplayJob(folder, write_replay(folder / "whole.jsonl", records), keeps_records=keeps_records)
        run.pass_time(data.draw(st.integers(0, 30)))
        run.change_schema(new_schema)
        if change == "a removed relation":
            new_schema = SCHEMA.replace(*CHANGES["a removed join"]).format(window=window)
            new_schema = new_schema.replace("note: text", "note: string")
        (folder / "shop.yaml").write_text(new_schema)
        known_records = [record for record in records if record[1] in new_schema]
        times = sorted({time for time, *_ in known_records})
        for move in moves if times else ():
            run.move(move * SECOND)
            prefix = [record for record in sorted(known_records, key=lambda r: r[0]) if record[0] <= move]
            reference = ReplayJob(folder, write_replay(folder / "prefix.jsonl", prefix))
            reference.pass_time(1_000)
            if prefix and (run.sink.moves or not adds_records):
                now = max(run.watch.event_time or 0, reference.watch.event_time or 0) / SECOND
                assert run.sink.at(now) == reference.sink.at(now)
        run.pass_time(1_000)
        assert run.watch.ended
        if run.sink.moves or not adds_records:
            reference = ReplayJob(folder, write_replay(folder / "prefix.jsonl", known_records))
            reference.pass_time(1_000)
            assert run.alive == reference.alive


@pytest.mark.parametrize("keeps_records", [True, False])
@pytest.mark.parametrize("move", [5 * SECOND, "next"])
def test_a_move_forward_after_a_schema_change_reads_by_the_new_schema(
    tmp_path: Path, move: Move, *, keeps_records: bool
) -> None:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="none"))
    records = [(0, "item", 1, "lamp", False), (5, "tag", 1, "red", False), (9, "visit", 1, "red", False)]
    run = ReplayJob(tmp_path, write_replay(tmp_path / "whole.jsonl", records), keeps_records=keeps_records)
    run.pass_time(1)
    run.change_schema(SCHEMA.replace(*CHANGES["an added relation"]).format(window="none"))
    run.move(move)
    assert run.watch.event_time == 5 * SECOND
    assert {query for query, _ in run.alive} == {"red", "lamp red"}


@given(st.lists(st.integers(-(10**15), 10**16), min_size=1, max_size=60), st.integers(2, 8))
@examples(60)
def test_time_buckets_count_every_event(times: list[int], limit: int) -> None:
    buckets = TimeBuckets(limit)
    for start in range(0, len(times), 7):
        buckets.add(times[start : start + 7])
    assert (buckets.first, buckets.last) == (min(times), max(times))
    assert sum(buckets.columns(20, min(times), max(times))) == len(times)
    width = 1
    while max(times) // width - min(times) // width >= limit:
        width *= 2
    for time in times:
        last = max((earlier for earlier in times if earlier // width < time // width), default=min(times))
        assert buckets.before(time) == max(last // width * width, min(times))
    other_buckets = TimeBuckets(limit)
    other_buckets.add(times[: len(times) // 2])
    assert sum(buckets.larger(other_buckets).columns(20, min(times), max(times))) == len(times)


def test_time_buckets_count_no_event_before_the_first_column() -> None:
    buckets = TimeBuckets()
    buckets.add([3, 4, 8, 9])
    assert buckets.columns(1, 4, 8) == [2]


def test_a_job_without_a_replay_cannot_move(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="5 s"))
    source = write_replay(tmp_path / "whole.jsonl", [(1, "item", 1, "red", False)])
    messages: list[str] = []

    class RecordingLog(Log):
        def _line(self, level: str, event: str, message: str, fields: dict[str, Any]) -> None:
            messages.append(message)

    job = Job({}, load_schema(tmp_path / "shop.yaml"), str(source))
    control = RunControl(job, SteppedClock())
    watch = LocalWatch(job, [], RecordingLog(), control=control)
    watch.open()
    control.seek(3 * SECOND)
    watch.step()
    assert "only replays" in messages[-1]


def test_a_stop_ends_a_long_move(tmp_path: Path) -> None:
    records = [
        {"relation": "item", "time": n / 1000, "row": {"id": n, "name": "lamp"}} for n in range(50_000)
    ]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="1 hour"))
    job = ReplayJob(tmp_path, tmp_path / "in.jsonl")

    def stop(batch: RecordBatch) -> None:
        if len(batch):
            job.control.stop()

    job.sink.add = stop  # type: ignore[method-assign]
    job.control.seek(50 * SECOND)
    job.watch.step()
    assert 0 < job.watch.metrics().tuples < 20_000
