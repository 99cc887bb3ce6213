"""Files of queries: their format, sinks and limits per query, and changes while the job runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from skws.cli.main import run
from skws.jobs.alerts import Alert, Limiter, Rate, Reloading, read_alerts
from skws.jobs.fanout import Routing
from skws.results.result import Result, ResultTuple
from skws.sinks.base import SinkError, SinkRun
from skws.sinks.sink_addresses import open_sinks, parse_sink
from skws.sinks.webhook import HookProgram
from skws.spec.query_spec import TOP, Query
from skws_schema.errors import ConfigurationError
from tests.jobs.watching import (
    SCHEMA,
    YAML,
    Notes,
    append,
    customer,
    lines,
    opened,
    order,
    request,
    steps,
)
from tests.waiting import gone, until

WHOLE = """
plain: ada lamp
best:
  query: ada lamp
  max_size: 2
  top: 3
  rank: recency
  half_life: 5 s
  window: 4 s
  group: true
  limit: 2 per 10 s
  sinks: jsonl:best.jsonl
least: {query: ada ; lamp, without: order}
few: {query: ada lamp, without: [order, customer], top: 1}
listed: {pattern: a x ; b y, sinks: jsonl:b.jsonl}
kept: {query: ada lamp, updates: true}
"""


def result(number: int, time: float, op: str = "+") -> Result:
    return Result(op, "q", "q", str(number), time, time, "n", (), ())  # type: ignore[arg-type]


def test_what_a_file_may_say(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(WHOLE)
    found = read_alerts(path)
    options = {"rank": "recency", "half-life": "5 s", "group": "yes", "size": "3", "window": "4 s"}
    assert found == {
        "plain": Alert(Query("ada lamp")),
        "best": Alert(Query("ada lamp", 2, TOP, options), ("jsonl:best.jsonl",), Rate(2, 10_000_000)),
        "least": Alert(Query("ada ; lamp -order:")),
        "few": Alert(Query("ada lamp -order: -customer:", None, TOP, {"size": "1"})),
        "listed": Alert(Query.of_pattern("a x ; b y"), ("jsonl:b.jsonl",)),
        "kept": Alert(Query("ada lamp"), updates=True),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- ada", "expected lines of"),
        ("q: 7", "q: 7: expected keywords"),
        ("q: {query: ada, without: 7}", "without: 7: expected a relation, or a list of them"),
        ("q: {query: ada, without: 'a b'}", "'a b': expected the name of a relation"),
        ("q: {pattern: a x, without: b}", "without only applies to keywords; a pattern names its relations"),
        ("1: ada", "expected a name as text"),
        ("q: {top: 3}", "q: expected keywords, or a mapping"),
        ("q: {query: ada, tops: 3}", "q: no 'tops'; did you mean 'top'?"),
        ("q: {query: ada, top: none}", "top: 'none': expected a number above 0"),
        ("q: {query: ada, group: true}", "need top"),
        ("q: {query: ada, window: 1 hour}", "expected a window expression, or top"),
        ("q: {sql: SELECT, top: 3}", "top cannot be combined with sql"),
        ("q: {sql: SELECT 1, query: ada}", "query, pattern or sql"),
        ("q: {query: ada, kind: new, top: 3}", "top cannot be combined with query"),
        ("q: {query: ada, kind: new, options: [a]}", "expected a mapping of names to texts"),
        ("q: {query: ada, rank: relevanc}", "did you mean 'relevance'"),
        ("q: {query: ada, limit: often}", "limit 'often': expected a rate such as '10 per minute'"),
        ("q: {query: ada, sinks: [jsonl]}", "sink jsonl"),
        ("q: {query: ada, sinks: 7}", "sinks: 7"),
        ("q: {query: ada, top: 3, group: source}", "'limit: 1 per day by source' reports one for each value"),
        ("q: {query: ada, updates: often}", "updates: 'often': expected true or false"),
        ("q: {query: ada, half_life: soon}", "half-life 'soon'"),
        ("q: [", "not valid YAML"),
        ("q: ada\nr: lovelace\nq: bob", ":3:1: key 'q' is written twice; first in line 1"),
        ("q: {query: ada, query: bob}", "key 'query' is written twice"),
    ],
)
def test_faults_name_the_file_the_query_and_what_was_expected(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_alerts(path)
    assert str(raised.value).startswith(str(path))
    assert told in str(raised.value)


def test_what_is_too_much_is_held_back_and_counted() -> None:
    limiter = Limiter(Rate.of("2 per minute"))
    told = [limiter.admit(result(n, time)) for n, time in enumerate((0, 1, 2, 59, 60, 61, 200))]
    assert [each is not None for each in told] == [True, True, False, False, True, True, True]
    assert [each.to_dict().get("held_back") for each in told if each] == [None, None, 2, None, None]
    written = [orjson.loads(each.to_json()).get("held_back") for each in told if each]
    assert written == [None, None, 2, None, None]
    assert limiter.admit(result(0, 201, "-")) is not None
    assert limiter.admit(result(2, 201, "-")) is None
    assert limiter.held_back == 0


def sold(number: int, time: float, *items: str, op: str = "+") -> Result:
    tuples = [
        ResultTuple.given("order", f"order:{n}", (), {"oid": n, "item": item}) for n, item in enumerate(items)
    ]
    other = ResultTuple.given("offer", "offer:1", (), {"item": "none of these"})
    return Result(op, "q", "q", str(number), time, time, "n", (other, *tuples), ())  # type: ignore[arg-type]


def test_a_limit_may_be_for_each_value_of_an_attribute() -> None:
    rate = Rate.of("1 per minute  by order.item ")
    assert rate == Rate(1, 60_000_000, "order.item")
    assert Rate.of("2 per 3 hours by item") == Rate(2, 3 * 3_600_000_000, "item")
    limiter = Limiter(rate)
    asked = [
        *(sold(0, 0, "lamp"), sold(1, 1, "chair"), sold(2, 2, "lamp"), sold(3, 3), sold(4, 4)),
        *(sold(5, 5, "lamp", "chair"), sold(6, 6, "chair", "lamp"), sold(7, 61, "lamp")),
    ]
    told = [limiter.admit(each) for each in asked[:4]]
    again = Limiter(rate)
    again.restore(orjson.loads(orjson.dumps(limiter.state())))
    told += [again.admit(each) for each in asked[4:]]
    assert [each is not None for each in told] == [True, True, False, True, False, True, False, True]
    assert [each.to_dict().get("held_back") for each in told if each] == [None, None, 1, 1, 1]
    assert again.admit(sold(2, 62, "lamp", op="-")) is None
    assert again.admit(sold(0, 62, "lamp", op="-")) is not None
    other = Limiter(Rate.of("1 per minute"))
    other.restore(again.state())
    assert other.admit(sold(8, 61, "lamp")) is not None, "the state is of another limit"


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("order.items", "pager: limit: no attribute 'order.items'; did you mean 'order.item'?"),
        ("zzz", "pager: limit: no attribute 'zzz'; expected relation.attribute"),
        ("cid", "pager: limit: 'cid' is in several relations; write one of customer.cid, order.cid"),
    ],
)
def test_a_limit_by_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str, told: str
) -> None:
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    schema.write_text(YAML)
    append(source, customer(0, 1))
    queries.write_text(f"pager: {{query: ada lamp, limit: 1 per day by {by}}}\n")
    given = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    assert run([*map(str, ("watch", "--queries", queries, *given))]) == 2
    assert told in capsys.readouterr().err


def test_each_query_has_sinks_and_a_limit_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    mine, all_others = tmp_path / "mine.jsonl", tmp_path / "others.jsonl"
    schema.write_text(YAML)
    append(
        source,
        customer(0, 1),
        *(order(n, 1) for n in range(1, 6)),
        order(6, 1, "chair"),
        order(20, 2, "chair"),
    )
    queries.write_text(
        f"lamps: {{query: ada lamp, limit: 3 per minute, sinks: 'jsonl:{mine}'}}\n"
        "chairs: ada chair\n"
        "best: {query: lamp, top: 1, rank: recency}\n"
    )
    given = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    code = run([*map(str, ("watch", "--queries", queries, *given, "--sink", f"jsonl:{all_others}"))])
    assert code == 0, capsys.readouterr().err
    assert [line["query"] for line in lines(mine)] == ["ada lamp"] * 3
    assert "lamps: 2 more results were held back" in capsys.readouterr().err
    others = [(line["query"], line.get("event")) for line in lines(all_others)]
    assert others.count(("ada chair", None)) == 1
    assert others.count(("lamp", "enter")) == 5
    assert others.count(("lamp", "leave")) == 5


def test_alerts_of_one_query_go_their_own_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit of one does not affect the other; a sink of both gets the results of each."""
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    some, every = tmp_path / "some.jsonl", tmp_path / "every.jsonl"
    schema.write_text(YAML)
    append(source, customer(0, 1), *(order(n, 1) for n in range(1, 6)))
    told = []
    for asked in ("query: ada lamp", "query: lamp, top: 1, rank: recency", "pattern: customer c ; order o"):
        queries.write_text(
            f"pager: {{{asked}, limit: 2 per minute, sinks: ['jsonl:{some}', 'jsonl:{every}']}}\n"
            f"file: {{{asked}, sinks: 'jsonl:{every}'}}\n"
        )
        given = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
        assert run([*map(str, ("watch", "--queries", queries, *given))]) == 0, capsys.readouterr().err
        entered = [
            Counter(line["name"] for line in lines(path) if line["op"] == "+") for path in (some, every)
        ]
        told.append(entered)
        some.unlink()
        every.unlink()
    assert told == [[{"pager": 2}, {"pager": 2, "file": 5}]] * 3


