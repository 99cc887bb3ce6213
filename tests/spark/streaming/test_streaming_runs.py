"""A live search on Spark from outside: commands, bad records, ends and restarts."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from skws.jobs.control import ControlFolder, JobCommand
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.spark.streaming.spark_watch import SparkWatch
from skws.spec.enums import EngineName, OnError
from skws.spec.query_spec import PATTERN, SQL, Query
from skws.state_database import NAME
from skws_schema.errors import BadRecordsError, SchemaError, SourceError, StateError, UsageError
from skws_schema.model import Relation
from skws_schema.yaml.load import parse_schema
from skws_windows.window import TimeWindow, Unbounded
from tests.jobs.test_schema_changes import WITH_NOTES, WITHOUT_ORDERS, note
from tests.jobs.watching import (
    LAMP,
    QUERY,
    SCHEMA,
    TABLES,
    Collected,
    Notes,
    append,
    customer,
    numbered,
    order,
    request,
)
from tests.kafka import MockBroker
from tests.postgres import Database
from tests.spark.streaming.spark_runs import running
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.check
def test_commands_in_a_control_folder_are_carried_out(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), order(2, 1))
    folder = ControlFolder(tmp_path / "control")
    with running(request(source, control=folder.folder)) as run:
        run.results(1)
        add_id = folder.send(JobCommand.add(Query("lamp", name="more")))
        wrong_id = folder.send(JobCommand.add(Query("chair", name="more")))
        # The source returns nothing in the meantime.
        run.until(lambda: len(folder.answers()) >= 2)
        run.results(2)
        assert run.sink.results[1].snapshot
        append(source, order(3, 1, "green lamp"))
        run.results(4)
        remove_id = folder.send(JobCommand("remove", QUERY))
        run.until(lambda: len(folder.answers()) >= 3)
        append(source, order(4, 1, "red lamp"))
        run.results(5)
        assert [one.name for one in folder.standing_queries()] == ["more"]
        run.until(lambda: run.watch.metrics().queries[0].results == 3)  # results are counted once written
        metrics = run.watch.metrics()
        assert {stage.name for stage in metrics.stages} == {"read", "engine", "sinks", "spark"}
        assert all(stage.seconds > 0 for stage in metrics.stages)
    names = [r.query for r in run.sink.results]
    assert [*names[:2], sorted(names[2:4]), *names[4:]] == [QUERY, "lamp", [QUERY, "lamp"], "lamp"]
    answers = {answer.id: answer.error for answer in folder.answers()}
    assert answers == {
        add_id: "",
        wrong_id: "there is already a query 'more'",
        remove_id: "",
    }


@pytest.mark.check
def test_a_job_that_does_not_fit_the_checkpoint_is_rejected_unchanged(tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(source, customer(1, 1), order(2, 1))
    job = request(source, checkpoint=checkpoint)
    with running(job, 1) as run:
        run.results(1)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    table = Relation("other", SCHEMA.relations[0].attributes, table=True)
    wider_schema = replace(SCHEMA, relations=(*SCHEMA.relations, table))
    for changed_job, kind, reason in (
        (replace(job, schema=wider_schema), SchemaError, "other: static tables are read at the start"),
        (replace(job, window=TimeWindow(5)), UsageError, "the checkpoint is of window"),
        (replace(job, source=str(tmp_path)), UsageError, "the checkpoint is of source"),
        (replace(job, match_names=True), UsageError, "the checkpoint is of --match-names off, not on"),
    ):
        with pytest.raises(kind, match=reason), running(changed_job) as run:
            run.end()
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


@pytest.mark.check
def test_bad_records_follow_the_policy(tmp_path: Path) -> None:
    source, dead_letter_path = tmp_path / "in.jsonl", tmp_path / "letters.jsonl"
    append(source, customer(20, 1))
    with source.open("ab") as file:
        file.write(b"{nonsense\n")
    append(source, order(21, 1))
    with pytest.raises(BadRecordsError, match=r"in.jsonl:2: .*--on-error"), running(request(source)) as run:
        run.end()
    job = request(source, on_error=OnError.DEAD_LETTER, dead_letters=dead_letter_path)
    with running(job) as run:
        run.results(1)
        append(source, order(2, 1))
        run.until(lambda: run.watch.metrics().late == 1)
        append(source, order(3, 1))
        run.until(lambda: run.watch.metrics().late == 2)
    metrics = run.watch.metrics()
    assert (metrics.tuples, metrics.bad, metrics.late) == (2, 1, 2)
    assert (
        sum("a tuple of order came too late: its time is 1970-01-01T00:00:02Z" in n for n in run.notes.lines)
        == 1
    )
    assert [orjson.loads(line)["reason"][:4] for line in dead_letter_path.read_bytes().splitlines()] == [
        "not ",
        "late",
        "late",
    ]


@pytest.mark.check
def test_the_limit_ends_the_run(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), *(order(2, 1) for _ in range(5)))
    with running(request(source, limit=3)) as run:
        run.end()
    assert len(run.sink.results) == 3


def test_a_source_that_disappears_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"in\.jsonl"), running(request(tmp_path / "in.jsonl")) as run:
        run.end()


@pytest.mark.parametrize(
    ("source", "reason"),
    [("-", "use --engine local"), ("kafka://joe:secret@host/topic", "no user or password")],
)
def test_unsupported_sources_are_rejected(source: str, reason: str) -> None:
    with pytest.raises((SourceError, UsageError), match=reason):
        SparkWatch(request(source, engine=EngineName.SPARK), Log())


def test_an_error_in_a_shard_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """Its traceback is long, and Spark's stack short."""
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1))
    text = "SELECT DISTINCT cid FROM customer WHERE cid > 0 AND cid < 9"
    job = request(source, queries={"ids": Query(text, kind=SQL)})
    reason = "deletes a tuple of customer; query 'ids' runs in constant"
    with pytest.raises(BadRecordsError, match=reason), running(job) as run:  # noqa: PT012
        run.until(lambda: run.watch.metrics().tuples > 0)
        append(source, customer(2, 1, op="-"), customer(3, 2))
        run.results(2)


