"""A live search resumes from its checkpoint after a crash at any point: no result is lost or repeated."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skws.jobs.alerts import alert_of
from skws.jobs.checkpoint import VERSION
from skws.jobs.control import ControlFolder, JobCommand
from skws.jobs.local import LocalWatch
from skws.spec.enums import ToldUpdates
from skws.spec.query_spec import Query
from skws.state_database import NAME, StateDatabase, StateKind
from skws_schema.errors import SchemaError, StateError, UsageError
from skws_windows.window import CountWindow
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
)


def test_a_restart_uses_the_given_and_the_added_queries(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(path, customer(1, 7), order(2, 7))

    def run(queries: dict[str, str], *commands: JobCommand) -> tuple[list[str], list[tuple[str, str]]]:
        sink = Collected()
        watch = opened(request(path, queries=queries, checkpoint=checkpoint), sink)
        for command in commands:
            watch.control.submit(command)
        steps(watch)
        names = [query.name for query in watch.standing_queries]
        watch.close()
        return names, sink.told()

    assert run({"a": "ada", "l": "lamp"}, JobCommand.add(Query(QUERY, name="both")))[0] == [
        "a",
        "l",
        "both",
    ]
    names, results = run({"l": "lamp", "c": "chair"})
    assert names == ["l", "both", "c"]
    assert results == []
    assert run({"l": "ada"}) == (["both", "l"], [("+", "ada")])


@pytest.mark.parametrize("killed", [False, True])
def test_an_added_query_keeps_its_size_if_the_next_process_has_another(tmp_path: Path, killed: bool) -> None:
    """The repeated results are those of the first process."""
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    job = request(path, queries={}, checkpoint=tmp_path / "checkpoint", sinks=(f"jsonl:{out}",), max_size=1)
    path.touch()
    watch = opened(job)
    watch.control.submit(JobCommand.add(Query(QUERY, name="both")))
    steps(watch)
    append(path, customer(1, 7), order(2, 7), customer(3, 8, "ada lamp"))
    steps(watch)
    (abandon if killed else LocalWatch.close)(watch)
    watch = opened(replace(job, max_size=5))
    append(path, order(4, 7))
    steps(watch)
    assert [query.max_size for query in watch.standing_queries] == [1]
    watch.close()
    assert [line["network"] for line in lines(out)] == ["customer{ada, lamp}"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates": ToldUpdates.REPLACE}, "the checkpoint is of --updates tell, not replace"),
        ({"match_names": True}, "the checkpoint is of --match-names off, not on"),
    ],
)
def test_a_restart_that_would_change_written_results_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    job = request(path, checkpoint=tmp_path / "checkpoint", sinks=(f"jsonl:{out}",))
    append(path, customer(1, 7), order(2, 7))
    watch = opened(job)
    steps(watch)
    append(path, customer(3, 7, "ada smith"))
    steps(watch)
    abandon(watch)
    with pytest.raises(UsageError, match=message):
        opened(replace(job, **changes))
    watch = opened(job)
    steps(watch)
    watch.close()
    assert [line["op"] for line in lines(out)] == ["+", "~"]


def test_a_query_of_another_kind_may_replace_one_of_its_name(tmp_path: Path) -> None:
    """The log begins with the former query, and the state is that of its replacement."""
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(path, order(1, 7))
    ran(request(path, queries={"q": alert_of({"query": "lamp", "top": 2}).query}, checkpoint=checkpoint))
    windowed = alert_of({"query": QUERY, "window": "every match [customer] [order]"}).query
    job = request(path, queries={"q": windowed}, checkpoint=checkpoint)
    ran(job, customer(2, 7))
    assert ran(job, order(3, 7)).told() == [("+", QUERY)]


def test_a_command_is_carried_out_if_a_quiet_run_was_killed_before_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    control = ControlFolder(tmp_path / "control")
    job = request(tmp_path / "in", queries={}, control=control.folder, checkpoint=tmp_path / "checkpoint")
    control.send(JobCommand.add(Query(QUERY, name="older than the run")))
    abandon(opened(job, Collected()))
    control.send(JobCommand.add(Query(QUERY, name="both")))
    watch = opened(job, Collected())
    steps(watch)
    assert [query.name for query in watch.standing_queries] == ["both"]
    watch.close()


def test_a_refused_command_stays_refused_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    control = ControlFolder(tmp_path / "control")
    job = request(tmp_path / "in", control=control.folder, checkpoint=tmp_path / "checkpoint")
    watch = opened(job, Collected())
    control.send(JobCommand.add(Query("ada", name=QUERY)))
    steps(watch)
    assert "already a query" in control.answers()[0].error
    watch.close()
    watch = opened(replace(job, queries={}), Collected())
    steps(watch)
    assert watch.standing_queries == ()
    watch.close()


def test_skipped_input_is_not_read_again_and_not_logged(tmp_path: Path) -> None:
    """So the log of a quiet table in a busy database does not grow."""
    path = tmp_path / "in.jsonl"
    append(path, customer(1, 7))
    job = request(path, checkpoint=tmp_path / "checkpoint", window=CountWindow(10))
    watch = opened(job, Collected())
    steps(watch)
    watch.commit()
    log_bytes = watch.metrics().log_bytes
    for _ in range(3):
        with path.open("ab") as file:
            file.write(b"\n")
        steps(watch)
        watch.commit()
    assert watch.metrics().log_bytes == log_bytes
    watch.close()
    second_watch = opened(job, Collected())
    assert second_watch.metrics().behind == "0 bytes behind"
    second_watch.close()


def test_a_run_resumes_with_paths_that_are_not_utf_8(tmp_path: Path) -> None:
    path, out = (tmp_path / os.fsdecode(name) for name in (b"m\xfc.jsonl", b"\xfc.out"))
    try:
        path.touch()
    except OSError:  # as on macOS
        pytest.skip("the file system only has names in UTF-8")
    job = request(path, checkpoint=tmp_path / "checkpoint", sinks=(f"jsonl:{out}",))
    for number in range(2):
        watch = opened(job)
        append(path, customer(number, number), order(number, number))
        steps(watch)
        assert watch.metrics().to_json()
        watch.close()
    assert len(lines(out)) == 2


def test_a_file_system_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    path.touch()
    monkeypatch.setattr("skws.durable.fcntl.flock", flock)
    with pytest.raises(StateError, match="checkpoint: cannot be locked: No locks available"):
        opened(request(path, checkpoint=checkpoint), Collected())


def test_restarts_append_to_one_journal_segment(tmp_path: Path) -> None:
    job = request(tmp_path / "stream.jsonl", checkpoint=tmp_path / "kept")
    Path(job.source).touch()
    results_by_start = [ran(job, customer(n, n), order(n, n)).told() for n in range(1, 6)]
    assert results_by_start == [[("+", QUERY)]] * 5
    assert [path.name for path in (tmp_path / "kept" / "journal").iterdir()] == ["000000000001.log"]
    assert ran(job, order(6, 1)).told() == [("+", QUERY)]


def test_an_incompatible_restart_is_rejected_without_changing_the_checkpoint(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(path, order(1, 7))
    opened(request(path, checkpoint=checkpoint), Collected()).close()
    content_by_file = {file: file.read_bytes() for file in checkpoint.rglob("*.*") if file.is_file()}
    (tmp_path / "other.jsonl").touch()
    table = replace(SCHEMA.relations[0], table=True)
    changed_schema = replace(SCHEMA, relations=(table, SCHEMA.relations[1]))
    for changes, error, reason in (
        (
            {"schema": changed_schema, "queries": {"a": "ada"}},
            SchemaError,
            "customer: static tables are read",
        ),
        ({"window": CountWindow(3)}, UsageError, "of window 10 s, not 3 tuples"),
        ({"source": tmp_path / "other.jsonl"}, UsageError, "of source"),
    ):
        source = str(changes.pop("source", path))
        sink = Collected()
        with pytest.raises(error, match=reason):
            LocalWatch(request(source, checkpoint=checkpoint, **changes), [sink], Notes().log).run()
    assert content_by_file == {file: file.read_bytes() for file in checkpoint.rglob("*.*") if file.is_file()}


def test_a_restart_with_another_long_lateness_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.touch()
    job = request(path, checkpoint=tmp_path / "checkpoint", lateness=12 * 86_400_000_000)
    ran(job)
    ran(job)
    with pytest.raises(UsageError, match="of lateness 1036800 s, not 1036801 s"):
        ran(replace(job, lateness=12 * 86_400_000_000 + 1_000_000))


def test_a_checkpoint_of_another_version_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    job = request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint")
    opened(job, Collected()).close()
    with closing(StateDatabase(tmp_path / "checkpoint" / NAME)) as state:
        state.put_json(StateKind.RUN, "settings", {"version": VERSION - 1, "id": "one", "start": {}})
    with pytest.raises(
        StateError,
        match=rf"of version {VERSION - 1}, written by another version of skws; this one reads version",
    ):
        LocalWatch(job, [Collected()], Notes().log).run()


def test_a_checkpoint_is_locked_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    job = request(tmp_path / "in.jsonl", checkpoint=tmp_path / "checkpoint")
    first = opened(job, Collected())
    with pytest.raises(UsageError, match="another process"):
        LocalWatch(job, [Collected()], Notes().log).run()
    first.close()
    opened(job, Collected()).close()


def test_a_restart_uses_the_large_tables_of_the_first_start(tmp_path: Path) -> None:
    """They fill several pieces, with an empty name in the middle, and a key that comes twice."""
    (tmp_path / "in").mkdir()
    tables, path = tmp_path / "in" / "customer.csv", tmp_path / "in" / "order.jsonl"
    rows = [f"{n},{'' if n == 500 else 'ada' if n % 10_000 == 7 else 'eve'}\n" for n in range(150_000)]
    tables.write_text("cid,name\n" + "".join(rows) + "8,ada\n")
    schema = replace(SCHEMA, relations=(replace(SCHEMA.relations[0], table=True), SCHEMA.relations[1]))
    job = request(tmp_path / "in", schema=schema, checkpoint=tmp_path / "checkpoint")
    customers: list[list[int]] = []
    for records in ([order(1, 7), order(2, 500), order(3, 8)], [order(4, 140_007), order(5, 11)]):
        sink = Collected()
        watch = opened(job, sink)
        append(path, *records)
        steps(watch)
        watch.commit()
        abandon(watch)
        tables.unlink(missing_ok=True)
        results = [result.to_dict() for result in sink.results]
        customers.append([result["tuples"][0]["row"]["cid"] for result in results])
    assert customers == [[7, 8], [140_007]]
