"""Query files: their format, sinks and limits per query, and changes while the job runs."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from resource import RLIMIT_NOFILE, RUSAGE_SELF, getrlimit, getrusage, setrlimit

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from msgspec.structs import replace

from skws.cli.main import run
from skws.jobs.alerts import Alert, Limiter, Rate, Reloading, alert_of, file_state, read_alerts
from skws.jobs.fanout import Routing
from skws.queries.kinds import plan_of
from skws.results.result import Result, ResultTuple
from skws.sinks.base import SinkError, SinkProgress, SinkRun
from skws.sinks.sink_addresses import parse_sink
from skws.sinks.webhook import HookProgram
from skws.spec.query_spec import TOP, Query
from skws.state_database import StateDatabase
from skws_schema.errors import ConfigurationError, UsageError
from skws_schema.yaml import located
from tests.jobs.watching import (
    SCHEMA,
    YAML,
    Collected,
    Notes,
    append,
    customer,
    lines,
    opened,
    order,
    request,
    steps,
)
from tests.waiting import has_ended, until

EXAMPLE = """
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


def test_a_query_file_is_read_with_all_options(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(EXAMPLE)
    alerts = read_alerts(path)
    options = {"rank": "recency", "half-life": "5 s", "group": "yes", "size": "3", "window": "4 s"}
    assert alerts == {
        "plain": Alert(Query("ada lamp")),
        "best": Alert(Query("ada lamp", 2, TOP, options), ("jsonl:best.jsonl",), Rate(2, 10_000_000)),
        "least": Alert(Query("ada ; lamp -order:")),
        "few": Alert(Query("ada lamp -order: -customer:", None, TOP, {"size": "1"})),
        "listed": Alert(Query.of_pattern("a x ; b y"), ("jsonl:b.jsonl",)),
        "kept": Alert(Query("ada lamp"), updates=True),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- ada", "expected lines of"),
        ("queries: [ada, bob]", "queries: expected lines of 'name: keywords' or"),
        ("queries: {first: ada}", "{query: keywords, ...}', without 'queries:' above them"),
        ("queries: {query: ada, tops: 3}", "queries: no 'tops'; did you mean 'top'?"),
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
        ("q: {query: ada, sinks: [jsonl]}", "sink jsonl: expected stdout:FORMAT"),
        ("q: {query: ada, sinks: 7}", "sinks: 7: expected an address"),
        ("q: {query: ada, top: 3, group: source}", "'limit: 1 per day by source' reports one for each value"),
        ("q: {query: ada, updates: often}", "updates: 'often': expected true or false"),
        ("q: {query: ada, half_life: soon}", "half-life 'soon': expected a duration"),
        ("q: [", ":1:5: expected the node content, but found '<stream end>'"),
        (
            'r: x\nq: "pulp fiction" ada',
            ":2:19: unexpected text after a value; put all of the value in quotes",
        ),
        ("q: !price<500 lamp", ":1:10: a text that begins with ! needs quotes"),
        ("q: !lamp ada", ":1:4: a text that begins with ! needs quotes"),
        ("q: *amp", ":1:4: a text that begins with * needs quotes"),
        ("q: @lamp", ":1:4: a text that begins with @ needs quotes"),
        ("q: ada: lovelace", ":1:7: unexpected ': '; correct the indentation, or put the text in quotes"),
        ("q:\n    query: ada\n  top: 3", ":3:3: the indentation is that of no line above"),
        ("q: ada\n<<: 3", ":2:5: expected a mapping or list of mappings for merging"),
        ("1: ada\n1.0: bob", ":1:1: a key is written twice"),
        ("q: !!timestamp ada", ":1:4: tag !!timestamp is not supported; leave it out"),
        ("q: !!int ''", ":1:4: tag !!int is not supported; leave it out"),
        ("q: ada\nr: lovelace\nq: bob", ":3:1: key 'q' is written twice; first in line 1"),
        ("q: {query: ada, query: bob}", "key 'query' is written twice"),
    ],
)
def test_errors_of_query_files_name_file_query_and_expected_form(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_alerts(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["2024-05-06", "12:30", "2024-05-06T07:08:09Z", "2024-13-45", "07:08"])
def test_a_date_or_time_is_a_keyword_without_quotes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text(f"q: {text}\nr: {{query: {text}, top: 3, group: yes}}")
    assert [alert.query.text for alert in read_alerts(path).values()] == [text, text]


def test_a_fault_is_located_in_a_file_of_very_many_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(located, "MAX_NODES", 100)  # a file with more values takes ten seconds to read
    path = tmp_path / "queries.yaml"
    path.write_text("\n".join([*(f"q{n}: ada" for n in range(1000)), "q7: bob"]))
    with pytest.raises(ConfigurationError, match=r"1001:1: key 'q7' is written twice; first in line 8$"):
        read_alerts(path)


@pytest.mark.parametrize("key", ["", "query", "sinks", "limit", "kind", "group", "half_life", "top"])
def test_a_long_value_in_a_query_file_is_cut_in_its_message(tmp_path: Path, key: str) -> None:
    words = [f"word{number}" for number in range(10_000)]
    path = tmp_path / "queries.yaml"
    for value in (words, {word: word for word in words}):
        entry = {"query": "ada", key: value} if key else value
        path.write_text(yaml.safe_dump({"q": entry}))
        with pytest.raises(ConfigurationError) as error:
            read_alerts(path)
        assert len(str(error.value)) < 600


def test_results_beyond_the_limit_are_held_back_and_counted() -> None:
    limiter = Limiter(Rate.of("2 per minute"))
    passed = [limiter.admit(result(n, time)) for n, time in enumerate((0, 1, 2, 59, 60, 61, 200))]
    assert [result_ is not None for result_ in passed] == [True, True, False, False, True, True, True]
    assert [result_.to_dict().get("held_back") for result_ in passed if result_] == [
        None,
        None,
        2,
        None,
        None,
    ]
    held_back_counts = [orjson.loads(result_.to_json()).get("held_back") for result_ in passed if result_]
    assert held_back_counts == [None, None, 2, None, None]
    assert limiter.admit(result(0, 201, "-")) is not None
    assert limiter.admit(result(2, 201, "-")) is None
    assert limiter.held_back == 0


def test_results_of_late_records_count_against_the_current_limit() -> None:
    limiter = Limiter(Rate.of("1 per minute"))
    passed = [limiter.admit(result(n, time)) for n, time in enumerate((6, 65, 7, 66, 8, 130))]
    assert [result_ is not None for result_ in passed] == [True, True, False, False, False, True]


def sold(number: int, time: float, *items: str, op: str = "+") -> Result:
    tuples = [
        ResultTuple.given("order", f"order:{n}", (), {"oid": n, "item": item}) for n, item in enumerate(items)
    ]
    offer = ResultTuple.given("offer", "offer:1", (), {"item": "none of these"})
    return Result(op, "q", "q", str(number), time, time, "n", (offer, *tuples), ())  # type: ignore[arg-type]


def test_a_limit_may_be_per_attribute_value() -> None:
    rate = Rate.of("1 per minute  by order.item ")
    assert rate == Rate(1, 60_000_000, "order.item")
    assert Rate.of("2 per 3 hours by item") == Rate(2, 3 * 3_600_000_000, "item")
    limiter = Limiter(rate)
    sales = [
        *(sold(0, 0, "lamp"), sold(1, 1, "chair"), sold(2, 2, "lamp"), sold(3, 3), sold(4, 4)),
        *(sold(5, 5, "lamp", "chair"), sold(6, 6, "chair", "lamp"), sold(7, 61, "lamp")),
    ]
    passed = [limiter.admit(sale) for sale in sales[:4]]
    restored = Limiter(rate)
    restored.restore(orjson.loads(orjson.dumps(limiter.state())))
    passed += [restored.admit(sale) for sale in sales[4:]]
    assert [sale is not None for sale in passed] == [True, True, False, True, False, True, False, True]
    assert [sale.to_dict().get("held_back") for sale in passed if sale] == [None, None, 1, 1, 1]
    assert restored.admit(sold(2, 62, "lamp", op="-")) is None
    assert restored.admit(sold(0, 62, "lamp", op="-")) is not None
    other_limiter = Limiter(Rate.of("1 per minute"))
    other_limiter.restore(restored.state())
    assert other_limiter.admit(sold(8, 61, "lamp")) is not None, "the state is of another limit"


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("order.items", "pager: limit: no attribute 'order.items'; did you mean 'order.item'?"),
        ("zzz", "pager: limit: no attribute 'zzz'; expected relation.attribute"),
        ("cid", "pager: limit: 'cid' is in several relations; write one of customer.cid, order.cid"),
    ],
)
def test_a_limit_by_an_unknown_attribute_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attribute: str, message: str
) -> None:
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    schema.write_text(YAML)
    append(source, customer(0, 1))
    queries.write_text(f"pager: {{query: ada lamp, limit: 1 per day by {attribute}}}\n")
    options = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    assert run([*map(str, ("watch", "--queries", queries, *options))]) == 2
    assert message in capsys.readouterr().err


