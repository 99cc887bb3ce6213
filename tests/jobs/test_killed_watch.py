"""``kill -9`` of a running ``skws watch`` at random moments does not change its final output."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from skws.cli.main import run
from tests.forked import forked_skws
from tests.jobs.test_schema_changes import WITH_NOTES, note
from tests.jobs.watching import QUERY, YAML, append, customer, lines, numbered, order, result_events
from tests.kafka import MockBroker
from tests.places import ROOT
from tests.strategies import some
from tests.waiting import until

RESULTS = 600
PATTERN = "customer c ; order o where c.cid = o.cid"


def command(folder: Path, source: str | None) -> list[str]:
    return [
        *(*forked_skws(), "watch", QUERY, "--engine", "local"),
        *("--pattern", PATTERN)[: 2 if source is None else 0],
        *("--schema", str(folder / "schema.yaml"), "--source", source or str(folder / "in.jsonl")),
        *("--checkpoint", str(folder / "checkpoint"), "--lateness", "1 s"),
        *("--sink", f"jsonl:{folder / 'out.jsonl'}", "--sink", f"sqlite:{folder / 'out.db'}"),
    ]


def write(path: Path, records: Sequence[dict[str, Any]], seconds: float) -> None:
    """Writes a part of the stream, ten records at a time."""
    for first in range(0, len(records), 10):
        append(path, *records[first : first + 10])
        time.sleep(seconds * 10 / len(records))


def rows(folder: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(folder / "out.db")
    result_rows = set(connection.execute('SELECT "query", "id" FROM results'))
    connection.close()
    return result_rows


@some("kills", [2], [20])
def test_a_killed_watch_writes_each_result_once(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    (tmp_path / "schema.yaml").write_text(YAML)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.touch()
    records = list(numbered(RESULTS))
    share, productive_runs = len(records) // kills, 0
    for kill in range(kills):
        line_count = len(lines_so_far(out))
        with started(tmp_path) as process:
            if kill % 4 == 2:
                time.sleep(rng.uniform(0.2, 1.0))  # during its start, or later
            else:
                ready(process)
            write(source, records[kill * share : (kill + 1) * share], rng.uniform(0.1, 0.9))
            process.kill()
            assert process.wait() == -signal.SIGKILL
        productive_runs += len(lines_so_far(out)) > line_count
    # A pattern waits for records that may still arrive; this one ends the wait.
    append(source, *records[kills * share :], customer(2000, 0, "eve"))
    assert productive_runs > kills / 2
    with started(tmp_path) as process:
        ready(process)
        until(lambda: len(lines_so_far(out)) >= 2 * RESULTS)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 130, error
    lines_by_query = [[line for line in lines(out) if line["query"] == query] for query in (QUERY, PATTERN)]
    for query_lines in lines_by_query:
        ids = [line["id"] for line in query_lines]
        assert len(ids) == len(set(ids)) == RESULTS
        assert [line["start"] for line in query_lines] == sorted(line["start"] for line in query_lines)
    assert rows(tmp_path) == {(line["query"], line["id"]) for line in lines(out)}


@pytest.mark.slow
def test_a_killed_watch_over_topics_writes_each_result_once(tmp_path: Path) -> None:
    """Customers and orders are in separate topics with three partitions each."""
    kills = 12
    rng = random.Random(kills)
    (tmp_path / "schema.yaml").write_text(YAML)
    out = tmp_path / "out.jsonl"
    records = list(numbered(RESULTS))
    with closing(MockBroker()) as kafka:
        for topic in ("customer", "order"):
            kafka.create(topic, 3)
        share = len(records) // (kills + 1)
        for part in range(kills + 1):
            line_count = len(lines_so_far(out))
            with started(tmp_path, kafka.uri("customer", "order")) as process:
                ready(process)
                end = (part + 1) * share if part < kills else len(records)
                for record in records[part * share : end]:
                    kafka.send(
                        record["relation"],
                        [record["row"]],
                        partition=record["row"]["cid"] % 3,
                        millis=round(record["time"] * 1000),
                    )
                if part < kills:
                    until(lambda before=line_count: len(lines_so_far(out)) > before)  # type: ignore[misc]
                    time.sleep(rng.uniform(0, 0.3))
                    process.kill()
                    assert process.wait() == -signal.SIGKILL
                    continue
                until(lambda: len(lines_so_far(out)) >= RESULTS)
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                _, error = process.communicate(timeout=60)
                assert process.returncode == 130, error
    ids = [identity for _, _, identity in result_events(out)]
    assert len(ids) == len(set(ids)) == RESULTS
    assert rows(tmp_path) == {(QUERY, result_id) for result_id in ids}


def test_a_watch_killed_during_a_schema_change_writes_each_result_once(tmp_path: Path) -> None:
    """It is killed before and after the change, which is made by command."""
    (tmp_path / "schema.yaml").write_text(YAML)
    new_schema = tmp_path / "changed.yaml"
    new_schema.write_text(WITH_NOTES)
    source, out, control = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "checkpoint" / "control"
    apply = ["schema", "apply", str(new_schema), "--control", str(control)]
    append(source, customer(1, 1), order(1, 1))
    with started(tmp_path, str(source)) as process:
        ready(process)
        assert run([*apply, "--wait", "0"]) == 0
        process.kill()
        process.wait()
    with started(tmp_path, str(source)) as process:
        ready(process)
        assert run(apply) == 0
        append(source, note(2, 1))
        until(lambda: len(lines_so_far(out)) >= 2)
        process.kill()
        process.wait()
    append(source, note(3, 1), order(3, 1))
    with started(tmp_path, str(source)) as process:
        ready(process)
        until(lambda: len(lines_so_far(out)) >= 4)
        new_schema.write_text(WITH_NOTES.replace("10 seconds", "1 hour"))
        assert run(apply) == 2
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    ids = [identity for _, _, identity in result_events(out)]
    assert len(ids) == len(set(ids)) == 4
    relations = [sorted(t["relation"] for t in line["tuples"]) for line in lines(out)]
    assert sorted(relations) == [["customer", "note"]] * 2 + [["customer", "order"]] * 2


@contextmanager
def started(folder: Path, source: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command(folder, source), cwd=ROOT, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[bytes]) -> None:
    """Waits until a watch reports that it runs."""
    assert process.stderr is not None
    line = b""
    while not line.startswith(b"watching"):
        line = process.stderr.readline()
        assert line


def lines_so_far(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
