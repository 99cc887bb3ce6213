"""A live search resumes from its checkpoint after a crash anywhere: no result is lost or repeated."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from skws.jobs import journal as journals
from skws.jobs.checkpoint import VERSION, Checkpoint
from skws.jobs.control import Command, ControlFolder
from skws.jobs.fanout import SinkFanout
from skws.jobs.journal import Journal
from skws.jobs.local import LocalWatch
from skws.jobs.worker import Worker
from skws.sinks.database import SqliteSink
from skws.sinks.files import JsonLinesSink
from skws.spec.enums import OnError
from skws.spec.job import Job
from skws.spec.query import PATTERN, Query
from skws_schema.errors import SchemaError, StateError, UsageError
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Window
from tests.jobs.watching import (
    QUERY,
    SCHEMA,
    Collected,
    Notes,
    abandon,
    append,
    customer,
    lines,
    opened,
    order,
    ran,
    request,
    steps,
    told,
)
from tests.queries.counted import counted
from tests.strategies import seeds

TWICE: Final = 'order a ; order b where a.cid = b.cid and a:"lamp" within 10 s'


# With a window of its own, since a window expression is not for patterns.
ORDERED: Final = "customer c ; order o where c.cid = o.cid within 10 s"
SESSIONS: Final = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")


class Crash(BaseException):
    """The process ends here."""


# Where a crash may happen: a method, and whether before or after it.
PLACES: Final = [
    (owner, name, after)
    for owner, name in (
        (Journal, "append"),
        (Worker, "work"),
        (SinkFanout, "write"),
        (SinkFanout, "flush"),
        (JsonLinesSink, "write"),
        (JsonLinesSink, "flush"),
        (SqliteSink, "write"),
        (Checkpoint, "commit"),
        (Journal, "trim"),
        (Checkpoint, "begin"),
        (Checkpoint, "give"),
    )
    for after in (False, True)
]


def crashing(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str, bool], after_calls: int) -> None:
    """The n-th call of a method from now on ends the process."""
    owner, name, after = place
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def broken(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after_calls and not after:
            raise Crash
        result = real(*given, **named)
        if calls == after_calls:
            raise Crash
        return result

    monkeypatch.setattr(owner, name, broken)


def stream(rng: random.Random, parts: int) -> list[list[dict[str, Any]]]:
    """Records in parts: customers are renamed and deleted, orders come back; ties, bad and late ones."""
    time, made = 0.0, []
    for _ in range(parts):
        part: list[dict[str, Any]] = []
        for _ in range(rng.randint(1, 6)):
            time += rng.choice((0, 0, 0.5, 1, 3))
            cid, word = rng.randint(1, 4), rng.choice(("ada", "bob ada", "eve"))
            item = rng.choice(("lamp", "lamp old", "chair"))
            op = rng.choice("+++-")
            part.append(
                rng.choice(
                    (customer(time, cid, word, op), order(time, cid, item, op), order(time, cid, item))
                )
            )
        if rng.random() < 0.1:
            part.append({"relation": "nobody", "time": time})
        if rng.random() < 0.1:
            part.append(order(time - 2, 1))
        made.append(part)
    return made


class Place:
    """One run's files, worked on by process after process."""

    def __init__(self, folder: Path, window: Window, lateness: int) -> None:
        folder.mkdir()
        self.source, self.out = folder / "in.jsonl", folder / "out.jsonl"
        self.letters, self.table = folder / "letters.jsonl", folder / "out.db"
        self.source.touch()
        self.asked = request(
            self.source,
            window=window,
            lateness=lateness,
            queries={
                QUERY: QUERY,
                "bob": "bob",
                "ordered": Query(ORDERED, kind=PATTERN),
                "third": Query("3", kind="counted"),
            },
            sinks=(f"jsonl:{self.out}", f"sqlite:{self.table}"),
            checkpoint=folder / "checkpoint",
            control=folder / "control",
            on_error=OnError.DEAD_LETTER,
            dead_letters=self.letters,
        )
        self.control = ControlFolder(folder / "control")
        self.watch: LocalWatch | None = None

    def work(self) -> None:
        """Until all that is there is worked on; raises Crash."""
        if self.watch is None:
            self.watch = LocalWatch(self.asked, _sinks(self.asked), Notes().log)
            self.watch.open()
        steps(self.watch)
        if random.random() < 0.5:
            self.watch.commit()

    def crash(self) -> None:
        if self.watch is not None:
            abandon(self.watch)
        self.watch = None

    def rows(self) -> list[tuple[str, str]]:
        with sqlite3.connect(self.table) as connected:
            found = connected.execute('SELECT "query", "id" FROM results ORDER BY 1, 2').fetchall()
        connected.close()
        return found


