"""A live search on Spark from outside: commands, bad records, ends and restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from skws.jobs.control import Command, ControlFolder
from skws.jobs.log import Log
from skws.queries.patterns.result import PatternResult
from skws.results.encoded import parsed
from skws.spark.streaming.watch import SparkWatch
from skws.spec.enums import EngineName, OnError
from skws.spec.query import PATTERN, SQL, Query
from skws_schema.errors import BadRecordsError, SchemaError, SourceError, UsageError
from skws_schema.model import Relation
from skws_windows.window import TimeWindow
from tests.jobs.watching import QUERY, SCHEMA, append, customer, order, request
from tests.spark.streaming.spark_runs import running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_commands_of_a_control_folder(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), order(2, 1))
    folder = ControlFolder(tmp_path / "control")
    with running(request(source, control=folder.folder)) as run:
        run.results(1)
        added = folder.send(Command("add", "more", "lamp"))
        wrong = folder.send(Command("add", "more", "chair"))
        # Nothing comes from the source meanwhile.
        run.until(lambda: len(folder.answers()) >= 2)
        run.results(2)
        assert run.sink.results[1].snapshot
        append(source, order(3, 1, "green lamp"))
        run.results(4)
        removed = folder.send(Command("remove", QUERY))
        run.until(lambda: len(folder.answers()) >= 3)
        append(source, order(4, 1, "red lamp"))
        run.results(5)
        assert [one.name for one in folder.standing()] == ["more"]
        metrics = run.watch.metrics()
        assert metrics.queries[0].results == 3
        assert {stage.name for stage in metrics.stages} == {"read", "engine", "sinks", "spark"}
        assert all(stage.seconds > 0 for stage in metrics.stages)
    told = [r.query for r in run.sink.results]
    assert [*told[:2], sorted(told[2:4]), *told[4:]] == [QUERY, "lamp", [QUERY, "lamp"], "lamp"]
    answers = {answer.id: answer.error for answer in folder.answers()}
    assert answers == {
        added: "",
        wrong: "there is already a query 'more'",
        removed: "",
    }


@pytest.mark.slow
def test_patterns_stand_beside_keywords(tmp_path: Path) -> None:
    """Divided by their root over two shards, added with a snapshot, and there again in another process."""
    source = tmp_path / "in.jsonl"
    given, added = "customer c ; order o where c.cid = o.cid", "order a ; order b where a.cid = b.cid"
    append(source, customer(1, 1), order(2, 1), order(3, 1), customer(3, 2))
    asked = request(
        source,
        queries={"given": Query(given, kind=PATTERN)},
        checkpoint=tmp_path / "checkpoint",
        window=TimeWindow(10_000_000),
    )
    with running(asked, 2) as run:
        run.results(2)
        run.watch.control.submit(Command("add", "added", added, kind=PATTERN))
        run.results(3)
        run.watch.control.submit(Command("add", "keywords", QUERY))
        run.results(5)
        first = run.sink.results
    append(source, order(4, 2), order(5, 1))
    with running(asked) as run:
        run.results(3 + 2 + 1)
        second = run.sink.results
    snapshots = Counter((r.query, r.snapshot) for r in first)
    assert snapshots == {(given, False): 2, (added, True): 1, (QUERY, True): 2}
    assert Counter(r.query for r in second) == {given: 2, added: 2, QUERY: 2}
    positions = [[m.position for m in r.tuples] for r in map(parsed, second) if isinstance(r, PatternResult)]
    assert sorted(positions) == [[0, 5], [1, 5], [2, 5], [3, 4]]


def test_it_goes_on_with_other_queries(tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(source, customer(1, 1), order(2, 1))
    asked = request(source, checkpoint=checkpoint, window=TimeWindow(10_000_000))
    with running(asked, 2) as run:
        run.results(1)
        run.watch.control.submit(Command("add", "posted", "ada"))
        run.results(2)
    append(source, order(3, 1))
    with running(replace(asked, queries={"new": "lamp", QUERY: QUERY})) as run:
        # The snapshot of the new query, then what came in between.
        run.results(3)
        append(source, customer(4, 2))
        run.results(4)
    told = [(r.query, r.snapshot) for r in run.sink.results]
    assert [told[0], sorted(told[1:3]), *told[3:]] == [
        ("lamp", True),
        [(QUERY, False), ("lamp", False)],
        ("ada", False),
    ]
    with running(replace(asked, queries={"new": "lamp"})) as run:
        append(source, order(5, 1))
        run.results(1)
    assert [r.query for r in run.sink.results] == ["lamp"]


def test_what_does_not_fit_the_checkpoint_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in.jsonl", tmp_path / "checkpoint"
    append(source, customer(1, 1), order(2, 1))
    asked = request(source, checkpoint=checkpoint)
    with running(asked, 1) as run:
        run.results(1)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    other = Relation("other", SCHEMA.relations[0].attributes, table=True)
    wider = replace(SCHEMA, relations=(*SCHEMA.relations, other))
    for changed, kind, why in (
        (replace(asked, schema=wider), SchemaError, "other: static tables are read at the start"),
        (replace(asked, window=TimeWindow(5)), UsageError, "the checkpoint is of window"),
        (replace(asked, source=str(tmp_path)), UsageError, "the checkpoint is of source"),
    ):
        with pytest.raises(kind, match=why), running(changed) as run:
            run.end()
    assert before == {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


def test_bad_records_by_the_policy(tmp_path: Path) -> None:
    source, letters = tmp_path / "in.jsonl", tmp_path / "letters.jsonl"
    append(source, customer(20, 1))
    with source.open("ab") as file:
        file.write(b"{nonsense\n")
    append(source, order(21, 1))
    with pytest.raises(BadRecordsError, match=r"in.jsonl:2: .*--on-error"), running(request(source)) as run:
        run.end()
    kept = request(source, on_error=OnError.DEAD_LETTER, dead_letters=letters)
    with running(kept) as run:
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
    assert [orjson.loads(line)["reason"][:4] for line in letters.read_bytes().splitlines()] == [
        "not ",
        "late",
        "late",
    ]


def test_the_limit_ends_it(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), *(order(2, 1) for _ in range(5)))
    with running(request(source, limit=3)) as run:
        run.end()
    assert len(run.sink.results) == 3


def test_a_source_that_goes_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"in\.jsonl"), running(request(tmp_path / "in.jsonl")) as run:
        run.end()


@pytest.mark.parametrize(
    ("source", "why"),
    [("-", "use --engine local"), ("kafka://joe:secret@host/topic", "no user or password")],
)
def test_sources_that_are_not_for_it(source: str, why: str) -> None:
    with pytest.raises((SourceError, UsageError), match=why):
        SparkWatch(request(source, engine=EngineName.SPARK), Log())


def test_a_fault_of_a_shard_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """Its traceback is long, and Spark's stack short."""
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1))
    text = "SELECT DISTINCT cid FROM customer WHERE cid > 0 AND cid < 9"
    asked = request(source, queries={"ids": Query(text, kind=SQL)})
    reason = "deletes a tuple of customer; query 'ids' runs in constant"
    with pytest.raises(BadRecordsError, match=reason), running(asked) as run:  # noqa: PT012
        run.until(lambda: run.watch.metrics().tuples > 0)
        append(source, customer(2, 1, op="-"), customer(3, 2))
        run.results(2)