def test_each_query_has_its_own_sinks_and_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    lamps_file, default_file = tmp_path / "mine.jsonl", tmp_path / "others.jsonl"
    schema.write_text(YAML)
    append(
        source,
        customer(0, 1),
        *(order(n, 1) for n in range(1, 6)),
        order(6, 1, "chair"),
        order(20, 2, "chair"),
    )
    queries.write_text(
        f"lamps: {{query: ada lamp, limit: 3 per minute, sinks: 'jsonl:{lamps_file}'}}\n"
        "chairs: ada chair\n"
        "best: {query: lamp, top: 1, rank: recency}\n"
    )
    options = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    code = run([*map(str, ("watch", "--queries", queries, *options, "--sink", f"jsonl:{default_file}"))])
    assert code == 0, capsys.readouterr().err
    assert [line["query"] for line in lines(lamps_file)] == ["ada lamp"] * 3
    assert "lamps: 2 more results were held back" in capsys.readouterr().err
    events = [(line["query"], line.get("event")) for line in lines(default_file)]
    assert events.count(("ada chair", None)) == 1
    assert events.count(("lamp", "enter")) == 5
    assert events.count(("lamp", "leave")) == 5


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "parquet"])
def test_an_alert_may_name_a_sink_of_the_job(tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/out"
    alerts = {"q": alert_of({"query": "ada lamp", "sinks": [address, f"jsonl:{tmp_path}/own.jsonl"]})}
    routing = Routing({address: parse_sink(address)}, alerts)
    routing.open(SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None))
    other = replace(result(2, 6.0), name="other")
    routing.write(1, [result(1, 5.0), other, result(3, 7.0)])
    routing.flush()
    routing.close()
    assert [line["id"] for line in lines(tmp_path / "own.jsonl")] == ["1", "3"]
    if kind == "jsonl":
        assert [line["id"] for line in lines(tmp_path / "out")] == ["1", "2", "3"]
    elif kind == "sqlite":
        with closing(sqlite3.connect(tmp_path / "out")) as connection:
            assert connection.execute("SELECT id FROM results ORDER BY id").fetchall() == [
                ("1",),
                ("2",),
                ("3",),
            ]
    else:
        assert pq.read_table(tmp_path / "out").column("id").to_pylist() == ["1", "2", "3"]