def _sinks(asked: Job) -> list[Any]:
    return [
        JsonLinesSink(Path(asked.sinks[0].partition(":")[2])),
        SqliteSink(Path(asked.sinks[1].partition(":")[2])),
    ]


def _net(told_results: list[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """The results that hold in the end."""
    held: dict[tuple[str, str], bool] = {}
    for op, query, identity in told_results:
        held[query, identity] = op == "+"
    return {key for key, holds in held.items() if holds}


def reasons(letters: Path) -> list[tuple[str, str]]:
    return [(letter["raw"], letter["reason"]) for letter in lines(letters)]


@pytest.mark.parametrize(
    ("window", "lateness"),
    [
        (TimeWindow(10_000_000), 0),
        (CountWindow(12), 0),
        (TimeWindow(10_000_000), 3_000_000),
        (SESSIONS, 0),
        (SESSIONS, 3_000_000),
    ],
    ids=["time", "count", "late", "expression", "late expression"],
)
@seeds(1, 40)
def test_broken_off_anywhere_it_ends_as_if_it_had_not_been(
    tmp_path: Path, seed: int, window: Window, lateness: int
) -> None:
    rng = random.Random(seed)
    random.seed(seed)
    parts = stream(rng, 30)
    added = rng.randrange(30)
    calm, broken = (Place(tmp_path / name, window, lateness) for name in ("calm", "broken"))
    crashes = 0
    with pytest.MonkeyPatch.context() as small:
        small.setattr(journals, "SEGMENT_BYTES", 600)
        counted(small)
        for number, part in enumerate(parts):
            for place in (calm, broken):
                append(place.source, *part)
                if number == added:
                    place.control.send(Command("add", "lamps", "lamp"))
                    place.control.send(Command("add", "twice", TWICE, kind=PATTERN))
            calm.work()
            while True:
                with pytest.MonkeyPatch.context() as patch:
                    if rng.random() < 0.7:
                        crashing(patch, rng.choice(PLACES), rng.randint(1, 2))
                    try:
                        broken.work()
                        break
                    except Crash:
                        crashes += 1
                        broken.crash()
        for place in (calm, broken):
            assert place.watch is not None
            place.watch.close()
        kept = len(list((tmp_path / "broken" / "checkpoint" / "journal").iterdir()))
    assert crashes
    assert told(broken.out) == told(calm.out)
    assert lines(broken.out) == lines(calm.out)
    assert broken.rows() == calm.rows() == sorted(_net(told(calm.out)))
    assert reasons(broken.letters) == reasons(calm.letters)
    assert kept < 30
    snapshots = [line["id"] for line in lines(calm.out) if line["query"] == TWICE and "snapshot" in line]
    assert snapshots or added < 15
    assert {"3", ORDERED} < {query for _, query, _ in told(calm.out)}


@pytest.mark.parametrize("window", [TimeWindow(10_000_000), CountWindow(2)])
@pytest.mark.parametrize("killed", [False, True])
def test_equal_rows_queue_on_after_a_restart(
    tmp_path: Path, killed: bool, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deletion ends the row before the last, so one row is always alive."""
    monkeypatch.setattr(journals, "SEGMENT_BYTES", 200)
    outputs = []
    for restarts in (False, True):
        folder = tmp_path / str(restarts)
        folder.mkdir()
        source, out = folder / "in.jsonl", folder / "out.jsonl"
        append(source, order(0, 7))
        checkpoint = folder / "checkpoint"
        asked = request(source, window=window, checkpoint=checkpoint, sinks=(f"jsonl:{out}",))
        watch = opened(asked)
        for number in range(1, 20):
            append(source, order(8 * number, 7), order(8 * number + 1, 7, op="-"))
            if number > 15:
                append(source, customer(8 * number + 2, 7))
            steps(watch)
            watch.commit()
            if restarts and number > 10:
                assert len(list((checkpoint / "journal").iterdir())) < 8
                abandon(watch) if killed else watch.close()
                watch = opened(asked)
        watch.close()
        outputs.append(lines(out))
    assert outputs[0] == outputs[1]
    assert sum(line["op"] == "+" for line in outputs[0]) > 3


def test_the_queries_given_at_a_restart_are_those_answered(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(path, customer(1, 7), order(2, 7))

    def run(queries: dict[str, str], *commands: Command) -> tuple[list[str], list[tuple[str, str]]]:
        sink = Collected()
        watch = opened(request(path, queries=queries, checkpoint=checkpoint), sink)
        for command in commands:
            watch.control.submit(command)
        steps(watch)
        names = [one.name for one in watch.standing]
        watch.close()
        return names, sink.told()

    assert run({"a": "ada", "l": "lamp"}, Command("add", "both", QUERY))[0] == ["a", "l", "both"]
    names, results = run({"l": "lamp", "c": "chair"})
    assert names == ["l", "both", "c"]
    assert results == []
    assert run({"l": "ada"}) == (["both", "l"], [("+", "ada")])


def test_another_schema_window_or_source_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(path, order(1, 7))
    opened(request(path, checkpoint=checkpoint), Collected()).close()
    before = {file: file.read_bytes() for file in checkpoint.rglob("*.*") if file.is_file()}
    (tmp_path / "other.jsonl").touch()
    table = replace(SCHEMA.relations[0], table=True)
    changed = replace(SCHEMA, relations=(table, SCHEMA.relations[1]))
    for changes, error, reason in (
        ({"schema": changed, "queries": {"a": "ada"}}, SchemaError, "customer: static tables are read"),
        ({"window": CountWindow(3)}, UsageError, "of window 10 s, not 3 tuples"),
        ({"source": tmp_path / "other.jsonl"}, UsageError, "of source"),
    ):
        source = str(changes.pop("source", path))
        sink = Collected()
        with pytest.raises(error, match=reason):
            LocalWatch(request(source, checkpoint=checkpoint, **changes), [sink], Notes().log).run()
    assert before == {file: file.read_bytes() for file in checkpoint.rglob("*.*") if file.is_file()}


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    asked = request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint")
    opened(asked, Collected()).close()
    manifest = tmp_path / "checkpoint" / "manifest.json"
    manifest.write_bytes(orjson.dumps({"version": VERSION - 1, "id": "one", "start": {}}))
    with pytest.raises(
        StateError,
        match=rf"of version {VERSION - 1}, written by another version of skws; this one reads version",
    ):
        LocalWatch(asked, [Collected()], Notes().log).run()


def segments(tmp_path: Path) -> list[Path]:
    """Of a run that has worked on three micro-batches, each in a segment of its own, and ended well."""
    path = tmp_path / "in.jsonl"
    path.touch()
    for number in range(3):
        ran(request(path, checkpoint=tmp_path / "checkpoint"), order(number, 7))
    return sorted((tmp_path / "checkpoint" / "journal").iterdir())


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("manifest.json", "manifest.json: damaged: the run"),
        ("committed.json", "committed.json: damaged: the run"),
        ("given.json", "given.json: damaged: the run"),
        ("journal/first", "1.log: damaged: the run"),
        ("journal/last", r"journal: damaged \(of \d micro-batches it knows \d\): the run"),
        ("journal/gone", r"journal: damaged \(of \d micro-batches it knows 0\): the run"),
    ],
)
@pytest.mark.parametrize("left", [b"", b"nonsense"])
def test_a_damaged_checkpoint_is_told_of(tmp_path: Path, place: str, reason: str, left: bytes) -> None:
    journal = segments(tmp_path)
    assert len(journal) == 3
    folder, _, name = place.partition("/")
    match name:
        case "gone":
            for path in journal:
                path.unlink()
        case "first" | "last":
            journal[0 if name == "first" else -1].write_bytes(left)
        case _:
            (tmp_path / "checkpoint" / folder).write_bytes(left)
    with pytest.raises(StateError, match=reason):
        LocalWatch(
            request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint"), [Collected()], Notes().log
        ).run()


def test_a_segment_that_was_only_begun_is_no_damage(tmp_path: Path) -> None:
    journal = segments(tmp_path)
    begun = journal[0].parent / "000000000099.log"
    begun.write_bytes(journal[-1].read_bytes()[:20])
    watch = opened(request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint"), Collected())
    watch.close()
    assert not begun.exists()
    assert all(path.exists() for path in journal)


def test_one_process_at_a_time_runs_from_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    asked = request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint")
    first = opened(asked, Collected())
    with pytest.raises(UsageError, match="another process"):
        LocalWatch(asked, [Collected()], Notes().log).run()
    first.close()
    opened(asked, Collected()).close()