def test_each_kind_has_its_own_sink_and_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, source, queries = (tmp_path / name for name in ("shop.yaml", "in.jsonl", "queries.yaml"))
    mine, sql, others = tmp_path / "mine.jsonl", tmp_path / "sql.jsonl", tmp_path / "others.jsonl"
    schema.write_text(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  visit: {attributes: {page: {type: integer, min: 1, max: 9}}}\n"
        "  orders: {attributes: {amount: integer}}\njoins: []\n"
    )
    rows = [("visit", {"page": 3}), ("visit", {"page": 3}), *(("orders", {"amount": n}) for n in (5, 6, 7))]
    append(source, *({"relation": name, "time": at, "row": row} for at, (name, row) in enumerate(rows)))
    pattern = "visit v ; orders o"
    queries.write_text(
        f"shown: {{pattern: {pattern}, limit: 3 per minute, "
        f"sinks: 'jsonl:{mine}'}}\n"
        f"sql: {{sql: select all page from visit, limit: 1 per minute, sinks: 'jsonl:{sql}'}}\n"
    )
    given = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    code = run([*map(str, ("watch", "--queries", queries, *given, "--sink", f"jsonl:{others}"))])
    assert code == 0, capsys.readouterr().err
    assert [(line["query"], line["tuples"][1]["row"]) for line in lines(mine)] == [
        (pattern, {"amount": amount}) for amount in (5, 5, 6)
    ]
    assert [line["tuples"][0]["row"] for line in lines(sql)] == [{"page": 3}]
    assert lines(others) == []
    told = capsys.readouterr().err
    assert "shown: 3 more results were held back" in told
    assert "sql: 1 more result was held back" in told