@pytest.mark.parametrize(
    "other", ["postgresql://bob@h/db", "postgresql://h:5432/db", "postgresql://h/db?table=results&patience=5"]
)
def test_two_spellings_of_one_database_are_rejected(other: str) -> None:
    """Each sink would skip the batches that the other has written."""
    alerts = {"q": alert_of({"query": "ada lamp", "sinks": other})}
    with pytest.raises(UsageError, match="write to one place: use one address"):
        Routing({"postgresql://ann@h/db": parse_sink("postgresql://ann@h/db")}, alerts)
    Routing({"postgresql://h/db": parse_sink("postgresql://h/db?table=more")}, alerts)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("parquet:{}", "parquet:{}/?every=1 s"),
        ("sqlite:{}", "sqlite:{}?table=results"),
        ("command:true {}", "command:true {}#most=1"),
    ],
)
def test_two_addresses_of_one_sink_are_rejected(tmp_path: Path, first: str, second: str) -> None:
    first, second = (address.format(tmp_path / "out") for address in (first, second))
    alerts = {"q": alert_of({"query": "ada lamp", "sinks": second})}
    with pytest.raises(UsageError, match=r"sinks .*/out and .*/out.* write to one place: use one address"):
        Routing({first: parse_sink(first)}, alerts)
    routing = Routing({}, {"q": alert_of({"query": "ada lamp", "sinks": first})})
    routing.open(SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None))
    routing.change(alerts)
    with pytest.raises(UsageError, match="write to one place"):
        routing.change(alerts | {"r": alert_of({"query": "ada lamp", "sinks": first})})
    routing.close()


