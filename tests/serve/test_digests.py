"""Digests are collected, delivered at the end of an interval, and survive a restart. Tests set the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.jobs.control import JobCommand
from skws.results.result import LiveResult, Result, ResultTuple
from skws.serve.event_publisher import MOST_DIGESTED, EventPublisher
from skws.serve.events import SEGMENT, EventLog, EventPosition, SearchEvent
from skws.serve.saved import SavedSearch
from skws.sinks.base import SinkRun
from skws.spec.query_spec import Query
from tests.jobs.watching import SCHEMA

DAY = 86_400_000_000
NOON = 20_000 * DAY + DAY // 2


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def run(identity: str = "r" * 32) -> SinkRun:
    return SinkRun(identity, None, SCHEMA, False, lambda _: True, lambda _: None)


def open_publisher(
    folder: Path | None, clock: Clock, most: int = 1 << 20, segment: int = SEGMENT
) -> EventPublisher:
    publisher = EventPublisher(folder, most, clock, lambda _: None, segment)
    publisher.open(run())
    return publisher


def result(number: int, name: str = "daily", op: str = "+", *, snapshot: bool = False) -> LiveResult:
    member = ResultTuple.given("order", f"o{number}", ("lamp",), {"item": f"lamp {number}"})
    return Result(op, name, "ada lamp", f"id{number}", 1.0, None, "network", (member,), (), snapshot=snapshot)  # type: ignore[arg-type]


def addition(name: str, text: str = "ada lamp", **more: Any) -> JobCommand:
    return JobCommand.add(SavedSearch(Query(text, name=name), **more).tagged_query)


def standing(*queries: Query) -> Callable[[], Sequence[Query]]:
    return lambda: queries


def digests(publisher: EventPublisher, name: str = "daily") -> list[Any]:
    return [
        orjson.loads(event.data)
        for event in publisher.log.after(publisher.log.floor, name, 10_000)
        if event.kind == "digest"
    ]


def ids(digest: Any) -> list[str]:
    return [one["id"] for one in digest["results"]]


def take(
    publisher: EventPublisher,
    number: int,
    commands: Sequence[JobCommand] = (),
    results: Sequence[LiveResult] = (),
) -> None:
    publisher.take(number, commands, results, standing())


def test_a_day_ends_at_midnight(tmp_path: Path) -> None:
    clock = Clock(NOON)
    publisher = open_publisher(tmp_path, clock)
    take(publisher, 1, [addition("daily", every="1 day")], [result(0, snapshot=True)])
    take(publisher, 2, results=[result(1), result(2), result(1, op="-")])
    clock.now = NOON + DAY // 2 - 1
    publisher.tick()
    assert not digests(publisher)
    clock.now += 1
    publisher.tick()
    (digest,) = digests(publisher)
    assert ids(digest) == ["id1", "id2", "id1"]
    assert (digest["from"], digest["due"], digest["more"]) == (20_000 * DAY, 20_001 * DAY, 0)
    publisher.tick()
    clock.now += DAY
    publisher.tick()
    assert len(digests(publisher)) == 1, "there is no digest without results"
    take(publisher, 3, results=[result(3)])
    clock.now += DAY
    publisher.tick()
    assert ids(digests(publisher)[1]) == ["id3"]


def test_digests_include_updates_on_request(tmp_path: Path) -> None:
    clock = Clock(NOON)
    publisher = open_publisher(tmp_path, clock)
    commands = [addition("daily", every="1 day"), addition("whole", every="1 day", updates=True)]
    take(publisher, 1, commands, [result(1, name, op) for name in ("daily", "whole") for op in "+~"])
    restarted = open_publisher(tmp_path, clock)
    standing_queries = standing(*(command.new_query for command in commands))
    restarted.take(2, [], [result(1, name, "~") for name in ("daily", "whole")], standing_queries)
    clock.now += DAY
    restarted.tick()
    assert [ids(digests(restarted, name)[0]) for name in ("daily", "whole")] == [["id1"], ["id1"] * 3]


def test_a_clock_set_back_does_not_stop_digests() -> None:
    clock = Clock(NOON)
    publisher = open_publisher(None, clock)
    take(publisher, 1, [addition("now", every="1 hour")])
    take(publisher, 2, results=[result(1, "now")])
    clock.now -= 40 * DAY
    publisher.tick()
    clock.now += 3_600_000_000
    publisher.tick()
    assert [event.kind for event in publisher.log.after(publisher.log.floor, "now", 9)] == [
        "added",
        "result",
        "digest",
    ]


def test_a_restart_continues_the_collected_digests(tmp_path: Path) -> None:
    clock = Clock(NOON)
    publisher = open_publisher(tmp_path, clock)
    take(publisher, 1, [addition("daily", every="1 day")])
    take(publisher, 2, results=[result(1)])
    restarted = open_publisher(tmp_path, clock)
    assert restarted.log.last == publisher.log.last
    query = Query("ada lamp", name="daily", tag='{"every":"1 day"}')
    restarted.begin([query])
    take(restarted, 2, results=[result(1)])  # a batch that was not committed is repeated
    take(restarted, 3, results=[result(2)])
    third = open_publisher(tmp_path, clock)
    third.begin([query])
    clock.now += 3 * DAY  # it became due while no process ran
    third.tick()
    assert ids(digests(third)[0]) == ["id1", "id2"]
    last = open_publisher(tmp_path, clock)
    last.begin([query])
    last.tick()
    assert len(digests(last)) == 1, "it is delivered once"


def test_a_digest_lists_some_results_and_counts_the_rest() -> None:
    clock = Clock(NOON)
    publisher = open_publisher(None, clock)
    take(publisher, 1, [addition("daily", every="1 hour")])
    take(publisher, 2, results=[result(n) for n in range(MOST_DIGESTED + 7)])
    clock.now += 3_600_000_000
    publisher.tick()
    (digest,) = digests(publisher)
    assert (len(digest["results"]), digest["more"]) == (MOST_DIGESTED, 7)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_digest_lists_results_up_to_a_size(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand results with texts of megabytes would fill the memory."""
    size = len(result(10).to_json())
    # Digests of 32 MB take seconds.
    monkeypatch.setattr("skws.serve.event_publisher.MOST_DIGEST_BYTES", 3 * size)
    clock = Clock(NOON)
    publisher = open_publisher(tmp_path, clock, segment=1)
    daily_addition = addition("daily", every="1 day")
    take(publisher, 1, [daily_addition], [result(10)])
    for number in range(2, 7):
        if restarts:
            publisher = open_publisher(tmp_path, clock, segment=1)
        publisher.take(number, [], [result(9 + number)], standing(daily_addition.new_query))
    for _ in range(2):
        clock.now += DAY
        publisher.tick()
        publisher.take(7, [], [result(20)], standing())
    first, second = digests(publisher)
    assert (ids(first), first["more"]) == (["id10", "id11", "id12"], 3)
    assert (ids(second), second["more"]) == (["id20"], 0)


