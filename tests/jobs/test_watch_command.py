"""The commands ``skws watch`` and ``skws query``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow.parquet as pq
import pytest

from skws.cli.main import run
from skws.jobs.control import ControlFolder, JobCommand
from skws.jobs.metrics import Metrics
from skws.spec.query_spec import Query
from tests.commands import REPLAY, SCHEMA, Skws
from tests.forked import forked_skws
from tests.jobs.watching import QUERY, YAML, append, customer, lines, numbered, order
from tests.places import ROOT
from tests.waiting import until

LOG = ("--log-format", "json", "--engine", "local")
ORDERED = "customer c ; order o where c.cid = o.cid"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schema and an empty stream, in which commands run."""
    (tmp_path / "schema.yaml").write_text(YAML)
    (tmp_path / "in.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a watch in a separate process; returns it when it has reported that it runs."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str, stdout: int | None = None) -> subprocess.Popen[str]:
        data = ("-s", "schema.yaml", "-S", "in.jsonl", "--engine", "local")
        process = subprocess.Popen(
            [*forked_skws(), "watch", *arguments, *data],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT)},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_watch_over_a_replay_gives_the_results_of_a_search(skws: Skws) -> None:
    options = ("tarantino", "travolta", "-s", SCHEMA, "-f", "jsonl", "--engine", "local")
    outcome = skws("watch", *options, "-S", f"replay:{REPLAY}", "--speed", "1e12")
    assert outcome.code == 0
    assert outcome.records == skws("search", *options, "-r", REPLAY).records
    assert "769 rows, 2 results" in outcome.err


def test_exit_codes_and_messages_of_watch(folder: Path, skws: Skws) -> None:
    (folder / "bad.yaml").write_text("relations: 1")
    (folder / "bad.jsonl").write_text("nonsense\n")
    (folder / "queries.yaml").write_text("- no names\n")
    options = ("-s", "schema.yaml", "-S", "in.jsonl")
    for code, message, arguments in (
        (2, "nothing to watch", options),
        (2, "did you mean 'item'", ("order.itm:x", *options)),
        (2, "sink nowhere", ("ada", *options, "--sink", "nowhere")),
        (3, "expected lines of 'name: keywords'", (*options, "--queries", "queries.yaml")),
        (2, "--format tree is for standard output", ("ada", *options, "-f", "tree", "-o", "x")),
        (2, "--format csv is for standard output", ("ada", *options, "-o", "x.csv")),
        (2, "x.log: unknown suffix .log", ("ada", *options, "-o", "x.log")),
        (2, "--speed needs", ("ada", *options, "--speed", "2")),
        (3, "bad.yaml", ("ada", "-s", "bad.yaml", "-S", "in.jsonl")),
        (4, "none.jsonl", ("ada", "-s", "schema.yaml", "-S", "none.jsonl")),
        (5, "bad.jsonl:1", ("ada", "-s", "schema.yaml", "-S", "replay:bad.jsonl")),
        (1, "cannot write", ("ada", *options, "-f", "jsonl", "-o", "schema.yaml/x")),
    ):
        outcome = skws("watch", *arguments, "--engine", "local")
        assert outcome.code == code, arguments
        assert message in outcome.err