def test_alerts_with_the_same_query_have_separate_limits_and_sinks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit of one alert does not affect the other; a shared sink gets the results of both."""
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    limited_file, all_file = tmp_path / "some.jsonl", tmp_path / "every.jsonl"
    schema.write_text(YAML)
    append(source, customer(0, 1), *(order(n, 1) for n in range(1, 6)))
    counts_by_kind = []
    for query in ("query: ada lamp", "query: lamp, top: 1, rank: recency", "pattern: customer c ; order o"):
        queries.write_text(
            f"pager: {{{query}, limit: 2 per minute, sinks: ['jsonl:{limited_file}', 'jsonl:{all_file}']}}\n"
            f"file: {{{query}, sinks: 'jsonl:{all_file}'}}\n"
        )
        options = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
        assert run([*map(str, ("watch", "--queries", queries, *options))]) == 0, capsys.readouterr().err
        counts = [
            Counter(line["name"] for line in lines(path) if line["op"] == "+")
            for path in (limited_file, all_file)
        ]
        counts_by_kind.append(counts)
        limited_file.unlink()
        all_file.unlink()
    assert counts_by_kind == [[{"pager": 2}, {"pager": 2, "file": 5}]] * 3


def test_queries_of_every_kind_have_sinks_and_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, source, queries = (tmp_path / name for name in ("shop.yaml", "in.jsonl", "queries.yaml"))
    pattern_file, sql_file, default_file = (
        tmp_path / "mine.jsonl",
        tmp_path / "sql.jsonl",
        tmp_path / "others.jsonl",
    )
    schema.write_text(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  visit: {attributes: {page: {type: integer, min: 1, max: 9}}}\n"
        "  orders: {attributes: {amount: integer}}\njoins: []\n"
    )
    rows = [("visit", {"page": 3}), ("visit", {"page": 3}), *(("orders", {"amount": n}) for n in (5, 6, 7))]
    append(source, *({"relation": name, "time": time, "row": row} for time, (name, row) in enumerate(rows)))
    pattern = "visit v ; orders o"
    queries.write_text(
        f"shown: {{pattern: {pattern}, limit: 3 per minute, "
        f"sinks: 'jsonl:{pattern_file}'}}\n"
        f"sql: {{sql: select all page from visit, limit: 1 per minute, sinks: 'jsonl:{sql_file}'}}\n"
    )
    options = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    code = run([*map(str, ("watch", "--queries", queries, *options, "--sink", f"jsonl:{default_file}"))])
    assert code == 0, capsys.readouterr().err
    assert [(line["query"], line["tuples"][1]["row"]) for line in lines(pattern_file)] == [
        (pattern, {"amount": amount}) for amount in (5, 5, 6)
    ]
    assert [line["tuples"][0]["row"] for line in lines(sql_file)] == [{"page": 3}]
    assert lines(default_file) == []
    errors = capsys.readouterr().err
    assert "shown: 3 more results were held back" in errors
    assert "sql: 1 more result was held back" in errors


def test_a_changed_query_file_is_reloaded_while_the_job_runs(tmp_path: Path) -> None:
    source, queries = tmp_path / "in.jsonl", tmp_path / "queries.yaml"
    lamps, chairs = tmp_path / "lamps.jsonl", tmp_path / "chairs.jsonl"
    append(source, customer(0, 1), order(1, 1), order(1, 1, "chair"))
    lamps_alert = f"lamps: {{query: ada lamp, sinks: 'jsonl:{lamps}'}}\n"
    queries.write_text(lamps_alert)
    alerts = read_alerts(queries)
    notes = Notes()
    routing = Routing({}, alerts)
    job = request(source, queries={name: alert.query for name, alert in alerts.items()}, sinks=())
    watch = opened(job, routing, notes=notes)

    def check(query: Query) -> None:
        plan_of(job.with_defaults(query.name, query), job.stream)

    reloading = Reloading(
        queries, alerts, file_state(queries), lambda _, new: routing.change(new), dict, check, notes.log
    )

    def change(text: str, now: int) -> None:
        queries.write_text(text)
        reloading.each_second(now, watch.control.submit)
        steps(watch)

    steps(watch)
    change("lamps: [", 2_000_000)
    assert "the queries are unchanged" in str(notes.lines)
    notes.lines.clear()
    change("lamps: nope<5 lamp\nmore: ada\nbad: ';'\n", 3_000_000)
    assert f"{queries}: lamps: no attribute 'nope'" in str(notes.lines)
    assert f"{queries}: bad: " in str(notes.lines)
    assert "the queries are unchanged" in str(notes.lines)
    assert [query.name for query in watch.standing_queries] == ["lamps"]
    change(f"{lamps_alert}chairs: {{query: ada chair, sinks: 'jsonl:{chairs}'}}\n", 4_000_000)
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


def test_a_query_file_that_changes_during_the_start_is_reloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start may take minutes, as it infers schemas and connects to servers."""
    queries, source, schema = tmp_path / "queries.yaml", tmp_path / "in.jsonl", tmp_path / "schema.yaml"
    queries.write_text("lamps: ada lamp\n")
    os.mkfifo(schema)
    append(source, customer(0, 1), order(1, 1))

    def change() -> None:
        with schema.open("w") as pipe:  # once the job reads its schema
            queries.write_text("lamps: ada lamp\nchairs: ada chair\n")
            pipe.write(YAML)

    options = ("--schema", schema, "--source", f"replay:{source}", "--engine", "local")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(change)
        assert run([*map(str, ("watch", "--queries", queries, *options))]) == 0
    assert "2 queries now, 1 change" in capsys.readouterr().err


