"""Moving a replay in time: at each instant a job holds what one that came there by itself would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.stepped_run import HandClock
from skws.data.time_buckets import TimeBuckets
from skws.jobs.control import Command, Move, RunControl
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.results.model import LiveResult
from skws.sinks.base import Run
from skws.sources import replays
from skws.spec.job import Job
from skws.spec.query import Query
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


class Alive:
    """A sink that knows the live results, as the events of a job make them."""

    name = "alive"
    every = 1.0

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], LiveResult] = {}

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        for result in results:
            if result.op == "+":
                self.results[result.query, result.id] = result
            else:
                self.results.pop((result.query, result.id), None)

    def at(self, now: float) -> set[tuple[str, str]]:
        return {key for key, result in self.results.items() if result.end is None or result.end > now}

    def moved(self) -> None:
        self.results.clear()

    def open(self, run: Run) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def load_tables(self, records: Sequence[Any]) -> None: ...
    def add(self, records: Sequence[Any]) -> None: ...
    def miss(self) -> None: ...


class Replayed:
    """A job over a replay on a clock by hand, one second of the replay a second."""

    def __init__(self, folder: Path, replay: Path) -> None:
        self.sink, self.clock = Alive(), HandClock()
        job = Job({}, load_schema(folder / "shop.yaml"), f"replay:{replay}?speed=1", force_unbounded=True)
        self.control = RunControl(job, self.clock)
        self.watch = LocalWatch(
            job, [self.sink], Log(), control=self.control, onlooker=self.sink, lasting=True
        )
        self.watch.open()
        for text in ("lamp red", "blue", "red"):
            self.control.submit(Command.new(text, Query(text)))
        self.watch.step()

    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        while self.watch.step():
            pass

    def move(self, move: Move) -> None:
        self.control.seek(move)
        self.watch.step()

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


def written(path: Path, records: list[Record]) -> Path:
    lines = []
    for time, relation, number, words, delete in records:
        row = {"id": number, ("name" if relation == "item" else "note"): words}
        line: dict[str, Any] = {"relation": relation, "time": time, "row": row}
        lines.append(json.dumps(line | ({"op": "-"} if delete else {})))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("window", ["5 s", "20 s", "3 tuples", "none"])
@given(data=st.data(), ordered=st.booleans(), kept=st.booleans())
@examples(8)
def test_the_state_at_an_instant_is_that_of_a_job_that_came_there(
    window: str, kept: bool, data: st.DataObject, ordered: bool
) -> None:
    records = data.draw(RECORDS)
    records = sorted(records, key=lambda one: one[0]) if ordered else records
    moves: list[Move] = data.draw(
        st.lists(st.integers(-5, 70) | st.sampled_from(["next", "previous"]), min_size=1, max_size=4)
    )
    with (
        TemporaryDirectory() as name,
        mock.patch.object(replays, "MEMORY_RECORDS", 1_000 if kept else 0),
        mock.patch.object(replays, "_PART_BYTES", 200),
        mock.patch.object(replays, "_SOUGHT", 7),
    ):
        folder = Path(name)
        (folder / "shop.yaml").write_text(SCHEMA.format(window=window))
        run = Replayed(folder, written(folder / "whole.jsonl", records))
        times = sorted({time for time, *_ in records})
        for move in moves:
            now = (run.watch.event_time or 0) // SECOND
            if move == "next":
                wanted = min((time for time in times if time > now), default=now)
            elif move == "previous":
                wanted = max((time for time in times if time < now), default=times[0])
            else:
                wanted = max((time for time in times if time <= int(move)), default=times[0])
            run.move(move * SECOND if isinstance(move, int) else move)
            reached = (run.watch.event_time or 0) / SECOND
            # With no record in reach, the event time is where the reach begins.
            assert reached == wanted or (isinstance(move, int) and wanted < reached <= move)
            prefix = [one for one in sorted(records, key=lambda one: one[0]) if one[0] <= wanted]
            there = Replayed(folder, written(folder / "prefix.jsonl", prefix))
            there.pass_time(1_000)
            assert run.alive == there.alive
        run.pass_time(1_000)
        there = Replayed(folder, written(folder / "prefix.jsonl", records))
        there.pass_time(1_000)
        assert run.alive == there.alive
        assert run.watch.ended


@given(st.lists(st.integers(-(10**15), 10**16), min_size=1, max_size=60), st.integers(2, 8))
@examples(60)
def test_buckets_lose_no_event_however_long_the_time(times: list[int], most: int) -> None:
    buckets = TimeBuckets(most)
    for start in range(0, len(times), 7):
        buckets.add(times[start : start + 7])
    assert (buckets.first, buckets.last) == (min(times), max(times))
    assert sum(buckets.columns(20, min(times), max(times))) == len(times)
    assert len(buckets._buckets[1]) <= most
    again = TimeBuckets(most)
    again.add(times[: len(times) // 2])
    assert sum(buckets.larger(again).columns(20, min(times), max(times))) == len(times)


def test_a_job_that_cannot_move_says_so(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="5 s"))
    source = written(tmp_path / "whole.jsonl", [(1, "item", 1, "red", False)])
    said: list[str] = []

    class Saying(Log):
        def _line(self, level: str, event: str, message: str, fields: dict[str, Any]) -> None:
            said.append(message)

    job = Job({}, load_schema(tmp_path / "shop.yaml"), str(source))
    control = RunControl(job, HandClock())
    watch = LocalWatch(job, [], Saying(), control=control)
    watch.open()
    control.seek(3 * SECOND)
    watch.step()
    assert "only replays" in said[-1]