@pytest.mark.slow
def test_the_schema_changes_by_command_and_at_a_new_start(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), order(2, 1))
    folder = ControlFolder(tmp_path / "control")
    queries = {QUERY: QUERY, PATTERN: Query("customer a ; * b where a.cid = b.cid", kind=PATTERN)}
    job = request(source, queries=queries, control=folder.folder, checkpoint=tmp_path / "checkpoint")
    with running(job) as run:
        run.results(2)
        window = WITH_NOTES.replace("10 seconds", "20 seconds")
        rejected_id = folder.send(JobCommand("schema", "new.yaml", schema=window))
        accepted_id = folder.send(JobCommand("schema", "new.yaml", schema=WITH_NOTES))
        run.until(lambda: len(folder.answers()) >= 2)
        append(source, note(3, 1))  # the pattern joins it to records before the change
        run.results(4)
        assert [one.name for one in run.watch.metrics().relations] == ["customer", "order", "note"]
        results = list(run.sink.results)
    answers = {answer.id: answer.error for answer in folder.answers()}
    assert answers[accepted_id] == ""
    assert "the window of a running search cannot change" in answers[rejected_id]
    # The changed schema remains; starting with another one is a change.
    with running(job) as run:
        append(source, note(4, 1))
        run.results(2)
        results += run.sink.results
    with running(replace(job, schema=parse_schema(WITHOUT_ORDERS))) as run:
        append(source, order(5, 1), note(5, 1), customer(5, 2, "ada lamp"))
        run.results(4)
        results += run.sink.results
    patterns = [[t.relation for t in r.tuples] for r in results if r.query != QUERY]
    assert patterns == [["customer", kind] for kind in ("order", "note", "note")]
    changes = [(r.op, sorted(t.relation for t in r.tuples)) for r in results if r.query == QUERY]
    assert changes[:3] == [("+", ["customer", kind]) for kind in ("order", "note", "note")]
    assert sorted(changes[3:6]) == [("-", ["customer", kind]) for kind in ("note", "note", "order")]
    assert changes[6:] == [("+", ["customer"])]


def send(kafka: MockBroker, first: int, last: int) -> None:
    for record in list(numbered(last))[2 * first :]:
        row, millis = record["row"], round(record["time"] * 1000)
        kafka.send(
            record["relation"], [row], partition=row["cid"] % 2, millis=millis, key={"cid": row["cid"]}
        )


@pytest.mark.slow
def test_topics_on_spark_have_the_results_of_one_process(tmp_path: Path) -> None:
    with closing(MockBroker()) as kafka:
        kafka.create("customer", 2)
        kafka.create("order", 2)
        source = kafka.uri("customer", "order", format="rows")
        job = request(source, checkpoint=tmp_path / "checkpoint")
        send(kafka, 0, 30)
        with running(job) as run:
            run.results(30)
            send(kafka, 30, 40)
            run.results(40)
            results = list(run.sink.results)
        # Messages that arrive while nobody reads.
        send(kafka, 40, 50)
        kafka.send("customer", [None], partition=1, key={"cid": 3}, millis=1_000_600)
        with running(job) as run:
            run.until(lambda: len(run.sink.results) >= 11)
            time.sleep(0.5)
            results += run.sink.results
        sink, local_notes = Collected(), Notes()
        local_watch = LocalWatch(request(source), [sink], local_notes.log)
        local_watch.open()
        until(lambda: len(sink.results) >= 51, local_watch.step, sink.told)
        local_watch.close()
    assert [op for op, _ in sink.told()] == ["+"] * 50 + ["-"]
    assert sorted((r.op, r.id) for r in results) == sorted((r.op, r.id) for r in sink.results)