def test_a_refused_change_of_alerts_keeps_the_state_of_limits(tmp_path: Path) -> None:
    state = StateDatabase(tmp_path / "state.db")
    sink_run = SinkRun("r", state, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None)
    alerts = {"q": alert_of({"query": "ada lamp", "limit": "1 per minute"})}
    routing = Routing({"collected": Collected()}, alerts)
    routing.open(sink_run)
    routing.write(1, [result(1, 5.0)])
    routing.flush()
    limits = SinkProgress(sink_run, "limits").read()
    change = {"query": "ada lamp", "limit": "2 per minute", "sinks": f"jsonl:{tmp_path}/none/x"}
    with pytest.raises(SinkError, match="there is no folder"):
        routing.change({"q": alert_of(change)})
    assert SinkProgress(sink_run, "limits").read() == limits != {}
    state.close()


@pytest.mark.parametrize("reloaded", [False, True])
def test_repeated_batches_go_where_they_went_before_the_alerts_changed(
    tmp_path: Path, reloaded: bool
) -> None:
    """The run is killed; the next process has other alerts, which the first may have read before the kill."""
    own, state = f"jsonl:{tmp_path}/own.jsonl", StateDatabase(tmp_path / "state.db")
    sink_run = SinkRun("r", state, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None)
    before = {
        name: alert_of({"query": "ada", **fields})
        for name, fields in {
            "own": {"sinks": own},
            "few": {"limit": "1 per minute"},
            "all": {},
            "same": {"limit": "1 per minute"},
        }.items()
    }
    after = {name: alert_of({"query": "ada", "sinks": own} if name == "all" else "ada") for name in before}
    after["same"] = before["same"]
    batch = [replace(result(n, 5.0), name=name) for n, name in enumerate(["own", "few", "all", "same"] * 2)]
    first, second = Collected(), Collected()
    routing = Routing({"collected": first}, before)
    routing.open(sink_run)
    routing.write(1, batch)
    if reloaded:
        routing.change(after)

    sink_run = dataclasses.replace(sink_run, repeating=True, end_callbacks=[])
    routing = Routing({"collected": second}, after)
    routing.open(sink_run)
    routing.write(1, batch)
    assert [found.id for found in second.results] == [found.id for found in first.results]
    sink_run.end_repetition()
    second.results.clear()
    routing.write(2, batch)
    assert [found.name for found in second.results] == ["own", "few", "own", "few"]
    routing.close()
    state.close()
    assert [line["name"] for line in lines(tmp_path / "own.jsonl")] == ["own", "own", "all", "all"]


