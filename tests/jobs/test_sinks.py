"""Sinks contain every batch exactly once, even if another process repeats it."""

from __future__ import annotations

import csv
import io
import json
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as changed

from skws.jobs.fanout import SinkFanout
from skws.results.result import LiveResult, Result, ResultTuple, Score, ScorePart
from skws.sinks import webhook
from skws.sinks.base import Sink, SinkError, SinkRun
from skws.sinks.database_sink import SqliteSink
from skws.sinks.formats import StdoutSink
from skws.sinks.sink_addresses import parse_sink
from skws.spec.enums import OutputFormat
from skws.state_database import NAME, StateDatabase
from skws_schema.errors import UsageError
from tests.commands import Skws
from tests.jobs.watching import SCHEMA, Collected, Notes, lines
from tests.postgres import Database


def result(number: int, op: Any = "+", name: str = "ada") -> Result:
    return Result(
        op,
        "ada",
        "ada",
        f"id{number}",
        float(number),
        float(number + 10),
        "customer{ada}",
        (ResultTuple.given("customer", f"customer:{number}", ("ada",), {"cid": number, "name": name}),),
        (),
    )


def state_in(folder: Path) -> StateDatabase:
    folder.mkdir(exist_ok=True)
    return StateDatabase(folder / NAME)


def run(folder: Path | None, notes: Notes | None = None, waits: list[float] | None = None) -> SinkRun:
    def wait(seconds: float) -> bool:
        if waits is not None:
            waits.append(seconds)
        return True

    state = None if folder is None else state_in(folder)
    tell: Any = (notes or Notes()).write
    return SinkRun("run1", state, SCHEMA, match_names=False, wait=wait, tell=tell)


def opened(text: str, sink_run: SinkRun) -> Sink:
    sink = parse_sink(text)
    sink.open(sink_run)
    return sink


def write_batches(text: str, sink_run: SinkRun, *batches: tuple[int, list[Result]] | None) -> None:
    """A process that opens a sink, writes batches, flushes at each None, and ends."""
    sink = opened(text, sink_run)
    for batch in batches:
        if batch is None:
            sink.flush()
        else:
            sink.write(*batch)
    sink.close()


def resume_batches(
    text: str, sink_run: SinkRun, repeated: list[tuple[int, list[Result]]], *batches: Any
) -> None:
    """A process that repeats some batches and then writes others, as ``write_batches`` does."""
    sink_run = replace(sink_run, repeating=True, end_callbacks=[])
    sink = opened(text, sink_run)
    for batch in repeated:
        sink.write(*batch)
    sink_run.end_repetition()
    for batch in batches:
        if batch is None:
            sink.flush()
        else:
            sink.write(*batch)
    sink.close()


def test_a_deleted_jsonl_file_is_rewritten_without_repeated_batches(tmp_path: Path) -> None:
    path, sink_run, notes = tmp_path / "out.jsonl", run(tmp_path / "kept"), Notes()
    write_batches(f"jsonl:{path}", sink_run, (1, [result(1), result(2)]), None)
    path.unlink()
    second, third = (2, [result(3)]), (3, [result(4)])
    noting_run = replace(sink_run, tell=notes.lines.append)
    resume_batches(f"jsonl:{path}", noting_run, [second], third)  # then it is killed
    resume_batches(f"jsonl:{path}", noting_run, [second, third], None)
    assert [line["id"] for line in lines(path)] == ["id3", "id4"]
    (note,) = notes.lines
    assert "shorter" in note


@pytest.mark.parametrize(
    "half", [b"", b'{"op":"+","name":"ada","query":"ada","id":"id6"', bytes(40), b'{"op":"' + bytes(9)]
)
def test_runs_sharing_a_jsonl_file_keep_each_others_lines(tmp_path: Path, half: bytes) -> None:
    """Both are killed; the file of the first ends with half a line, or with the remains of a power loss."""
    path = tmp_path / "out.jsonl"
    ours, theirs = (replace(run(tmp_path / name), id=name) for name in ("ours", "theirs"))
    write_batches(f"jsonl:{path}", ours, (1, [result(1)]), None, (2, [result(3)]))
    write_batches(f"jsonl:{path}", theirs, (1, [result(2)]), None, (2, [result(4), result(5)]))
    with path.open("ab") as file:
        file.write(half)
    notes: list[str] = []
    resume_batches(
        f"jsonl:{path}", replace(ours, tell=notes.append), [(2, [result(3)]), (3, [result(6)])], None
    )
    assert notes == [f"{path} has 3 lines of other writers after those of this run: they are kept"]
    resume_batches(f"jsonl:{path}", theirs, [(2, [result(4), result(5)])], (3, [result(7)]), None)
    write_batches(f"jsonl:{path}", ours, (4, [result(8)]), None)
    assert [line["id"] for line in lines(path)] == [f"id{n}" for n in (1, 3, 2, 4, 5, 6, 7, 8)]


