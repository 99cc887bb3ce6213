"""Schema changes of a live search: at a restart, during a replay, and when they are impossible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skws.jobs.control import JobCommand
from skws.jobs.local import LocalWatch
from skws.spec.query_spec import PATTERN, Query
from skws_schema.errors import SchemaError
from skws_schema.yaml.load import parse_schema
from tests.jobs.watching import (
    QUERY,
    YAML,
    Collected,
    Notes,
    append,
    customer,
    opened,
    order,
    ran,
    request,
    steps,
)

WITH_NOTES = YAML.replace(
    "joins:\n", "  note:\n    attributes: {cid: integer, text: text}\njoins:\n"
).replace("- customer.cid = order.cid", "- customer.cid = order.cid\n  - customer.cid = note.cid")
WITHOUT_ORDERS = """\
version: 1
name: shop
window: 10 seconds
relations:
  customer:
    attributes: {cid: integer, name: text}
    key: [cid]
joins: []
"""
WITH_PRICES = YAML.replace("{cid: integer, item: text}", "{cid: integer, item: text, price: integer}")


def note(time: float, cid: int, text: str = "lamp") -> dict[str, Any]:
    return {"relation": "note", "time": time, "row": {"cid": cid, "text": text}}


def change(text: str, name: str = "1") -> JobCommand:
    return JobCommand("schema", "new.yaml", id=name, schema=text)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.touch()
    return path


def test_a_restart_with_another_schema_changes_the_schema(tmp_path: Path, source: Path) -> None:
    checkpoint = tmp_path / "kept"
    ran(request(source, checkpoint=checkpoint), customer(1, 1), order(1, 1))
    changed_job = request(source, checkpoint=checkpoint, schema=parse_schema(WITH_NOTES))
    second = ran(changed_job, note(2, 1))
    assert [(r.op, [t.relation for t in r.tuples]) for r in second.results] == [("+", ["customer", "note"])]
    # The same command again changes nothing, and repeats no result.
    assert ran(changed_job, note(3, 1)).told() == [("+", QUERY)]
    fourth = Collected()
    run = opened(request(source, checkpoint=checkpoint, schema=parse_schema(WITHOUT_ORDERS)), fourth)
    steps(run)
    run.close()
    assert [op for op, _ in fourth.told()] == ["-", "-", "-"]
    assert [relation.name for relation in run.metrics().relations] == ["customer"]


def test_a_pattern_that_blocks_a_schema_change_is_named(tmp_path: Path, source: Path) -> None:
    queries = {"p": Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)}
    job = request(source, queries=queries, checkpoint=tmp_path / "kept")
    assert not ran(job, customer(1, 1)).results
    with pytest.raises(SchemaError, match=r"query 'p' \(pattern\) .* it reads order, which changes"):
        LocalWatch(replace(job, schema=parse_schema(WITH_PRICES)), [], Notes().log).run()
    sink = ran(replace(job, schema=parse_schema(WITH_NOTES)), note(2, 1), order(3, 1))
    assert [[t.relation for t in r.tuples] for r in sink.results] == [["customer", "order"]]


def test_a_schema_change_without_stored_records_is_rejected(source: Path) -> None:
    queries = {"p": Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)}
    run = opened(request(source, queries=queries), Collected())
    answer = run.control.submit(change(WITH_NOTES))
    steps(run)
    assert "query 'p' would need the earlier records" in answer.result(0).error
    run.close()


def test_nothing_is_kept_of_a_schema_that_is_applied_again(source: Path) -> None:
    run = opened(request(source), Collected())
    for text in (YAML, WITH_NOTES, WITH_NOTES, f"# a comment\n{WITH_NOTES}"):
        answer = run.control.submit(change(text))
        steps(run)
        assert answer.result(0).error == ""
    assert run.worker.prior_state.schemas == (WITH_NOTES,)
    assert [relation.name for relation in run.schema.relations] == ["customer", "order", "note"]
    run.close()


def test_alternating_schemas_leave_nothing_in_the_checkpoint(tmp_path: Path, source: Path) -> None:
    job = request(source, checkpoint=tmp_path / "checkpoint")
    sink = Collected()
    watch = opened(job, sink)
    for number, text in enumerate((WITH_PRICES, YAML) * 3):
        append(source, customer(number, number), order(number, number))
        steps(watch)
        watch.control.submit(change(text, str(number)))
        steps(watch)
    assert [result.op for result in sink.results] == ["+", "-"] * 6
    assert len(watch.worker.prior_state.schemas) == 2
    assert len(watch.schema.relations) == 3
    watch.close()
    assert ran(job, customer(7, 7), order(7, 5), order(7, 7)).told() == [("+", QUERY)] * 2


def test_a_replay_continues_after_a_schema_change(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    append(
        path, customer(1, 1), order(2, 1), note(2, 1), order(3, 1), note(4, 1), order(5, 2), customer(6, 2)
    )
    sink = Collected()
    run = opened(
        request(f"replay:{path}?speed=1e12", on_error="skip"),
        sink,  # the notes are invalid at first
    )
    while not sink.results:
        run.sizer.limit = 1
        run.step()
    run.control.submit(change(WITH_NOTES))
    steps(run)
    run.close()
    relations = [sorted(t.relation for t in r.tuples) for r in sink.results]
    relation_pairs = ["customer", "order"], ["customer", "note"]
    assert relations == [
        relation_pairs[0],
        relation_pairs[1],
        relation_pairs[0],
        relation_pairs[1],
        relation_pairs[0],
    ]