def test_changed_alerts_do_not_need_batches_that_the_log_may_lose(tmp_path: Path) -> None:
    """The log is synced before results leave, so a loss of power may undo a batch without results."""
    state = StateDatabase(tmp_path / "state.db")
    sink_run = SinkRun("r", state, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None)
    routing = Routing({"collected": Collected()}, {})
    routing.open(sink_run)
    routing.write(1, [result(1, 5.0)])
    routing.write(2, [])
    routing.change({"q": alert_of({"query": "ada", "limit": "1 per minute"})})
    sink_run = dataclasses.replace(sink_run, repeating=True, end_callbacks=[])
    Routing({"collected": Collected()}, {}).open(sink_run)
    assert sink_run.held == 1
    state.close()


def test_repeated_results_of_a_removed_alert_go_to_no_other_sink(tmp_path: Path) -> None:
    state = StateDatabase(tmp_path / "state.db")
    sink_run = SinkRun("r", state, SCHEMA, match_names=False, wait=lambda _: True, tell=lambda _: None)
    routing = Routing(
        {"collected": Collected()}, {"q": alert_of({"query": "ada", "sinks": f"jsonl:{tmp_path}/q"})}
    )
    routing.open(sink_run)
    found = replace(result(1, 5.0), name="q")
    routing.write(1, [found])
    sink_run, collected = dataclasses.replace(sink_run, repeating=True, end_callbacks=[]), Collected()
    routing = Routing({"collected": collected}, {})
    routing.open(sink_run)
    routing.write(1, [found])
    sink_run.end_repetition()
    assert collected.results == []
    state.close()


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


def post_to_command(tmp_path: Path, failures: int, options: str) -> list[str]:
    """Posts results to a program that first fails ``failures`` times; returns the notes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    notes: list[str] = []
    sink = parse_sink(f"command:{sys.executable} {script} {tmp_path} {failures}#{options}")
    sink_run = SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=notes.append)
    sink.open(sink_run)
    sink.write(1, [result(1, 5.0)])
    sink.flush()
    sink.close()
    return notes


def test_posts_include_updates_only_if_the_alert_requests_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files contain all updates, so that they can track the current results."""
    schema, source, queries = (tmp_path / name for name in ("schema.yaml", "in.jsonl", "queries.yaml"))
    without_updates, with_updates, all_events, command_line = (
        tmp_path / name for name in ("quiet", "told", "every", "asked")
    )
    schema.write_text(YAML)
    append(
        source, customer(1, 1), *(customer(time, 1, f"ada {time}") for time in (2, 3)), customer(4, 1, "bob")
    )

    def program(path: Path) -> str:
        return f'command:sh -c "cat >> {path}"'

    queries.write_text(
        f"quiet: {{query: ada, sinks: ['{program(without_updates)}', 'jsonl:{all_events}']}}\n"
        f"told: {{query: ada, updates: true, sinks: '{program(with_updates)}'}}\n"
    )
    options = ("--schema", schema, "--source", f"replay:{source}?speed=1000000", "--engine", "local")
    assert run([*map(str, ("watch", "--queries", queries, *options))]) == 0, capsys.readouterr().err
    assert run([*map(str, ("watch", "ada", *options, "--sink", program(command_line)))]) == 0

    def ops(path: Path) -> list[str]:
        posts = path.read_bytes().replace(b"}{", b"}\n{").splitlines()
        return [event["op"] for post in posts for event in orjson.loads(post)["results"]]

    assert ops(without_updates) == ["+", "-"]
    assert ops(with_updates) == ["+", "~", "~", "-"]
    assert [line["op"] for line in lines(all_events)] == ["+", "~", "~", "-"]
    assert ops(command_line) == ["+", "-"]


def test_a_failing_command_is_retried_until_it_succeeds(tmp_path: Path) -> None:
    notes = post_to_command(tmp_path, 2, "attempts=4")
    assert len(notes) == 2
    assert "ended with 1: not yet; trying again" in notes[0]
    key, body = orjson.loads((tmp_path / "got.json").read_bytes())
    assert key == "r-1-0"
    assert [event["id"] for event in body["results"]] == ["1"]


