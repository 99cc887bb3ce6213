"""A schema change in a live search on Spark: by command, and at a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skws.jobs.control import Command, ControlFolder
from skws.spec.query import PATTERN, Query
from skws_schema.yaml.load import parse_schema
from tests.jobs.test_schema_changes import WITH_NOTES, WITHOUT_ORDERS, note
from tests.jobs.watching import QUERY, append, customer, order, request
from tests.spark.streaming.spark_runs import running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.slow
def test_a_change_by_command_and_at_a_new_start(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    append(source, customer(1, 1), order(2, 1))
    folder = ControlFolder(tmp_path / "control")
    queries = {QUERY: QUERY, PATTERN: Query("customer a ; * b where a.cid = b.cid", kind=PATTERN)}
    asked = request(source, queries=queries, control=folder.folder, checkpoint=tmp_path / "checkpoint")
    with running(asked) as run:
        run.results(2)
        window = WITH_NOTES.replace("10 seconds", "20 seconds")
        refused = folder.send(Command("schema", "new.yaml", schema=window))
        done = folder.send(Command("schema", "new.yaml", schema=WITH_NOTES))
        run.until(lambda: len(folder.answers()) >= 2)
        append(source, note(3, 1))  # which the pattern joins to what came before the change
        run.results(4)
        assert [one.name for one in run.watch.metrics().relations] == ["customer", "order", "note"]
        told = list(run.sink.results)
    answers = {answer.id: answer.error for answer in folder.answers()}
    assert answers[done] == ""
    assert "the window of a running search cannot change" in answers[refused]
    # The schema stays changed; another one is a change.
    with running(asked) as run:
        append(source, note(4, 1))
        run.results(2)
        told += run.sink.results
    with running(replace(asked, schema=parse_schema(WITHOUT_ORDERS))) as run:
        append(source, order(5, 1), note(5, 1), customer(5, 2, "ada lamp"))
        run.results(4)
        told += run.sink.results
    patterns = [[t.relation for t in r.tuples] for r in told if r.query != QUERY]
    assert patterns == [["customer", kind] for kind in ("order", "note", "note")]
    shown = [(r.op, sorted(t.relation for t in r.tuples)) for r in told if r.query == QUERY]
    assert shown[:3] == [("+", ["customer", kind]) for kind in ("order", "note", "note")]
    assert sorted(shown[3:6]) == [("-", ["customer", kind]) for kind in ("note", "note", "order")]
    assert shown[6:] == [("+", ["customer"])]
