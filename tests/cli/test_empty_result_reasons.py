"""A job explains why queries have no results, once while it runs and at its end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from docs.stepped_run import SteppedClock
from skws.cli.watch import EmptyResultDiagnosis
from skws.data.batch import Record
from skws.jobs.control import JobCommand, RunControl
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log, LogFormat
from skws.queries.keywords.keyword_operator import Sizes
from skws.queries.keywords.keyword_plans import keyword_plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.spec.job import Job
from skws.spec.query_spec import Query, Stream
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded
from tests.commands import Skws

SCHEMA = """\
version: 1
name: shop
window: {window}
relations:
  item: {{attributes: {{id: integer, name: text}}, key: [id], table: {table}}}
  visit: {{attributes: {{id: integer, note: text}}}}
joins: [item.id = visit.id]
"""


class Run:
    """A job over a growing file, on a manual clock, with its log."""

    def __init__(
        self,
        folder: Path,
        *queries: str | Query,
        window: str = "none",
        table: bool = False,
    ) -> None:
        self.file, self.clock, self._log = folder / "in.jsonl", SteppedClock(), StringIO()
        self.file.touch()
        schema = parse_schema(SCHEMA.format(window=window, table=str(table).lower()))
        queries_by_name = {query if isinstance(query, str) else query.text: query for query in queries}
        job = Job(queries_by_name, schema, str(self.file))
        log = Log(LogFormat.JSON, stream=self._log)
        self.diagnosis, self.control = EmptyResultDiagnosis(log), RunControl(job, self.clock)
        self.host = LocalWatch(job, [], log, control=self.control)

    def open(self) -> Run:
        self.host.open()
        return self

    def append(self, relation: str, *texts: str, time: int = 1) -> None:
        name = "name" if relation == "item" else "note"
        with self.file.open("a") as file:
            for number, text in enumerate(texts):
                row = {"id": number, name: text}
                file.write(json.dumps({"relation": relation, "time": time, "row": row}) + "\n")

    def step(self, seconds: float = 0) -> None:
        self.clock.pass_time(seconds)
        while self.host.step():
            pass
        self.diagnosis.each_step(self.clock.now(), self.host)

    @property
    def messages(self) -> list[str]:
        lines: Iterable[dict[str, Any]] = map(json.loads, self._log.getvalue().splitlines())
        return [line["message"] for line in lines if line["event"] == "no results"]


def test_empty_queries_are_explained_after_ten_seconds_and_at_the_end(tmp_path: Path) -> None:
    run = Run(tmp_path, "lamp red", "red chiar").open()
    run.step(60)
    run.append("item", "red chair")
    run.step()
    run.step(9)
    assert run.messages == []
    run.step(1)
    messages = [
        "lamp red: no results: no row matches 'lamp'",
        "red chiar: no results: no row matches 'chiar'; did you mean 'chair'?",
    ]
    assert run.messages == messages
    run.step(60)
    run.diagnosis.log_reasons(run.host)
    assert run.messages == messages
    run.append("visit", "a lamp", "blue")
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert run.messages == messages  # item 0 and visit 0 now form a result
    run.control.submit(JobCommand.add(Query("blue red", name="blue red")))
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert run.messages[2:] == [
        "blue red: no results: every keyword matches some row, but no tree of up to 5 joined rows"
        " contains all of them"
    ]


def test_only_keyword_queries_with_records_are_explained(tmp_path: Path) -> None:
    run = Run(tmp_path, "lamp", Query.of_pattern("item a ; visit b within 5 tuples")).open()
    run.step(60)
    run.diagnosis.log_reasons(run.host)
    assert run.messages == []
    run.append("item", "red")
    run.step()
    run.step(20)
    assert run.messages == ["lamp: no results: no row matches 'lamp'"]


def test_only_the_first_of_many_empty_queries_are_explained(tmp_path: Path) -> None:
    run = Run(tmp_path, *(f"word{number}" for number in range(8))).open()
    run.append("item", "red")
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert len(run.messages) == 6
    assert run.messages[-1] == "3 more queries have no results"


def test_a_resumed_run_without_records_explains_nothing(skws: Skws, tmp_path: Path) -> None:
    """An earlier run may have written results of its queries."""
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"relation": "item", "time": 1, "row": {"id": 1, "name": "lamp"}}) + "\n")
    (tmp_path / "shop.yaml").write_text(SCHEMA.format(window="none", table="false"))
    command = ("watch", "-S", f"replay:{source}?speed=1e9", "-s", tmp_path / "shop.yaml", "lamp")
    for number in range(2):
        outcome = skws(*command, "--checkpoint", tmp_path / "cp", "-f", "jsonl")
        assert outcome.code == 0
        assert len(outcome.out.splitlines()) == 1 - number
        assert "no results" not in outcome.err


def test_only_rows_of_the_window_count_as_matches(tmp_path: Path) -> None:
    run = Run(tmp_path, "lamp blue", window="10 seconds").open()
    run.append("item", "lamp")
    run.append("item", "red", time=20)
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert run.messages == [
        f"lamp blue: no results: no row of the window matches {word!r}" for word in ("lamp", "blue")
    ]


def test_only_the_latest_rows_of_each_relation_are_examined() -> None:
    schema = parse_schema(SCHEMA.format(window="none", table="false"))
    engine = StreamEngine(schema, Unbounded(), sizes=Sizes(reasons=4))
    plan = keyword_plan(Query("lamp blue"), Stream(schema, Unbounded(), max_size=5), Unbounded(), None)
    texts = ("lamp", "red", "green", "white")
    records = [
        Record(1, 0, (0, "blue")),
        *(Record(0, 0, (row_id, text)) for row_id, text in enumerate(texts)),
    ]
    assert list(engine.process(records)) == []
    diagnosis = engine.why_nothing(plan)
    assert diagnosis is not None
    assert diagnosis.reasons == ("no row of the latest 3 matches 'lamp'",)


@pytest.mark.parametrize("text", ["lamp -red", "lamp -item:", "red ; lamp"])
def test_rows_that_the_query_excludes_do_not_count_as_matches(skws: Skws, tmp_path: Path, text: str) -> None:
    """In a search over live rows, and among the rows that a job examines."""
    schema, rows = tmp_path / "shop.yaml", tmp_path / "in.jsonl"
    schema.write_text(SCHEMA.format(window="none", table="false"))
    rows.write_text(json.dumps({"relation": "item", "time": 1, "row": {"id": 1, "name": "red lamp"}}) + "\n")
    search = skws("search", "--schema", schema, "--replay", rows, "--", text)
    run = Run(tmp_path, text).open()
    run.step()
    run.diagnosis.log_reasons(run.host)
    for message in (search.err, *run.messages):
        assert "no row that the query does not exclude matches" in message
    assert run.messages


def test_rows_of_static_tables_count_as_matches(tmp_path: Path) -> None:
    run = Run(tmp_path, "lamp blue", table=True)
    run.append("item", "lamp")
    run.open()
    run.step()
    run.append("visit", "blu")
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert run.messages == ["lamp blue: no results: no row matches 'blue'; did you mean 'blu'?"]


def test_records_before_a_schema_change_are_not_examined(tmp_path: Path) -> None:
    run = Run(tmp_path, "lamp blue").open()
    run.append("item", "lamp")
    run.step()
    new_schema = SCHEMA.format(window="none", table="false").replace("note: text", "note: text, more: text")
    answer = run.control.submit(JobCommand("schema", "", schema=new_schema))
    run.step()
    assert not answer.result(0).error
    run.append("item", "green")
    run.step()
    run.diagnosis.log_reasons(run.host)
    assert run.messages == [f"lamp blue: no results: no row matches {word!r}" for word in ("lamp", "blue")]