def test_the_file_may_change_while_the_job_runs(tmp_path: Path) -> None:
    source, queries = tmp_path / "in.jsonl", tmp_path / "queries.yaml"
    lamps, chairs = tmp_path / "lamps.jsonl", tmp_path / "chairs.jsonl"
    append(source, customer(0, 1), order(1, 1), order(1, 1, "chair"))
    first = f"lamps: {{query: ada lamp, sinks: 'jsonl:{lamps}'}}\n"
    queries.write_text(first)
    alerts = read_alerts(queries)
    notes = Notes()
    routing = Routing(open_sinks(()), alerts)
    asked = request(source, queries={name: each.query for name, each in alerts.items()}, sinks=())
    watch = opened(asked, routing, notes=notes)
    reloading = Reloading(queries, alerts, routing.change, dict, notes.log)

    def change(text: str, now: int) -> None:
        queries.write_text(text)
        reloading.each_second(now, watch.control.submit)
        steps(watch)

    steps(watch)
    change("lamps: [", 2_000_000)
    assert "the queries are unchanged" in str(notes.lines)
    change(f"{first}chairs: {{query: ada chair, sinks: 'jsonl:{chairs}'}}\n", 4_000_000)
    append(source, order(2, 1), order(2, 1, "chair"))
    steps(watch)
    change(f"chairs: {{query: ada chair, sinks: 'jsonl:{chairs}'}}\n", 6_000_000)
    append(source, order(3, 1), order(3, 1, "chair"))
    steps(watch)
    watch.close()
    assert [line["start"] for line in lines(lamps)] == [1.0, 2.0]
    assert [(line["start"], line.get("snapshot")) for line in lines(chairs)] == [
        (1.0, True),
        (2.0, None),
        (3.0, None),
    ]