@pytest.mark.check
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_watch_with_all_results_written(
    folder: Path, job: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    append(folder / "in.jsonl", *numbered(30))
    process = job(
        QUERY, "-f", "parquet", "-o", "out", "--metrics-file", "metrics.json", "--log-format", "json"
    )
    metrics_file = folder / "metrics.json"
    until(lambda: metrics_file.exists() and Metrics.from_json(metrics_file.read_bytes()).results == 30)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert pq.read_table(folder / "out").num_rows == 30
    assert Metrics.from_json(metrics_file.read_bytes()).state == "ended"
    events = [json.loads(line) for line in error.splitlines()]
    assert [event["event"] for event in events] == ["started", "ended", "interrupted"]
    assert events[1]["results"] == 30


def test_a_watch_without_a_reader_ends_before_its_next_result(
    folder: Path, job: Callable[..., subprocess.Popen[str]]
) -> None:
    append(folder / "in.jsonl", customer(1, 7), order(2, 7))
    process = job(QUERY, "-f", "jsonl", stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["query"] == QUERY
    process.stdout.close()
    assert process.wait(30) == 0


def test_a_json_log_contains_the_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.jsonl").write_text("nonsense\n")
    with pytest.raises(SystemExit) as exit_info:
        run(["watch", "ada", "-s", "schema.yaml", "-S", "replay:bad.jsonl", *LOG])
    assert exit_info.value.code == 5
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(event["level"], event["event"]) for event in events][-1] == ("error", "failed")
    assert "bad.jsonl:1" in events[-1]["message"]


def test_query_commands_change_a_running_watch(
    folder: Path, job: Callable[..., subprocess.Popen[str]], skws: Skws
) -> None:
    append(folder / "in.jsonl", customer(1, 7), order(2, 7))
    job("chair", "-f", "jsonl", "-o", "out.jsonl", "--checkpoint", "kept", "--metrics-file", "metrics.json")
    control, metrics_file = folder / "kept" / "control", folder / "metrics.json"
    # Results of a query among earlier tuples are its snapshot.
    until(lambda: metrics_file.exists() and Metrics.from_json(metrics_file.read_bytes()).tuples == 2)
    control_option = ("--control", str(control))
    for code, message, words in (
        (0, "", ("add", "lamps", "ada", "lamp", "--wait", "30")),
        (2, "already a query 'lamps'", ("add", "lamps", "other")),
        (2, "did you mean 'lamps'", ("remove", "lmps")),
        (2, "", ("add", "wrong", "--pattern", "customer c ; ; order o")),
        (2, "", ("add", "wrong", "lamp", "--pattern", ORDERED)),
        (0, "", ("add", "ordered", "--pattern", ORDERED, "--wait", "30")),
        (0, "", ("remove", "chair")),
    ):
        outcome = skws("query", *words, *control_option)
        assert (outcome.code, message in outcome.err) == (code, True), words
    # The command does not wait for the removal.
    until(
        lambda: (
            skws("query", "list", *control_option).out == f"lamps: ada lamp\nordered: pattern: {ORDERED}\n"
        )
    )
    query = {"name": "lamps", "query": "ada lamp", "max_size": 5, "kind": "keywords"}
    assert skws("query", "list", *control_option, "--format", "jsonl").records[0] == query
    until(
        lambda: (
            [(line["query"], line.get("snapshot")) for line in lines(folder / "out.jsonl")]
            == [(QUERY, True), (ORDERED, True)]
        ),
    )


def test_a_control_folder_and_an_output_with_a_long_name_are_refused(folder: Path, skws: Skws) -> None:
    name = f"{'x' * 300}.csv"
    listed = skws("query", "list", "--control", name)
    assert (listed.code, "no such folder" in listed.err) == (2, True)
    searched = skws("search", "ada", "-s", folder / "schema.yaml", "-r", folder / "in.jsonl", "-o", name)
    assert (searched.code, "cannot write to" in searched.err) == (1, True)


def test_query_commands_exclude_relations_and_report_ignored_parts(
    folder: Path, job: Callable[..., subprocess.Popen[str]], skws: Skws
) -> None:
    append(folder / "in.jsonl", customer(1, 7), order(2, 7))
    job("ada, lamp", "--without", "order", "-o", "out.jsonl", "--control", "c")
    control_option = ("--control", "c", "--wait", "30")
    until((folder / "c" / "queries.json").exists)
    for code, message, words in (
        (0, "ignored (not part of a word): '!'", ("add", "lamps", "ada lamp!")),
        (0, "", ("add", "alone", "ada", "--without", "order")),
        (2, "did you mean 'order'?", ("add", "wrong", "ada", "--without", "ordr")),
    ):
        outcome = skws("query", *words, *control_option)
        assert (outcome.code, message in outcome.err) == (code, True), words
    assert skws("query", "list", *control_option[:2]).out.startswith("ada, lamp -order:: ada, lamp -order:\n")
    until(lambda: len(lines(folder / "out.jsonl")) == 2)
    assert [line["query"] for line in lines(folder / "out.jsonl")] == ["ada lamp!", "ada -order:"]


def test_an_added_pattern_starts_with_the_latest_records(
    folder: Path, job: Callable[..., subprocess.Popen[str]], skws: Skws
) -> None:
    append(folder / "in.jsonl", customer(1, 7), order(2, 7))
    job("chair", "-f", "jsonl", "-o", "out.jsonl", "--control", "control", "--metrics-file", "m.json")
    until(lambda: (folder / "m.json").exists() and '"tuples": 2' in (folder / "m.json").read_text())
    command = ("query", "add", "ordered", "--pattern", ORDERED, "--control", "control")
    assert skws(*command, "--wait", "30").code == 0
    until(lambda: [line["query"] for line in lines(folder / "out.jsonl")] == [ORDERED])


def test_a_query_file_contains_keywords_and_patterns(folder: Path, skws: Skws) -> None:
    append(folder / "in.jsonl", customer(1, 7), order(2, 7))
    options = (
        "-s",
        "schema.yaml",
        "-S",
        "replay:in.jsonl?speed=1e9",
        "-f",
        "jsonl",
        "-q",
        "--engine",
        "local",
    )
    (folder / "more.yaml").write_text(f"both: {QUERY}\nordered: {{pattern: '{ORDERED}'}}\n")
    results = skws("watch", "--queries", "more.yaml", *options).records
    assert [result["query"] for result in results] == [QUERY, ORDERED]
    assert [result["labels"] for result in results[1]["tuples"]] == [["c"], ["o"]]
    for text in ("ordered: {patern: x}", "ordered: {pattern: 3}", "ordered: [x]", "3: x", "- x"):
        (folder / "more.yaml").write_text(text)
        outcome = skws("watch", "--queries", "more.yaml", *options)
        assert (outcome.code, "more.yaml: " in outcome.err) == (3, True)
    outcome = skws("watch", "--pattern", ORDERED, "--pattern", ORDERED, *options)
    assert (outcome.code, "there is already a query of this text" in outcome.err) == (2, True)
    (folder / "more.yaml").write_text(f"{QUERY}: other words\n")
    outcome = skws("watch", "--queries", "more.yaml", *options[:2], QUERY, *options[2:])
    assert (outcome.code, f"'{QUERY}' is the name of a query of --queries, too" in outcome.err) == (2, True)


def test_queries_that_cannot_be_answered_are_named_with_their_file(skws: Skws, folder: Path) -> None:
    (folder / "queries.yaml").write_text(f"good: {QUERY}\nstop: the\nplace: nosuch:ada\n")
    command = ("watch", "-s", "schema.yaml", "-S", "in.jsonl", "--queries", "queries.yaml", *LOG[2:])
    outcome = skws(*command)
    assert outcome.code == 3
    assert "queries.yaml: stop: no keyword is left" in outcome.err
    assert "queries.yaml: place: no relation or attribute 'nosuch'" in outcome.err
    (folder / "queries.yaml").write_text(f"good: {QUERY}\n")
    outcome = skws(*command, "nosuch:ada")
    assert (outcome.code, "queries.yaml" in outcome.err) == (2, False)


def test_a_query_that_its_file_gained_during_a_run_is_dropped_with_its_line(
    folder: Path, job: Callable[..., subprocess.Popen[str]]
) -> None:
    file, control = folder / "queries.yaml", ControlFolder(folder / "kept" / "control")

    def started() -> subprocess.Popen[str]:
        process = job("--queries", "queries.yaml", "--checkpoint", "kept", "--sink", "jsonl:out.jsonl")
        until((control.folder / "queries.json").exists)
        return process

    def have(*names: str) -> Callable[[], bool]:
        return lambda: tuple(query.name for query in control.standing_queries()) == names

    file.write_text("a: ada\n")
    process = started()
    until(have("a"))
    file.write_text("a: ada\nb: lamp\n")
    until(have("a", "b"))
    control.send(JobCommand.add(Query("chair", name="c")))
    until(have("a", "b", "c"))
    process.terminate()
    process.wait()
    file.write_text("a: ada\n")
    started()
    until(have("a", "c"))


def test_query_commands_without_a_job_are_reported(folder: Path, skws: Skws) -> None:
    assert skws("query", "list", "--control", "none").code == 2
    (folder / "control").mkdir()
    for code, message, words in (
        (4, "", ("list",)),
        (1, "no answer from the job within 0.05 s", ("remove", "a", "--wait", "0.05")),
        (0, "queued for the job", ("remove", "a", "--wait", "0")),
        (2, "NAME is empty", ("add", " ", "ada")),
    ):
        outcome = skws("query", *words, "--control", "control")
        assert (outcome.code, message in outcome.err) == (code, True), words


def status_of(url: str, host: str) -> int:
    """The status of a request with ``host`` in its Host header."""
    try:
        with urlopen(Request(url, headers={"Host": host})) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_metrics_are_served_for_prometheus(folder: Path, job: Callable[..., subprocess.Popen[str]]) -> None:
    append(folder / "in.jsonl", *numbered(30), order(999, 1, "chair"), customer(1001, 5, op="-"))
    process = job(QUERY, "--queries", "more.yaml", "-f", "jsonl", "-o", "o.jsonl", "--metrics-port", "0")
    (folder / "more.yaml").write_text('"li\\"ne": lamp 3\n')
    assert process.stderr is not None
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
    assert url is not None

    def read_metrics() -> str:
        try:
            with urlopen(url[0]) as response:
                return str(response.read().decode())
        except OSError:
            return ""

    until(lambda: 'skws_query_results_total{query="ada lamp"} 30' in read_metrics())
    text = read_metrics()
    for line in (
        'skws_relation_tuples_total{relation="order"} 31',
        'skws_relation_tuples_total{relation="customer"} 30',
        'skws_query_retractions_total{query="ada lamp"} 1',
        'skws_query_results_total{query="li\\"ne"}',
        'skws_latency_seconds{quantile="0.99"}',
        'skws_stage_seconds_total{stage="engine"}',
    ):
        assert line in text
    for name in ("late", "bad_records", "deletions", "tuples"):
        assert f"skws_{name}_total{{" in text
    for path in (url[0], f"{url[0]}.json"):
        for host, status in (
            ("evil.example", 403),
            ("evil.example:80", 403),
            ("", 403),
            ("localhost:1", 200),
        ):
            assert status_of(path, host) == status
    with urlopen(f"{url[0]}.json") as answer:
        metrics = Metrics.from_json(answer.read())
    assert (metrics.late, metrics.deletions, metrics.retractions, metrics.state) == (0, 1, 1, "running")
    assert {stage.name for stage in metrics.stages} == {"read", "journal", "engine", "sinks"}
    assert all(stage.seconds > 0 and 0 <= stage.busy <= 1 for stage in metrics.stages)
    pattern = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{(\w+="([^"\\]|\\.)*",?)*\})? -?[\d.e+-]+)')
    assert [line for line in text.splitlines() if not pattern.fullmatch(line)] == []