def test_results_rejected_by_a_command_become_dead_letters(tmp_path: Path) -> None:
    dead_letters = tmp_path / "letters.jsonl"
    post_to_command(tmp_path, 9, f"attempts=2&letters={dead_letters}")
    (dead_letter,) = lines(dead_letters)
    assert dead_letter["reason"] == "ended with 1: not yet"
    assert dead_letter["result"]["id"] == "1"
    with pytest.raises(SinkError, match="not delivered"):
        post_to_command(tmp_path, 9, "attempts=1")


def test_a_missing_command_is_not_retried(tmp_path: Path) -> None:
    dead_letters = tmp_path / "letters.jsonl"
    notes: list[str] = []
    sink = parse_sink(f"command:/no/such/program#letters={dead_letters}")
    sink.open(SinkRun("r", None, SCHEMA, match_names=False, wait=lambda _: True, tell=notes.append))
    sink.write(1, [result(1, 5.0)])
    assert lines(dead_letters)[0]["reason"] == "No such file or directory"
    sink.close()
    assert len(notes) == 1


def test_a_command_is_retried_if_the_machine_cannot_start_it() -> None:
    program = HookProgram("true")
    limits = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (0, limits[1]))
    try:
        outcome = program.post(b"{}", "key")
    finally:
        setrlimit(RLIMIT_NOFILE, limits)
    assert (outcome.accepted, outcome.final, outcome.reason) == (False, False, "Too many open files")
    assert program.post(b"{}", "key").accepted


def test_a_command_gets_the_whole_post_if_the_search_is_killed(tmp_path: Path) -> None:
    """It must not take half a post, or none, for the whole one."""
    script, started, received = (tmp_path / name for name in ("script.py", "started", "received"))
    script.write_text(
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "(folder / 'started').write_text(str(os.getppid()))\n"
        "while os.getppid() == int((folder / 'started').read_text()):\n"
        "    time.sleep(0.01)\n"
        "(folder / 'part').write_text(str(len(sys.stdin.buffer.read())))\n"
        "(folder / 'part').rename(folder / 'received')\n"
    )
    post = f"HookProgram({f'{sys.executable} {script} {tmp_path}'!r}).post(b'x' * 1_000_000, 'key')"
    program = f"from skws.sinks.webhook import HookProgram; {post}"
    with subprocess.Popen([sys.executable, "-c", program]) as search:
        until(lambda: started.exists() and started.read_text())
        search.kill()
    until(received.exists)
    assert received.read_text() == "1000000"


def test_a_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "started"
    program = tmp_path / "hang.sh"
    program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {pid_file}\nwait\n")
    program.chmod(0o755)
    outcome = HookProgram(str(program), seconds=0.5).post(b"{}", "k")
    assert not outcome.accepted
    assert outcome.reason == "did not end within 0.5 s"
    until(lambda: has_ended(int(pid_file.read_text())))


def test_a_command_that_leaves_a_child_behind_has_ended() -> None:
    """The child holds the error output of the command open."""
    command = "sh -c 'echo begun >&2; sleep 3 & exit CODE'"
    assert HookProgram(command.replace("CODE", "0"), seconds=2.0).post(b"{}", "k").accepted
    outcome = HookProgram(command.replace("CODE", "3"), seconds=2.0).post(b"{}", "k")
    assert outcome.reason == "ended with 3: begun"


def test_only_the_end_of_the_error_output_is_remembered() -> None:
    program = HookProgram("sh -c 'head -c 100000000 /dev/zero >&2; echo broken >&2; exit 1'")
    before = getrusage(RUSAGE_SELF).ru_maxrss
    assert program.post(b"{}", "k").reason.endswith("broken")
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 50_000  # of 100,000 kilobytes


def test_all_errors_of_a_query_file_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    path.write_text("a: 7\nb: ada\nc: {query: ada, tops: 3}\n")
    with pytest.raises(ConfigurationError) as error:
        read_alerts(path)
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == ["a", "c"]
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigurationError, match="byte 0xFF is not UTF-8"):
        read_alerts(path)
