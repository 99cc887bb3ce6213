"""A schema change in a live search: as in the engine alone, through sources, kills and restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skws.data.record import Record
from skws.jobs.control import Command, ControlFolder
from skws.jobs.local import LocalWatch
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.spec.query import PATTERN, SIZE, TOP, Query
from skws_schema.errors import SchemaError, SkwsError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_schema.yaml.write import to_yaml
from skws_windows.window import TimeWindow
from tests.jobs.watching import (
    QUERY,
    SCHEMA,
    YAML,
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
from tests.strategies import seeds

WITH_NOTES = YAML.replace(
    "joins:\n", "  note:\n    attributes: {cid: integer, text: text}\njoins:\n"
).replace("- customer.cid = order.cid", "- customer.cid = order.cid\n  - customer.cid = note.cid")
WITHOUT_JOIN = YAML.replace("  - customer.cid = order.cid\n", "").replace("joins:\n", "joins: []\n")
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
ALL = [YAML, WITH_NOTES, WITHOUT_JOIN, WITHOUT_ORDERS, WITH_PRICES]


def note(time: float, cid: int, text: str = "lamp") -> dict[str, Any]:
    return {"relation": "note", "time": time, "row": {"cid": cid, "text": text}}


def change(text: str, name: str = "1") -> Command:
    return Command("schema", "new.yaml", id=name, schema=text)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.touch()
    return path


@seeds(2, 8)
def test_as_the_engines_own_change_at_that_point(source: Path, seed: int) -> None:
    """Random records and changes: what the sink gets is what the engine alone gives."""
    random = Random(seed)
    sink = Collected()
    run = opened(request(source), sink)
    engine = ColumnarEngine(SCHEMA, TimeWindow(10_000_000))
    expected = engine.add(Plan(SCHEMA, parse_query(QUERY, SCHEMA), TimeWindow(10_000_000)), QUERY)
    given: Schema = SCHEMA
    time = 1
    for _ in range(25):
        if random.random() < 0.3:
            text = random.choice(ALL)
            given = parse_schema(text)
            expected += engine.change_schema(given, (time if engine.counts.tuples else 0) * 1_000_000)
            run.control.submit(change(text))
            steps(run)
        time += random.randrange(1, 3)
        name = random.choice([relation.name for relation in given.relations])
        row: dict[str, Any] = {"cid": random.randrange(3)}
        relation = given.relation(name)
        row |= {
            a.name: random.choice(["ada", "lamp", "ada lamp"])
            for a in relation.attributes
            if a.type == "text"
        }
        append(source, {"relation": name, "time": time, "row": row})
        values = tuple(row.get(a.name) for a in relation.attributes)
        expected += engine.process([Record(engine.schema.index[name], time * 1_000_000, values)])
        steps(run)
    run.close()
    assert [(r.op, r.id, r.end if r.op == "+" else None) for r in sink.results] == [
        (r.op, r.id, r.end if r.op == "+" else None) for r in expected
    ]
    assert len(expected) > 3


@seeds(1, 6)
def test_broken_off_anywhere_it_goes_on_as_if_undisturbed(tmp_path: Path, seed: int) -> None:
    undisturbed = _told_with_ends(tmp_path / "whole", seed, ends=False)
    assert _told_with_ends(tmp_path / "broken", seed, ends=True) == undisturbed
    assert len(undisturbed) > 3


def _told_with_ends(folder: Path, seed: int, *, ends: bool) -> list[tuple[str, str, str]]:
    folder.mkdir()
    script, breaking = Random(seed), Random(seed + 100)
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.touch()
    queries: dict[str, str | Query] = {
        QUERY: QUERY,
        "pattern": Query("customer a ; * b where a.cid = b.cid", kind=PATTERN),
        "best": Query("ada", kind=TOP, options={SIZE: "1"}),
    }
    kept: dict[str, Any] = {"checkpoint": folder / "kept", "control": folder / "control"}
    asked = request(source, queries=queries, sinks=(f"jsonl:{out}",), **kept)
    run = opened(asked)
    for number in range(30):
        if script.random() < 0.25:
            ControlFolder(folder / "control").send(change(script.choice(ALL[:4])))
        else:
            make = script.choice([customer, order])
            append(source, make(number + 1, script.randrange(2), script.choice(["ada", "lamp", "ada lamp"])))
        run.step()
        if script.random() < 0.5:
            run.commit()
        if ends and breaking.random() < 0.4:
            abandon(run)
            run = opened(asked)
    steps(run)
    run.close()
    return told(out)


def test_another_schema_at_a_restart_is_a_change(tmp_path: Path, source: Path) -> None:
    kept = tmp_path / "kept"
    ran(request(source, checkpoint=kept), customer(1, 1), order(1, 1))
    changed = request(source, checkpoint=kept, schema=parse_schema(WITH_NOTES))
    second = ran(changed, note(2, 1))
    assert [(r.op, [t.relation for t in r.tuples]) for r in second.results] == [("+", ["customer", "note"])]
    # The same command again changes nothing, and tells nothing twice.
    assert ran(changed, note(3, 1)).told() == [("+", QUERY)]
    fourth = Collected()
    run = opened(request(source, checkpoint=kept, schema=parse_schema(WITHOUT_ORDERS)), fourth)
    steps(run)
    run.close()
    assert [op for op, _ in fourth.told()] == ["-", "-", "-"]
    assert [one.name for one in run.metrics().relations] == ["customer"]


def test_a_schema_changed_by_command_stays_at_a_restart(tmp_path: Path, source: Path) -> None:
    asked = request(source, checkpoint=tmp_path / "kept")
    run = opened(asked, Collected())
    run.control.submit(change(WITH_NOTES))
    steps(run)
    assert [one.name for one in run.metrics().relations] == ["customer", "order", "note"]
    run.close()
    assert ran(asked, customer(1, 1), note(1, 1)).told() == [("+", QUERY)]


def test_a_restart_that_cannot_be_is_refused_before_anything_is_touched(tmp_path: Path, source: Path) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out.jsonl"
    asked = request(source, checkpoint=kept, sinks=(f"jsonl:{out}",))
    run = opened(asked)
    append(source, customer(1, 1), order(1, 1))
    steps(run)
    run.close()
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} | {out: out.read_bytes()}
    shorter = replace(SCHEMA, window="5 seconds")
    with pytest.raises(SkwsError, match="checkpoint is of window"):
        LocalWatch(replace(asked, schema=shorter), [], Notes().log).run()
    tables = parse_schema(YAML.replace("key: [cid]", "key: [cid]\n    table: true"))
    with pytest.raises(SchemaError, match="differs from that of the checkpoint: customer: static tables"):
        LocalWatch(replace(asked, schema=tables), [], Notes().log).run()
    assert {path: path.read_bytes() for path in before} == before
    run = opened(asked)
    append(source, order(2, 1))
    steps(run)
    run.close()
    assert len(lines(out)) == 2


def test_a_pattern_that_cannot_go_on_is_named_at_a_restart(tmp_path: Path, source: Path) -> None:
    queries = {"p": Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)}
    asked = request(source, queries=queries, checkpoint=tmp_path / "kept")
    assert not ran(asked, customer(1, 1)).results
    with pytest.raises(SchemaError, match=r"query 'p' \(pattern\) .* it reads order, which changes"):
        LocalWatch(replace(asked, schema=parse_schema(WITH_PRICES)), [], Notes().log).run()
    sink = ran(replace(asked, schema=parse_schema(WITH_NOTES)), note(2, 1), order(3, 1))
    assert [[t.relation for t in r.tuples] for r in sink.results] == [["customer", "order"]]


def test_a_run_that_keeps_no_records_says_what_it_needs(source: Path) -> None:
    queries = {"p": Query("customer c ; order o where c.cid = o.cid", kind=PATTERN)}
    run = opened(request(source, queries=queries), Collected())
    answer = run.control.submit(change(WITH_NOTES))
    steps(run)
    assert "query 'p' would need the earlier records" in answer.result(0).error
    run.close()


def test_a_replay_goes_on_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    append(
        path, customer(1, 1), order(2, 1), note(2, 1), order(3, 1), note(4, 1), order(5, 2), customer(6, 2)
    )
    sink = Collected()
    run = opened(
        request(f"replay:{path}?speed=1e12", on_error="skip"),
        sink,  # the notes are bad at first
    )
    while not sink.results:
        run.sizer.limit = 1
        run.step()
    run.control.submit(change(WITH_NOTES))
    steps(run)
    run.close()
    relations = [sorted(t.relation for t in r.tuples) for r in sink.results]
    both = ["customer", "order"], ["customer", "note"]
    assert relations == [both[0], both[1], both[0], both[1], both[0]]


def test_the_yaml_of_a_command_is_that_of_the_file() -> None:
    assert parse_schema(to_yaml(parse_schema(WITH_NOTES))) == parse_schema(WITH_NOTES)