@pytest.mark.parametrize("size", [3, 500])
def test_a_replaced_jsonl_file_is_not_truncated(tmp_path: Path, size: int) -> None:
    path, sink_run, notes = tmp_path / "out.jsonl", run(tmp_path / "kept"), list[str]()
    write_batches(f"jsonl:{path}", sink_run, (1, [result(n) for n in range(20)]), None, (2, [result(20)]))
    (tmp_path / "next").write_text('{"id": "foreign"}\n' * size + '{"id": "no end"}')
    (tmp_path / "next").rename(path)
    resume_batches(
        f"jsonl:{path}", replace(sink_run, tell=notes.append), [(2, [result(20)])], (3, [result(21)]), None
    )
    ids = [line["id"] for line in lines(path)]
    assert ids == [*["foreign"] * size, "no end", "id20", "id21"]
    assert "is not the file that was last written" in notes[0] if size == 500 else "is shorter" in notes[0]


class Broken(Collected):
    """Fails in the second batch, after taking it."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        super().write(batch, results)
        if batch == 2:
            raise KeyboardInterrupt


def test_only_the_broken_sink_is_not_flushed(tmp_path: Path) -> None:
    broken, before, after = Broken(), Collected(), Collected()
    sinks = SinkFanout([before, broken, after], None, run(tmp_path / "kept"))
    sinks.write(1, [result(1)], ())
    with pytest.raises(KeyboardInterrupt):
        sinks.write(2, [result(2)], ())
    with pytest.raises(SinkError, match="collected: an earlier write was interrupted"):
        sinks.flush()
    sinks.close(failed=True)
    assert (before.flushes, broken.flushes, after.flushes) == (2, 0, 1)


def test_open_sinks_are_closed_if_another_one_cannot_be_opened(tmp_path: Path) -> None:
    first, second, sink_run = Collected(), Collected(), run(tmp_path / "kept")
    with pytest.raises(SinkError, match="there is no folder"):
        SinkFanout([first, parse_sink(f"jsonl:{tmp_path}/none/x"), second], None, sink_run)
    with pytest.raises(SinkError, match="there is no folder"):
        SinkFanout([second], tmp_path / "none" / "dead", sink_run)
    assert (first.opened, second.opened) == (None, None)


def test_an_idle_parquet_sink_keeps_partial_files_of_other_processes(
    tmp_path: Path,
) -> None:
    """The checkpoint may be an old copy of one whose run continues elsewhere."""
    folder = tmp_path / "out"
    write_batches(f"parquet:{folder}", run(None))
    partial_file = folder / ".results-run1-000000000004-000000000005.parquet.9.partial"
    partial_file.write_bytes(b"half")
    fanout = SinkFanout([parse_sink(f"parquet:{folder}")], None, run(None))
    fanout.close(failed=True)
    assert partial_file.exists()
    write_batches(f"parquet:{folder}", run(None), None)
    assert not partial_file.exists()


def test_parquet_files_contain_each_batch_once(tmp_path: Path) -> None:
    folder, sink_run = tmp_path / "out", run(None)
    address = f"parquet:{folder}?every=5 s"
    assert parse_sink(address).every == 5
    third = [result(3), result(1, "-")]
    write_batches(address, sink_run, (1, [result(1)]), (2, []), (3, third), None, None, (4, [result(4)]))
    (folder / ".results-run1-000000000004-000000000005.parquet.9.partial").write_bytes(b"half")
    copy = folder / "results-run1-000000000001-000000000003-copy.parquet"
    copy.write_bytes(b"")
    write_batches(f"parquet:{folder}", sink_run, (2, []), (3, [result(3)]), (4, [result(4)]), (5, []), None)
    copy.unlink()
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "results-run1-000000000001-000000000003.parquet",
        "results-run1-000000000004-000000000005.parquet",
    ]
    assert pq.read_table(folder).column("id").to_pylist() == ["id1", "id3", "id1", "id4"]


@pytest.mark.parametrize(
    ("option", "rows"),
    [
        ("", [("id2", 2.0, None)]),
        ("&retractions=mark", [("id1", 1.0, 11.0), ("id2", 2.0, None)]),
    ],
)
def test_sqlite_contains_the_current_results(tmp_path: Path, option: str, rows: list[Any]) -> None:
    text, sink_run = f"sqlite:{tmp_path / 'out.db'}?table=found{option}", run(None)
    write_batches(text, sink_run, (1, [result(1), result(2)]))
    renamed = result(2, name="ada\0\\u0000")
    write_batches(text, sink_run, (1, [result(7)]), (2, [result(1, "-")]), (3, [renamed]), None)
    connection = sqlite3.connect(tmp_path / "out.db")
    assert connection.execute('SELECT "id", "start", "retracted" FROM found ORDER BY 1').fetchall() == rows
    (tuples,) = connection.execute("SELECT tuples FROM found WHERE id = 'id2'").fetchone()
    assert json.loads(tuples)[0]["row"]["name"] == "ada\ufffd\\u0000"
    connection.close()


def scored_result(number: int, value: float) -> Result:
    parts = (ScorePart("keywords", value, ({"keyword": "ada"},)), ScorePart("size", 1.0, ()))
    return changed(result(number), score=Score(parts, 1.0, None, explained=number == 1))


def test_sqlite_has_score_columns_if_requested(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    first = [scored_result(1, 0.5), scored_result(2, 0.25), result(3)]
    write_batches(f"sqlite:{path}?scores=yes", run(None), (1, first), (2, [scored_result(2, 0.75)]))
    write_batches(f"sqlite:{path}?table=plain", run(None), (1, [scored_result(1, 0.5)]))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id, score FROM results ORDER BY id").fetchall() == [
            ("id1", 0.5),
            ("id2", 0.75),
            ("id3", None),
        ]
        explanations = connection.execute("SELECT explanation FROM results ORDER BY id").fetchall()
        assert json.loads(explanations[0][0])[0]["value"] == 0.5
        assert explanations[1:] == [(None,), (None,)]
        assert "score" not in {row[1] for row in connection.execute("PRAGMA table_info(plain)")}
    sink = opened(f"sqlite:{path}?table=plain&scores=yes", run(None))
    with pytest.raises(SinkError, match="score"):
        sink.write(2, [scored_result(2, 0.5)])


def test_postgres_has_score_columns_if_requested(database: Database) -> None:
    write_batches(database.uri(scores="yes"), run(None), (1, [scored_result(1, 0.5), result(2)]))
    query = "SELECT id, score, explanation->0->>'part' FROM results ORDER BY id"
    assert database.ask(query) == [("id1", 0.5, "keywords"), ("id2", None, None)]


def test_parquet_has_a_score_column_for_scored_results(tmp_path: Path) -> None:
    write_batches(f"parquet:{tmp_path / 'out'}", run(tmp_path), (1, [result(1), scored_result(2, 0.5)]), None)
    assert pq.read_table(tmp_path / "out").column("score").to_pylist() == [None, 0.5]


COUNTED = changed(result(2), count=1 << 70)
HELD_BACK = changed(result(3), held_back=4)


def test_parquet_has_columns_for_counts_and_held_back_results(tmp_path: Path) -> None:
    write_batches(f"parquet:{tmp_path / 'out'}", run(None), (1, [result(1), COUNTED, HELD_BACK]), None)
    table = pq.read_table(tmp_path / "out")
    assert table.column("count").to_pylist() == [None, 2.0**70, None]
    assert table.column("held_back").to_pylist() == [None, None, 4]
    assert "score" not in table.column_names


def test_sqlite_has_counts(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    few = changed(result(3), count=3)
    write_batches(f"sqlite:{path}", run(None), (1, [result(1), COUNTED, few]))
    write_batches(f"sqlite:{path}?table=scored&scores=yes", run(None), (1, [COUNTED, result(1)]))
    with closing(sqlite3.connect(path)) as connection:
        counts = connection.execute('SELECT "id", "count" FROM results ORDER BY 1').fetchall()
        assert counts == [("id1", None), ("id2", 2.0**70), ("id3", 3)]
        assert connection.execute("SELECT \"count\", score FROM scored WHERE id = 'id2'").fetchall() == [
            (2.0**70, None)
        ]


def test_a_table_without_counts_refuses_them(tmp_path: Path) -> None:
    """A table of an earlier version is still written, but not with fewer rows than a result stands for."""
    path = tmp_path / "out.db"
    write_batches(f"sqlite:{path}", run(None), (1, [result(1)]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('ALTER TABLE results DROP COLUMN "count"')
    write_batches(f"sqlite:{path}", run(None), (2, [result(2)]))
    with (
        closing(opened(f"sqlite:{path}", run(None))) as sink,
        pytest.raises(SinkError, match="count"),
    ):
        sink.write(3, [changed(result(3), count=3)])


def test_postgres_has_counts(database: Database) -> None:
    write_batches(database.uri(), run(None), (1, [result(1), COUNTED]))
    assert database.ask("SELECT id, count FROM results ORDER BY id") == [("id1", None), ("id2", 1 << 70)]


def test_an_unwritable_database_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="unable to open"):
        opened(f"sqlite:{tmp_path / 'no' / 'out.db'}", run(None))


def test_a_dropped_result_table_is_recreated_and_reported(tmp_path: Path) -> None:
    path, notes = tmp_path / "out.db", list[str]()
    sink_run = replace(run(None), tell=notes.append)
    write_batches(f"sqlite:{path}", sink_run, (1, [result(1)]))
    write_batches(f"sqlite:{path}", sink_run, (2, [result(2)]))
    assert notes == []
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE results")
    write_batches(f"sqlite:{path}", sink_run, (3, [result(3)]))
    path.unlink()
    write_batches(f"sqlite:{path}", replace(sink_run, repeating=True), (4, [result(4)]))
    assert notes == [f"sqlite:{path}: no table results: it is created again, without earlier results"] * 2


def test_a_sink_waits_for_a_locked_database(tmp_path: Path) -> None:
    path, notes = tmp_path / "out.db", list[str]()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def wait(_: float) -> bool:
            if len(notes) == 3:
                other.execute("ROLLBACK")
            return True

        sink = SqliteSink(path, timeout=0.01)
        sink.open(replace(run(None), tell=notes.append, wait=wait))
        other.execute("BEGIN EXCLUSIVE")
        sink.write(1, [result(1)])
        sink.close()
        assert [row for (row,) in other.execute("SELECT id FROM results")] == ["id1"]
    assert notes[0] == f"{path}: database is locked; trying again in 0.1 s"
    assert len(notes) == 3


def test_postgres_contains_the_current_results(database: Database) -> None:
    text = database.uri(table="public.found", retractions="mark")
    sink_run = run(None)
    null = changed(result(2, name="ada\0"), name="a\0", query="ada\0")
    write_batches(text, sink_run, (1, [result(1), null]))
    second = opened(text, sink_run)
    second.write(1, [result(7)])
    second.write(2, [result(1, "-"), result(3)])
    database.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    second.write(3, [result(3), result(4)])
    second.close()
    assert database.ask("SELECT name, query FROM found WHERE id = 'id2'") == [("a\ufffd", "ada\ufffd")]
    query = "SELECT id, start, retracted, tuples->0->'row'->>'name' FROM found ORDER BY id"
    assert database.ask(query) == [
        ("id1", 1.0, 11.0, "ada"),
        ("id2", 2.0, None, "ada\ufffd"),
        ("id3", 3.0, None, "ada"),
        ("id4", 4.0, None, "ada"),
    ]


def test_an_unavailable_database_is_reported_without_its_password() -> None:
    notes: list[str] = []
    sink_run = SinkRun("run1", None, SCHEMA, match_names=False, wait=lambda _: False, tell=notes.append)
    with pytest.raises(SinkError, match="the run ended while the server was unavailable") as error:
        opened("postgresql://ada:hush@127.0.0.1:1/none", sink_run)
    assert "127.0.0.1" in notes[0]
    assert "hush" not in notes[0] + str(error.value)


class Hook:
    """A web hook with configurable answers, which records the posts that it accepted."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.accepted: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.paths: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.keys.append(self.headers["Idempotency-Key"])
                hook.paths.append(self.path)
                status = hook.answers.pop(0) if hook.answers else 204
                if status < 300:
                    hook.accepted.append(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                if status == 429:
                    self.send_header("Retry-After", "3")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?x=1"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def ids(self) -> list[str]:
        return [result_["id"] for request in self.accepted for result_ in request["results"]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hook() -> Iterator[Hook]:
    web_hook = Hook()
    yield web_hook
    web_hook.close()


def test_a_web_hook_is_retried_until_it_accepts(hook: Hook) -> None:
    waits: list[float] = []
    hook.answers = [503, 429, 500, 200, 200]
    write_batches(f"{hook.url}#most=2", run(None, waits=waits), (1, [result(n) for n in range(3)]))
    assert hook.ids() == ["id0", "id1", "id2"]
    assert hook.keys == ["run1-1-0"] * 4 + ["run1-1-1"]
    assert waits == [0.5, 3.0, 2.0]


def test_the_address_of_a_web_hook_may_have_blanks_and_any_letters(hook: Hook) -> None:
    waits: list[float] = []
    write_batches(f"{hook.url}&to=%41 \u00e5se", run(None, waits=waits), (1, [result(1)]))
    assert hook.ids() == ["id1"]
    assert hook.paths == ["/hook?x=1&to=%41%20%C3%A5se"]
    assert waits == []


def test_results_rejected_by_a_web_hook_become_dead_letters(hook: Hook, tmp_path: Path) -> None:
    dead_letters = tmp_path / "letters.jsonl"
    waits: list[float] = []
    hook.answers = [400, 204]
    address = f"{hook.url}#letters={dead_letters}"
    write_batches(address, run(None, waits=waits), (1, [result(1)]), (2, [result(2)]), None)
    assert hook.ids() == ["id2"]
    assert waits == []
    (dead_letter,) = lines(dead_letters)
    assert dead_letter["result"]["id"] == "id1"
    assert "400" in dead_letter["reason"]


def test_repeated_batches_do_not_post_dead_letters_again(hook: Hook, tmp_path: Path) -> None:
    """A killed run had two dead letters: they stay in the file and are not posted again."""
    dead_letters, sink_run = tmp_path / "letters.jsonl", run(tmp_path / "kept")
    dead_letters.write_text('{"result": {"id": "of another run"}}\n')
    address = f"{hook.url}#most=1&letters={dead_letters}"
    hook.answers = [400] * 3
    write_batches(address, sink_run, (1, [result(1), result(2)]))
    with dead_letters.open("a") as file:
        file.write('{"resul')  # of the third result
    write_batches(
        address,
        replace(sink_run, repeating=True),
        (1, [result(1), result(2), result(3)]),
        (2, [result(4)]),
        None,
    )
    assert hook.keys == ["run1-1-0", "run1-1-1", "run1-1-2", "run1-2-0"]
    assert [line["result"]["id"] for line in lines(dead_letters)] == ["of another run", "id1", "id2", "id3"]


def test_another_size_of_posts_after_a_kill_loses_and_repeats_no_result(hook: Hook, tmp_path: Path) -> None:
    """The repeated batch is posted in parts of the earlier size, so keys keep their results."""
    sink_run, results = run(tmp_path / "kept"), [result(n) for n in range(5)]
    hook.answers = [204, 204, 400]
    with closing(opened(f"{hook.url}#most=1", sink_run)) as sink, pytest.raises(SinkError, match="400"):
        sink.write(1, results)
    resume_batches(f"{hook.url}#most=3", sink_run, [(1, results)], (2, results), None)
    assert hook.ids() == [f"id{n}" for n in (*range(5), *range(5))]
    assert hook.keys == [*(f"run1-1-{part}" for part in (0, 1, 2, 2, 3, 4)), "run1-2-0", "run1-2-1"]


def test_the_size_of_posts_is_known_after_a_kill_in_the_first_of_them(hook: Hook, tmp_path: Path) -> None:
    """A key that a server may know never gets other results, in the first batch or in one after a change."""
    sink_run, results = run(tmp_path / "kept"), [result(n) for n in range(3)]
    hook.answers = [400]
    with closing(opened(f"{hook.url}#most=2", sink_run)) as sink, pytest.raises(SinkError, match="400"):
        sink.write(1, results)
    hook.answers = [204, 204, 400]
    second_run = replace(sink_run, repeating=True, end_callbacks=[])
    with closing(opened(f"{hook.url}#most=1", second_run)) as sink:
        sink.write(1, results)
        second_run.end_repetition()
        with pytest.raises(SinkError, match="400"):
            sink.write(2, results)
    resume_batches(f"{hook.url}#most=3", sink_run, [(1, results), (2, results)], None)
    assert hook.keys == [
        *("run1-1-0", "run1-1-0", "run1-1-1"),
        *("run1-2-0", "run1-2-0", "run1-2-1", "run1-2-2"),
    ]


def test_a_web_hook_gets_counts_of_more_than_64_bits(hook: Hook) -> None:
    write_batches(hook.url, run(None), (1, [changed(result(1), count=1 << 70)]))
    assert [posted["count"] for post in hook.accepted for posted in post["results"]] == [1 << 70]


def test_dead_letters_of_repeated_batches_are_not_taken_for_those_of_others(
    hook: Hook, tmp_path: Path
) -> None:
    dead_letters, sink_run, notes = tmp_path / "letters.jsonl", run(tmp_path / "kept"), Notes()
    address = f"{hook.url}#most=1&letters={dead_letters}"
    hook.answers = [400, 400, 400, 400, 204]
    write_batches(address, sink_run, (1, [result(1)]), None)
    repeated = (2, [result(2), result(3)]), (3, [result(2)]), (4, [result(2)])
    tell: Any = notes.write
    write_batches(address, replace(sink_run, repeating=True, tell=tell), *repeated, None)
    assert [letter["result"]["id"] for letter in lines(dead_letters)] == ["id1", "id2", "id3", "id2"]
    assert not any("other writers" in line for line in notes.lines)


def test_commands_with_different_arguments_have_their_own_progress(tmp_path: Path) -> None:
    sink_run = run(tmp_path / "kept")
    for name in ("first", "second"):  # each ends without a flush, as if killed
        write_batches(f"command:touch {tmp_path}/{name}", sink_run, (1, [result(1)]))
        assert (tmp_path / name).exists()
    (tmp_path / "first").unlink()
    write_batches(f"command:touch {tmp_path}/first", sink_run, (1, [result(1)]))
    assert not (tmp_path / "first").exists()


def test_an_unreachable_web_hook_is_reported_without_its_password() -> None:
    waits: list[float] = []
    sink = opened("http://user:hush@127.0.0.1:1/#attempts=3", run(None, waits=waits))
    with pytest.raises(SinkError, match="not delivered") as error:
        sink.write(1, [result(1)])
    assert "hush" not in str(error.value)
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [("HTTP/1.1 200 OK\r\nX-Slow: ", False), ("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", True)],
)
def test_an_endless_web_hook_response_times_out(answer: str, accepted: bool) -> None:
    """If a response never ends, its status counts, provided that it arrives in time."""
    connection_closed = Event()

    def drip(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.sendall(answer.encode())
            for _ in range(100):
                time.sleep(0.05)
                client.sendall(b"x")
        connection_closed.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=drip, args=[server])
        thread.start()
        endpoint = webhook.Endpoint(f"http://127.0.0.1:{server.getsockname()[1]}/", seconds=0.3)
        outcome = endpoint.post(b"{}", "key")
        assert (outcome.accepted, outcome.final) == (accepted, False)
        assert accepted or outcome.reason == "no answer within 0.3 seconds"
        assert connection_closed.wait(2)  # the connection is closed
        endpoint.close()
        thread.join()


def test_standard_output_marks_the_keywords_of_a_replaced_query() -> None:
    """A query of a file may be replaced by another one of the same name."""
    stdout = io.BytesIO()
    sink = StdoutSink(OutputFormat.TREE, stdout)
    sink.open(run(None))
    found = result(1, name="ada eve")
    sink.write(1, [found, changed(found, query="eve"), changed(found, query="eve")])
    members = [line for line in stdout.getvalue().decode().splitlines() if "cid" in line]
    assert [line.partition("name: ")[2] for line in members] == ["*ada* eve", "ada *eve*", "ada *eve*"]


def test_csv_begins_again_with_the_columns_of_scores() -> None:
    """The first result, such as a deletion after a restart, may have no score."""
    stdout = io.BytesIO()
    sink = StdoutSink(OutputFormat.CSV, stdout)
    sink.open(run(None))
    scored = changed(result(2), score=Score((ScorePart("text", 0.5),)))
    sink.write(1, [result(1), scored, changed(result(3), op="-"), scored])
    header, *rows = csv.reader(io.StringIO(stdout.getvalue().decode()))
    assert (rows[0][3], rows[1][: len(header)], len(rows)) == ("id1", header, 5)
    assert [dict(zip(rows[1], row, strict=True))["score"] for row in rows[2:]] == ["0.5", "", "0.5"]


def test_csv_begins_again_with_the_columns_of_counts_and_held_back_results() -> None:
    stdout = io.BytesIO()
    sink = StdoutSink(OutputFormat.CSV, stdout)
    sink.open(run(None))
    sink.write(1, [result(1), HELD_BACK, COUNTED, result(4), HELD_BACK])
    rows = list(csv.reader(io.StringIO(stdout.getvalue().decode())))
    headers = [number for number, row in enumerate(rows) if row[0] == "op"]
    assert [rows[number][12:] for number in headers] == [[], ["held_back"], ["count", "held_back"]]
    assert headers == [0, 2, 4]
    assert [row[12:] for row in rows[5:]] == [[str(1 << 70), ""], ["", ""], ["", "4"]]


@pytest.mark.parametrize("output_format", [OutputFormat.TABLE, OutputFormat.TREE])
def test_tables_and_trees_show_how_many_results_were_held_back(output_format: OutputFormat) -> None:
    stdout = io.BytesIO()
    sink = StdoutSink(output_format, stdout)
    sink.open(run(None))
    sink.write(1, [result(1), HELD_BACK])
    assert [line for line in stdout.getvalue().decode().splitlines() if "(4 held back)" in line]


def test_trees_of_equal_rows_show_their_number() -> None:
    stdout = io.BytesIO()
    sink = StdoutSink(OutputFormat.TREE, stdout)
    sink.open(run(None))
    sink.write(1, [changed(COUNTED, _network="", count=3)])
    assert "(3 times)" in stdout.getvalue().decode().splitlines()[0]


def test_standard_output_shows_the_query_of_a_result() -> None:
    out = io.BytesIO()
    sink = StdoutSink(OutputFormat.TREE, out)
    sink.open(run(None))
    sink.write(1, [result(1)])
    sink.write(2, [changed(result(2), name="customer:ada", query="customer:ada"), result(3)])
    output = out.getvalue().decode()
    assert output.count("customer:ada:") == 1
    assert output.count("\nada:\n") == 1
    assert output.count("cid: ") == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("out.jsonl", "expected stdout:FORMAT"),
        ("josnl:x", "did you mean 'jsonl'"),
        ("jsonl:a\0b", "without U"),
        ("command:true#letters=a\0b", "without U"),
        ("stdout:parquet", "expected one of table"),
        ("sqlite:x?tabel=y", "did you mean 'table'"),
        ("sqlite:x?table=a;b", "expected letters"),
        ("sqlite:x?retractions=keep", "expected delete or mark"),
        ("sqlite:x?scores=maybe", "expected yes or no"),
        ("https://", "expected https://HOST"),
        ("https://h/#attempts=0", "above 0"),
        ("parquet:x?every=soon", "expected a duration"),
    ],
)
def test_invalid_sink_addresses_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_sink(text)


@pytest.mark.parametrize("sink", ["jsonl:there/is/none.jsonl", "parquet:there/is/none"])
def test_a_sink_does_not_create_missing_folders(tmp_path: Path, sink: str, skws: Skws) -> None:
    (tmp_path / "a.jsonl").write_text('{"relation": "thing", "time": 1, "row": {"name": "byron"}}\n')
    kind, _, path = sink.partition(":")
    target = tmp_path / path
    outcome = skws(
        "watch", f"replay:{tmp_path / 'a.jsonl'}", "byron", "--window", "1 hour", "--sink", f"{kind}:{target}"
    )
    assert outcome.code != 0
    assert f"there is no folder {target.parent}" in outcome.err
    assert not (tmp_path / "there").exists()