@pytest.mark.check
def test_changes_of_a_database_are_followed(database: Database, tmp_path: Path) -> None:
    database.run(*TABLES, LAMP)
    job = request(database.uri(), checkpoint=tmp_path / "checkpoint", window=Unbounded())
    with running(job) as run:
        run.results(1)
        database.run("INSERT INTO \"order\" VALUES (7, 'green lamp')")
        run.results(2)
    # Spark confirms a batch to the source when it begins the next one.
    time.sleep(0.5)
    database.run("INSERT INTO customer VALUES (2, 'ada')", "DELETE FROM \"order\" WHERE item = 'lamp'")
    with running(job) as run:
        run.results(1)
        database.run("INSERT INTO \"order\" VALUES (2, 'lamp')")
        run.results(2)
    items = [(r.op, [t.row["item"] for t in r.tuples if t.relation == "order"]) for r in run.sink.results]
    assert items == [("-", ["lamp"]), ("+", ["lamp"])]


@pytest.mark.slow
def test_a_database_unavailable_at_the_start_is_awaited(database: Database, tmp_path: Path) -> None:
    """A new run waits in the driver, a resumed one in the process of the source."""
    database.run(*TABLES, LAMP)
    job = request(database.uri(), checkpoint=tmp_path / "checkpoint", window=Unbounded())
    for change in ("ANALYZE customer", "INSERT INTO \"order\" VALUES (7, 'lamp two')"):
        database.server.stop("fast")
        with running(job) as run:
            run.until(lambda: any("Connection refused" in line for line in run.notes.lines))
            database.server.start()
            database.run(change)
            run.results(1)
        # A run stopped within a micro-batch first reads it again, so it is started once more.
        assert any("ing again in" in line for line in run.notes.lines)


def test_a_run_without_a_checkpoint_leaves_no_slot(database: Database) -> None:
    database.run(*TABLES, LAMP)
    for _ in range(2):
        with running(request(database.uri(), limit=1)) as run:
            run.results(1)
        assert database.ask("SELECT slot_name FROM pg_replication_slots") == []
        assert database.ask("SELECT pubname FROM pg_publication") == []


@pytest.mark.check
def test_a_damaged_command_planned_by_spark_is_named(tmp_path: Path) -> None:
    """A process is killed before it commits, and the next one would overwrite its commands."""
    source, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(source, customer(1, 1), order(2, 1))
    folder = ControlFolder(tmp_path / "control")
    job = request(source, checkpoint=checkpoint, control=folder.folder)
    with running(job) as run:
        run.results(1)
        state = (checkpoint / NAME).read_bytes()
        folder.send(JobCommand.add(Query("lamp", name="more")))
        run.until(lambda: bool(folder.answers()))
    (checkpoint / NAME).write_bytes(state)
    commands = checkpoint / "commands" / "commands.jsonl"
    data = commands.read_bytes()
    commands.write_bytes(data[:-9] + b"?" + data[-8:])
    job_with_more = replace(job, queries={**job.queries, "chair": "chair", "green": "green"})
    for _ in range(2):
        with (
            pytest.raises(StateError, match=r"commands\.jsonl: damaged after byte"),
            running(job_with_more) as run,
        ):
            run.results(1)
    commands.write_bytes(data)
    with running(job_with_more) as run:
        append(source, order(3, 1, "green lamp"))
        run.until(lambda: {result.query for result in run.sink.results} >= {"green", "lamp", QUERY})


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    source, checkpoint, copy_folder = tmp_path / "in.jsonl", tmp_path / "checkpoint", tmp_path / "kept"
    append(source, customer(1, 1), order(2, 1))
    job = request(source, checkpoint=checkpoint)
    with running(job) as run:
        run.results(1)
    shutil.copytree(checkpoint, copy_folder)
    append(source, order(3, 1))
    for name in (NAME, "commands", "spark"):
        shutil.rmtree(checkpoint)
        shutil.copytree(copy_folder, checkpoint)
        if (checkpoint / name).is_dir():
            shutil.rmtree(checkpoint / name)
        else:
            (checkpoint / name).unlink()
        with pytest.raises(StateError, match=rf"checkpoint/{name}.*: missing"), running(job) as run:
            run.results(1)
        assert run.sink.results == []
    shutil.rmtree(checkpoint)
    shutil.copytree(copy_folder, checkpoint)
    with running(job) as run:
        run.results(1)
    assert len(run.sink.results) == 1


@pytest.mark.check
def test_an_outbox_without_a_batch_done_by_spark_is_rejected(tmp_path: Path) -> None:
    """Even before a move, since the shards would repeat the batch for sinks that may have it."""
    source, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(source, customer(1, 1), order(2, 1))
    job = request(source, checkpoint=checkpoint)
    with running(job) as run:
        run.results(1)
        state = (checkpoint / NAME).read_bytes()
        (path,) = (checkpoint / "outbox").glob("*.out")
        size = path.stat().st_size
        append(source, order(3, 1))
        run.results(2)
        append(source, order(4, 1))  # so that Spark has recorded the one before
        run.results(3)
    (checkpoint / NAME).write_bytes(state)
    data = path.read_bytes()
    path.write_bytes(data[:size] + b"?" + data[size + 1 :])
    with (
        pytest.raises(StateError, match=r"outbox: damaged \(it has [1-8] of [2-9] micro-batches\)"),
        running(job, 2) as run,
    ):
        run.results(1)