def test_a_removed_or_replaced_search_has_no_digest() -> None:
    clock = Clock(NOON)
    publisher = open_publisher(None, clock)
    take(publisher, 1, [addition("daily", every="1 hour"), addition("other", every="1 hour")])
    take(publisher, 2, results=[result(1)])
    take(publisher, 3, [JobCommand("remove", "daily"), JobCommand("remove", "other"), addition("other")])
    clock.now += 3_600_000_000
    publisher.tick()
    assert not digests(publisher)
    assert not digests(publisher, "other")


def positions(events: Sequence[SearchEvent]) -> list[tuple[int, int]]:
    return [tuple(event.at) for event in events]  # type: ignore[misc]


def test_events_are_restored_from_a_truncated_log(tmp_path: Path) -> None:
    publisher = open_publisher(tmp_path, Clock(NOON))
    take(publisher, 1, [addition("now")])
    for number in range(2, 20):
        take(publisher, number, results=[result(number), result(100 + number)])
    events = publisher.log.after(publisher.log.floor, "now", 1000)
    (file,) = tmp_path.glob("*.events")
    data = file.read_bytes()
    for length in range(len(data), 0, -997):
        file.write_bytes(data[:length])
        restarted = open_publisher(tmp_path, Clock(NOON))
        restored = restarted.log.after(restarted.log.floor, "now", 1000)
        assert restored == events[: len(restored)]
        restarted.begin([Query("ada lamp", name="now")])
        for number in range(2, 20):  # the journal has all batches
            take(restarted, number, results=[result(number), result(100 + number)])
        after = restarted.log.after(restarted.log.floor, "now", 1000)
        assert positions(after)[-36:] == positions(events)[-36:]
        assert [event.data for event in after if event.kind == "result"] == [
            event.data for event in events if event.kind == "result"
        ]
        restarted.close()


def test_old_events_are_dropped_and_the_floor_advances(tmp_path: Path) -> None:
    publisher = open_publisher(tmp_path, Clock(NOON), most=3_000)
    take(publisher, 1, [addition("now")])
    for number in range(2, 60):
        take(publisher, number, results=[result(number, "now")])
    assert publisher.log.bytes <= 3_000
    remaining = publisher.log.after(publisher.log.floor, "now", 1000)
    assert remaining[-1].at == (59, 1)
    assert publisher.log.floor == (remaining[0].at.batch - 1, 1)
    assert publisher.log.count == 59


