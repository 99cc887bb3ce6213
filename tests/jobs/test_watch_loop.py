"""The loop of a live search: input, output and control."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Final

import orjson
import pytest

from skws.jobs.control import Answer, ControlFolder, JobCommand, RunControl
from skws.jobs.intake import LEAST, MOST, RESULTS, BatchSizer
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log, LogFormat
from skws.results.result import LiveResult, ResultTuple
from skws.sinks.base import SinkError
from skws.sources.stdin import StdinSource
from skws.spec.enums import OnError
from skws.spec.query_spec import Query, TopChoice
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema import budgets
from skws_schema.budgets import MemoryBudget
from skws_schema.errors import BadRecordsError, MemoryBudgetError, SourceError, UsageError
from skws_schema.yaml.load import parse_schema
from tests.clocks import HandClock
from tests.jobs.test_schema_changes import WITH_NOTES
from tests.jobs.watching import (
    QUERY,
    SCHEMA,
    Collected,
    Notes,
    abandon,
    append,
    customer,
    lines,
    numbered,
    opened,
    order,
    request,
    steps,
)


def test_records_of_one_batch_are_sorted_by_time(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sink = Collected()
    (tmp_path / "in" / "customer.jsonl").write_text('{"cid": 7, "name": "ada", "time": 5}\n')
    (tmp_path / "in" / "order.jsonl").write_text('{"cid": 7, "item": "lamp", "time": 1}\n')
    watch = opened(request(tmp_path / "in"), sink)
    steps(watch)
    assert sink.told() == [("+", QUERY)]
    assert watch.metrics().late == 0


def test_commands_are_read_from_the_control_folder(tmp_path: Path) -> None:
    path, sink, folder = tmp_path / "stream.jsonl", Collected(), ControlFolder(tmp_path / "control")
    (tmp_path / "control" / ".queries.json.1.partial").write_bytes(b"of a killed job")
    folder.send(JobCommand.add(Query("before the job was there", name="old")))
    append(path, customer(1, 7), order(2, 7))
    watch = opened(request(path, queries={}, control=tmp_path / "control"), sink)
    assert folder.standing_queries() == []
    steps(watch)
    command_id = folder.send(JobCommand.add(Query(QUERY, name="lamps")))
    with (tmp_path / "control" / "commands.jsonl").open("a") as file:
        file.write('nonsense\n{"op": "add", "id": "x"}\n{"op": "remove", "name": "half')
    steps(watch)
    assert [(r.op, r.snapshot) for r in sink.results] == [("+", True)]
    assert [(query.name, query.text, query.max_size) for query in folder.standing_queries()] == [
        ("lamps", QUERY, 5)
    ]
    answers = {answer.id: answer.error for answer in folder.answers()}
    assert answers.pop(command_id) == ""
    assert "expected {" in answers.pop("x")
    assert answers == {}
    files = {path.name for path in (tmp_path / "control").iterdir()}
    assert files == {"commands.jsonl", "answers.jsonl", "queries.json", "lock"}


def test_commands_after_an_emptied_command_file_are_executed(tmp_path: Path) -> None:
    path, folder = tmp_path / "stream.jsonl", ControlFolder(tmp_path / "control")
    append(path, customer(1, 7), order(2, 7))
    watch = opened(request(path, queries={}, control=tmp_path / "control"), Collected())
    for name in (
        "lamps",
        "other lamps",
        "others",
    ):  # a longer line is read, although there was no poll in between
        command_id = folder.send(JobCommand.add(Query(QUERY, name=name)))
        steps(watch)
        assert [answer.error for answer in folder.answers() if answer.id == command_id] == [""]
        for file in ("commands.jsonl", "answers.jsonl"):
            (tmp_path / "control" / file).write_bytes(b"")
        if name == "other lamps":
            steps(watch)
    assert [query.name for query in watch.standing_queries] == ["lamps", "other lamps", "others"]


def test_a_control_folder_belongs_to_one_job_at_a_time(tmp_path: Path) -> None:
    control, kept = tmp_path / "control", tmp_path / "kept"
    append(tmp_path / "one.jsonl")
    append(tmp_path / "two.jsonl")
    first = opened(request(tmp_path / "one.jsonl", control=control), Collected())
    second = LocalWatch(request(tmp_path / "two.jsonl", control=control, checkpoint=kept), (), Notes().log)
    with pytest.raises(UsageError, match="control: another job takes its commands from this folder"):
        second.run()
    ControlFolder(control).send(JobCommand.add(Query("lamp", name="lamps")))  # a client needs no lock
    steps(first)
    assert [query.name for query in first.standing_queries] == [QUERY, "lamps"]
    first.close()
    opened(request(tmp_path / "two.jsonl", control=control, checkpoint=kept), Collected()).close()


def test_a_control_folder_does_not_grow_with_commands(tmp_path: Path) -> None:
    """Clients send commands at the same time, while the job drops those that it has carried out."""
    most, clients, commands = 1 << 20, 3, 40
    path, control = tmp_path / "stream.jsonl", tmp_path / "control"
    append(path)
    job = request(path, queries={}, control=control, checkpoint=tmp_path / "checkpoint")

    def send(client: int) -> list[str]:
        errors = list[str]()
        for number in range(commands):
            folder = ControlFolder(control)
            folder.send(JobCommand("remove", "x" * 25_000))
            answer = folder.ask(JobCommand.add(Query("ada", name=f"{client} {number}")), 60)
            errors.append("none" if answer is None else answer.error)
        return errors

    watch = opened(job, Collected())
    with ThreadPoolExecutor(clients) as executor:
        errors = [executor.submit(send, client) for client in range(clients)]
        restarts = 0
        while not all(error.done() for error in errors):
            watch.step()
            if len(watch.standing_queries) > 30 * (restarts + 1):
                abandon(watch)
                ControlFolder(control).answer_all([Answer("of another client", "x" * most)])
                watch, restarts = opened(job, Collected()), restarts + 1
    assert [error.result() for error in errors] == [[""] * commands] * clients
    assert len(watch.standing_queries) == clients * commands
    assert restarts > 2
    assert all((control / name).stat().st_size < 2 * most for name in ("commands.jsonl", "answers.jsonl"))
    watch.close()


def test_a_log_in_json_may_name_files_whose_names_are_not_utf_8() -> None:
    stream = StringIO()
    Log(LogFormat.JSON, stream=stream).warning("source", "skipped m\udcfc")
    assert orjson.loads(stream.getvalue())["message"] == r"skipped m\udcfc"


@pytest.mark.parametrize("text", [b"", b"\0\0\0", b"[]", b'{"queries": [{"name": 1}]}'])
def test_a_damaged_list_of_standing_queries_is_refused(tmp_path: Path, text: bytes) -> None:
    folder = ControlFolder(tmp_path / "control")
    (tmp_path / "control" / "queries.json").write_bytes(text)
    with pytest.raises(SourceError, match=r"queries\.json: damaged"):
        folder.standing_queries()


def test_bad_and_late_records_become_dead_letters(tmp_path: Path) -> None:
    path, dead_letters = tmp_path / "stream.jsonl", tmp_path / "letters.jsonl"
    job = request(path, on_error=OnError.DEAD_LETTER, dead_letters=dead_letters)
    append(path, customer(5, 7))
    notes = Notes()
    watch = opened(job, Collected(), notes=notes)
    steps(watch)
    append(path, {"relation": "nobody", "time": 6, "row": {}}, order(4, 7), order(6, 7))
    steps(watch)
    assert notes.lines[-1] == (
        "a tuple of order came too late: its time is 1970-01-01T00:00:04Z, the stream had reached"
        " 1970-01-01T00:00:05Z, and the lateness is 0 s; late records are left out and counted"
        " (--lateness '1 s' would accept this one)"
    )
    metrics = watch.metrics()
    assert (metrics.tuples, metrics.bad, metrics.late, metrics.results) == (2, 1, 1, 1)
    bad, late = lines(dead_letters)
    assert "nobody" in bad["raw"]
    assert bad["line"] == 2
    assert "late" in late["reason"]
    watch.close()


@pytest.mark.parametrize("checkpoint_name", [None, "checkpoint"])
def test_an_unwritable_result_becomes_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_name: str | None
) -> None:
    def to_json(self: ResultTuple) -> bytes:
        if self.row["cid"] == 8:
            raise OverflowError("date value out of range")
        return original_to_json(self)

    original_to_json = ResultTuple.to_json
    monkeypatch.setattr(ResultTuple, "to_json", to_json)
    path, dead_letters, notes, sink = (
        tmp_path / "stream.jsonl",
        tmp_path / "letters.jsonl",
        Notes(),
        Collected(),
    )
    checkpoint = None if checkpoint_name is None else tmp_path / checkpoint_name
    append(path, customer(1, 7), order(1, 7), customer(1, 8), order(1, 8), order(2, 8), order(2, 7))
    watch = opened(request(path, dead_letters=dead_letters, checkpoint=checkpoint), sink, notes=notes)
    steps(watch)
    assert [result.tuples[0].row["cid"] for result in sink.results] == [7, 7]
    assert notes.lines[-1] == (
        f"result of '{QUERY}': cannot be written: OverflowError: date value out of range;"
        " such results are left out and counted as bad records"
    )
    assert (watch.metrics().results, watch.metrics().bad) == (2, 2)
    watch.close()
    assert [
        (dead_letter["source"], orjson.loads(dead_letter["raw"])["query"])
        for dead_letter in lines(dead_letters)
    ] == [("result", QUERY)] * 2


def test_a_bad_record_ends_a_run_by_default(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("nonsense\n")
    with pytest.raises(BadRecordsError, match=r"stream\.jsonl:1"):
        LocalWatch(request(path), [Collected()], Notes().log).run()


def test_a_replay_can_be_paused_resumed_and_sped_up(tmp_path: Path) -> None:
    path, sink, clock = tmp_path / "replay.jsonl", Collected(), HandClock()
    append(path, *(order(n, n) for n in range(100)))
    job = request(f"replay:{path}", speed=2.0)
    watch = LocalWatch(job, [sink], Notes().log, control=RunControl(job, clock))
    watch.open()

    def tuples_after(seconds: float) -> int:
        clock.sleep(int(seconds * 1_000_000))
        steps(watch)
        return watch.metrics().tuples

    assert tuples_after(0) == 1
    assert tuples_after(5) == 11
    watch.control.pause()
    assert tuples_after(1000) == 11
    assert watch.metrics().state == "paused"
    watch.control.resume()
    assert tuples_after(0) == 11
    assert tuples_after(5) == 21
    watch.control.set_speed(10)
    assert tuples_after(2) == 41
    assert tuples_after(100) == 100
    assert watch.ended


def test_a_command_is_carried_out_if_its_caller_stops_waiting(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    append(path, customer(1, 7))
    watch = opened(request(path), Collected())
    future = watch.control.submit(JobCommand("remove", QUERY))
    future.cancel()  # as after a timeout around ``asyncio.wrap_future``
    steps(watch)
    assert future.result(0).error == ""
    assert watch.standing_queries == ()


def test_the_limit_ends_the_run(tmp_path: Path) -> None:
    path, sink = tmp_path / "stream.jsonl", Collected()
    append(path, *numbered(50))
    LocalWatch(request(path, limit=7), [sink], Notes().log).run()
    assert len(sink.results) == 7


def test_the_limit_applies_to_batches_that_a_restart_repeats(tmp_path: Path) -> None:
    path, checkpoint, first, second = (
        tmp_path / "in.jsonl",
        tmp_path / "kept",
        Collected(every=1e9),
        Collected(),
    )
    path.touch()
    watch = opened(request(path, checkpoint=checkpoint), first)
    for number in range(3):
        append(path, customer(number, number), order(number, number))
        steps(watch)
    abandon(watch)
    assert len(first.results) == 3
    LocalWatch(request(path, checkpoint=checkpoint, limit=2), [second], Notes().log).run()
    assert second.results == first.results[:2]


def test_a_slow_sink_reduces_the_batch_size(tmp_path: Path) -> None:
    """No more is read than the sink can write: batches grow only while it is fast."""
    clock = HandClock()

    class Slow(Collected):
        micros_per_result = 0
        sizes: Final[list[int]] = []

        def write(self, batch: int, results: Sequence[LiveResult]) -> None:
            clock.sleep(self.micros_per_result * len(results))
            self.sizes.append(len(results))

    path, sink, records = tmp_path / "stream.jsonl", Slow(), list(numbered(4000))
    append(path, *records[:2000])
    watch = LocalWatch(request(path), [sink], Notes().log, control=RunControl(request(path), clock))
    watch.open()
    steps(watch)
    fast_count = len(sink.sizes)
    assert max(sink.sizes) >= LEAST
    sink.micros_per_result = 10_000
    append(path, *records[2000:])
    steps(watch)
    assert watch.metrics().tuples == len(records)
    assert watch.sizer.limit == LEAST
    assert max(sink.sizes[fast_count + 4 :]) <= LEAST / 2


def test_a_batch_sizer_accepts_other_limits() -> None:
    sizer = BatchSizer(50, least=20, most=100, short=3.0, long=10.0)
    sizer.adapt(50, 2.0)
    assert sizer.limit == 100
    sizer.adapt(100, 2.5)
    assert sizer.limit == 100
    for limit in (50, 25, 20):
        sizer.adapt(sizer.limit, 60.0)
        assert sizer.limit == limit


def test_batches_grow_when_a_record_costs_little() -> None:
    sizer = BatchSizer()
    for _ in range(8):
        sizer.adapt(sizer.limit, 0.5 + sizer.limit / 100_000)
    assert sizer.limit == MOST
    for _ in range(3):
        sizer.adapt(sizer.limit, 9.0)
    assert sizer.limit == MOST // 8


def test_batches_shrink_when_records_have_many_results() -> None:
    sizer = BatchSizer()
    sizer.adapt(LEAST, 0.01, 10 * RESULTS)
    assert sizer.limit == LEAST // 10
    sizer.adapt(sizer.limit, 0.01, 1_000 * RESULTS)
    assert sizer.limit == 1
    for limit in (2, 4, 8):
        sizer.adapt(sizer.limit, 9.0, 5)
        assert sizer.limit == limit
    for _ in range(8):
        sizer.adapt(sizer.limit, 0.01)
    assert sizer.limit > LEAST


def test_the_snapshot_of_a_new_query_does_not_reduce_the_batch_size(tmp_path: Path) -> None:
    path, sink = tmp_path / "stream.jsonl", Collected()
    append(path, *numbered(50))
    watch = opened(request(path, queries={}, control=tmp_path / "control"), sink)
    steps(watch)
    watch.sizer.results = 10
    watch.control.submit(JobCommand.add(Query(QUERY, name="lamps")))
    steps(watch)
    assert len(sink.results) == 50
    assert watch.sizer.limit >= LEAST


@pytest.mark.check
def test_a_hot_key_reaches_sinks_in_bounded_batches(tmp_path: Path) -> None:
    class Sizes(Collected):
        most = 0

        def write(self, batch: int, results: Sequence[LiveResult]) -> None:
            self.most = max(self.most, len(results))
            self.results += results[:1]

    path, sink = tmp_path / "stream.jsonl", Sizes()
    append(
        path, *(row for n in range(300) for row in (order(n / 1000, 7), customer(n / 1000, 7, f"ada {n}")))
    )
    watch = opened(request(path), sink)
    watch.sizer = BatchSizer(results=5_000)
    steps(watch)
    assert watch.metrics().results + watch.metrics().updates > 6 * 5_000
    assert sink.most < 5 * 5_000


def test_a_query_with_too_many_networks_is_warned_of(tmp_path: Path) -> None:
    notes, path = Notes(), tmp_path / "stream.jsonl"
    append(path, customer(1, 7))
    words = " ".join(f"word{n}" for n in range(8))
    job = request(path, queries={"many": words}, schema=parse_schema(WITH_NOTES), max_size=9)
    watch = LocalWatch(job, [Collected()], notes.log)
    watch.open()
    assert any("candidate networks" in line and "--max-size" in line for line in notes.lines)
    watch.close()


@pytest.mark.parametrize("top", [None, TopChoice(3)])
def test_a_query_with_too_many_networks_for_a_mesh_is_refused(tmp_path: Path, top: TopChoice | None) -> None:
    path, sink, folder = tmp_path / "stream.jsonl", Collected(), ControlFolder(tmp_path / "control")
    job = request(
        path,
        queries={},
        control=tmp_path / "control",
        schema=parse_schema(WITH_NOTES),
        mesh=MeshChoice(MeshKind.FULL),
    )
    append(path, customer(1, 7))
    watch = opened(job, sink)
    steps(watch)
    words = " ".join(f"word{n}" for n in range(8))
    for text, size in ((words, 9), (QUERY, 5)):
        query = replace(Query.of_keywords(text, top=top), name="lamps", max_size=size)
        folder.send(JobCommand.add(query))
        steps(watch)
    refused, accepted = (answer.error for answer in folder.answers())
    assert ("candidate networks" in refused, accepted) == (True, "")
    append(path, order(2, 7))
    steps(watch)
    assert [result.name for result in sink.results] == ["lamps"]


def test_a_run_ends_at_its_memory_budget(tmp_path: Path) -> None:
    notes, path = Notes(), tmp_path / "stream.jsonl"
    append(path, customer(1, 7), order(2, 7))
    budgets.use(MemoryBudget(1 << 40))
    try:
        watch = LocalWatch(request(path), [Collected()], notes.log)
        watch.open()
        budgets.use(MemoryBudget(1 << 20))
        with pytest.raises(MemoryBudgetError, match="used up"):
            steps(watch)
        watch.close(failed=True)
    finally:
        budgets.use(None)


def test_a_failing_sink_ends_the_run(tmp_path: Path) -> None:
    class Broken(Collected):
        def write(self, batch: int, results: object) -> None:
            if results:
                raise SinkError("full")

    path, other = tmp_path / "stream.jsonl", Collected()
    append(path, *numbered(3))
    with pytest.raises(SinkError, match="full"):
        LocalWatch(request(path), [other, Broken()], Notes().log).run()
    assert other.opened is None


def test_contradictory_job_options_are_rejected(tmp_path: Path) -> None:
    for changes, reason in (
        ({"speed": 2.0}, "--speed needs"),
        ({"source": "replay:x?speed=3", "speed": 2.0}, "give only one"),
        ({"source": "-", "checkpoint": tmp_path / "c"}, "standard input cannot"),
        ({"master": "local"}, "needs --engine spark"),
    ):
        source = str(changes.pop("source", tmp_path))
        with pytest.raises(UsageError, match=reason):
            LocalWatch(request(source, **changes), [Collected()], Notes().log)


def test_table_rows_precede_the_stream_on_standard_input() -> None:
    """Queries start when all table rows have been read, with the results among them."""
    read_end, write_end = os.pipe()
    tables = replace(SCHEMA, relations=(replace(SCHEMA.relations[0], table=True), SCHEMA.relations[1]))
    job = request("-", schema=tables, on_error=OnError.SKIP, queries={QUERY: QUERY, "ada": "ada"})
    ready: list[bool] = []

    class Observing(Collected):
        def write(self, batch: int, results: Sequence[LiveResult]) -> None:
            super().write(batch, results)
            ready.append(watch.ready)

    sink, rows = Observing(), [customer(0, 7), customer(0, 8, "eve"), customer(0, 7, "ada two")]
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb", buffering=0) as writer:
        watch = LocalWatch(job, [sink], Notes().log, source=StdinSource(reader))
        watch.open()
        for row in rows:
            writer.write(orjson.dumps(row) + b"\n")
            steps(watch)
            assert watch.metrics().tuples == 0
            assert sink.results == []
        writer.write(
            b"".join(orjson.dumps(record) + b"\n" for record in (order(5, 7), customer(0, 8), order(6, 7)))
        )
        steps(watch)
        metrics = watch.metrics()
        watch.close()
    assert [(r.op, r.query, r.snapshot) for r in sink.results] == [
        ("+", "ada", True),
        ("+", QUERY, False),
        ("+", QUERY, False),
    ]
    assert ready[:2] == [False, True], "other threads may read a job that is ready"
    assert "ada two" in str(sink.results[0].to_dict())
    assert (metrics.tuples, metrics.bad) == (2, 1)


def test_the_rows_of_large_static_tables_are_reported_while_they_are_read(tmp_path: Path) -> None:
    class SlowClock(HandClock):
        """A clock on which four seconds pass from one look at it to the next."""

        def now(self) -> int:
            self.micros += 4_000_000
            return self.micros

    (tmp_path / "in").mkdir()
    rows = "".join(f"{n},ada\n" for n in range(5_000))
    (tmp_path / "in" / "customer.csv").write_text(f"cid,name\n{rows}")
    schema = parse_schema(
        "relations:\n  customer: {attributes: {cid: integer, name: text}, table: true}\njoins: []\n"
    )
    notes, job = Notes(), request(tmp_path / "in", schema=schema, queries={})
    watch = LocalWatch(job, [Collected()], notes.log, control=RunControl(job, SlowClock()))
    watch.open()
    steps(watch)
    watch.close()
    assert "reading static tables: 5,000 rows so far" in notes.lines
    assert "loading static tables: 5,000 rows" in notes.lines


def test_the_first_bad_record_is_reported_at_once(tmp_path: Path) -> None:
    path, notes = tmp_path / "stream.jsonl", Notes()
    append(path, customer(1, 7))
    watch = opened(request(path, on_error=OnError.SKIP), Collected(), notes=notes)
    steps(watch)
    for number in range(2):
        with path.open("a") as file:
            file.write("nonsense\n")
        steps(watch)
        lines = [line for line in notes.lines if line.startswith("bad record")]
        assert [line.partition(" (")[0] for line in lines] == [
            f"bad record: {path}:2: not JSON: invalid literal, expected 'null'"
        ], number
    watch.close()