SCRIPT = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
tries = folder / "tries"
count = int(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text(str(count))
if count <= int(sys.argv[2]):
    sys.exit("not yet")
(folder / "got.json").write_text(json.dumps([os.environ["SKWS_KEY"], json.load(sys.stdin)]))
"""


def posted(tmp_path: Path, failures: int, more: str) -> list[str]:
    """Post results to a program that fails ``failures`` times first; returns the notes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    told: list[str] = []
    sink = parse_sink(f"command:{sys.executable} {script} {tmp_path} {failures}#{more}")
    run_of = SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=told.append)
    sink.open(run_of)
    sink.write(1, [result(1, 5.0)])
    sink.flush()
    sink.close()
    return told


def test_posts_have_updates_only_where_an_alert_asks_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files contain all updates, so that they can track the results that hold."""
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    quiet, told, every, asked = (tmp_path / name for name in ("quiet", "told", "every", "asked"))
    schema.write_text(YAML)
    append(source, customer(1, 1), *(customer(at, 1, f"ada {at}") for at in (2, 3)), customer(4, 1, "bob"))

    def program(path: Path) -> str:
        return f'command:sh -c "cat >> {path}"'

    queries.write_text(
        f"quiet: {{query: ada, sinks: ['{program(quiet)}', 'jsonl:{every}']}}\n"
        f"told: {{query: ada, updates: true, sinks: '{program(told)}'}}\n"
    )
    given = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    assert run([*map(str, ("watch", "--queries", queries, *given))]) == 0, capsys.readouterr().err
    assert run([*map(str, ("watch", "ada", *given, "--sink", program(asked)))]) == 0

    def ops(path: Path) -> list[str]:
        posts = path.read_bytes().replace(b"}{", b"}\n{").splitlines()
        return [each["op"] for post in posts for each in orjson.loads(post)["results"]]

    assert ops(quiet) == ["+", "-"]
    assert ops(told) == ["+", "~", "~", "-"]
    assert [line["op"] for line in lines(every)] == ["+", "~", "~", "-"]
    assert ops(asked) == ["+", "-"]


def test_a_command_is_tried_again_until_it_takes_the_results(tmp_path: Path) -> None:
    told = posted(tmp_path, 2, "attempts=4")
    assert len(told) == 2
    assert "ended with 1: not yet; trying again" in told[0]
    key, body = orjson.loads((tmp_path / "got.json").read_bytes())
    assert key == "r-1-0"
    assert [each["id"] for each in body["results"]] == ["1"]


def test_what_a_command_does_not_take_is_put_aside(tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"
    posted(tmp_path, 9, f"attempts=2&letters={letters}")
    (letter,) = lines(letters)
    assert letter["reason"] == "ended with 1: not yet"
    assert letter["result"]["id"] == "1"
    with pytest.raises(SinkError, match="not delivered"):
        posted(tmp_path, 9, "attempts=1")


def test_a_command_that_is_not_there_is_not_tried_again(tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"
    told: list[str] = []
    sink = parse_sink(f"command:/no/such/program#letters={letters}")
    sink.open(SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=told.append))
    sink.write(1, [result(1, 5.0)])
    assert lines(letters)[0]["reason"] == "No such file or directory"
    sink.close()
    assert len(told) == 1


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = tmp_path / "hang.sh"
    program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {started}\nwait\n")
    program.chmod(0o755)
    outcome = HookProgram(str(program), seconds=0.5).post(b"{}", "k")
    assert not outcome.accepted
    assert outcome.reason == "did not end within 0.5 s"
    until(lambda: gone(int(started.read_text())))


def test_every_fault_of_a_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text("a: 7\nb: ada\nc: {query: ada, tops: 3}\n")
    with pytest.raises(ConfigurationError) as raised:
        read_alerts(path)
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["a", "c"]
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigurationError, match="byte 0xFF is not UTF-8"):
        read_alerts(path)