def test_open_digests_are_carried_into_the_next_segment(tmp_path: Path) -> None:
    clock = Clock(NOON)
    publisher = open_publisher(tmp_path, clock, most=2_000, segment=1_000)
    take(publisher, 1, [addition("daily", every="1 day")])
    for number in range(2, 40):
        take(publisher, number, results=[result(number)])
        publisher.flush()
    assert len(list(tmp_path.glob("*.events"))) < 10
    restarted = open_publisher(tmp_path, clock, most=2_000)
    restarted.begin([Query("ada lamp", name="daily", tag='{"every":"1 day"}')])
    clock.now += DAY
    restarted.tick()
    assert ids(digests(restarted)[0]) == [f"id{n}" for n in range(2, 40)]
    assert restarted.log.floor > (0, 0)


def test_a_replacement_survives_a_kill_before_its_events_are_stored(tmp_path: Path) -> None:
    """The batch is repeated, and the queries before it are known."""
    clock = Clock(NOON)
    first = open_publisher(tmp_path, clock)
    take(first, 1, [addition("moves", "ada lamp", owner="ann")])
    restarted = open_publisher(tmp_path, clock)
    before = standing(SavedSearch(Query("ada lamp", name="moves"), owner="ann").tagged_query)
    commands = [JobCommand("remove", "moves"), addition("moves", "ada sofa", owner="bob")]
    restarted.take(2, commands, [result(1, "moves")], before)
    events = restarted.log.after(EventPosition(1, 9), "moves", 9)
    assert [event.kind for event in events] == ["replaced", "added", "result"]
    owners = [
        saved.owner
        for stored_event in events
        if (saved := restarted.saved_at("moves", stored_event.at)) is not None
    ]
    assert owners == ["ann", "bob", "bob"]


def test_a_search_of_a_repeated_batch_is_known(tmp_path: Path) -> None:
    """Its events are stored, but the job was killed before it had committed the batch."""
    clock = Clock(NOON)
    take(open_publisher(tmp_path, clock), 1, [addition("daily", owner="ann")])
    restarted = open_publisher(tmp_path, clock)
    take(restarted, 1, [addition("daily", owner="ann")])
    assert restarted.saved["daily"].owner == "ann"
    assert [event.kind for event in restarted.log.after(restarted.log.floor, "daily", 9)] == ["added"]


def test_snapshots_are_only_for_the_new_search() -> None:
    publisher = open_publisher(None, Clock(NOON))
    take(publisher, 1, [addition("first")], [result(1, "first", snapshot=True)])
    take(
        publisher,
        2,
        [addition("second"), addition("third")],
        [
            result(1, "second", snapshot=True),
            result(1, "third", snapshot=True),
            *(result(2, name) for name in ("first", "second", "third")),
        ],
    )
    events_by_name = {
        name: [
            orjson.loads(e.data)["id"]
            for e in publisher.log.after(publisher.log.floor, name, 9)
            if e.kind == "result"
        ]
        for name in ("first", "second", "third")
    }
    assert events_by_name == {"first": ["id1", "id2"], "second": ["id1", "id2"], "third": ["id1", "id2"]}


def test_open_digests_are_not_written_with_each_batch(tmp_path: Path) -> None:
    """However large they are, and even after a restart."""
    names = [f"digest {n}" for n in range(10)]
    publisher = open_publisher(tmp_path, Clock(NOON), most=1 << 30, segment=10_000)
    take(publisher, 1, [addition(name, every="1 day") for name in names])
    size = 0
    for number in range(2, 202):
        if number == 100:
            publisher.close()
            publisher = open_publisher(tmp_path, Clock(NOON), most=1 << 30, segment=10_000)
        results = [result(number, name) for name in names]
        size += sum(len(one.to_json()) for one in results)
        take(publisher, number, results=results)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5 * size


def test_the_search_of_an_event_is_found_in_few_steps() -> None:
    """However often a search was replaced before."""
    comparisons = 0

    class Position(EventPosition):
        def __lt__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return tuple(self) < other  # type: ignore[operator]

        def __ge__(self, other: object) -> bool:
            return not self < other

    log = EventLog(1 << 20)
    endings = [SearchEvent(Position(2 * number, 1), "replaced", "x", b"{}") for number in range(1_000)]
    for event in endings:
        log.end([event])
        log.append([event])
    for batch, expected in ((0, 0), (1, 1), (998, 499), (999, 500), (1_998, 999)):
        comparisons = 0
        assert log.end_of("x", EventPosition(batch, 1)) is endings[expected]
        assert comparisons < 20
    assert log.end_of("x", EventPosition(1_999, 1)) is None
    assert log.end_of("y", EventPosition(0, 1)) is None
