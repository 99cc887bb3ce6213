"""Every documented exit code, with messages that name the cause and without a traceback."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skws.extras import SOURCES
from tests.commands import IDS, LOCAL, REPLAY, SCHEMA, SEARCH, Skws, on_a_terminal, process, python
from tests.queries.counted import installed


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, (), "Usage: skws"),
        (2, ("searhc",), "Did you mean 'search'?"),
        (2, ("search",), "no data: expected SOURCE"),
        (2, ("search", "x1"), "x1: no such file or folder; expected SOURCE before the query"),
        (2, ("search", REPLAY, "x1", "-r", REPLAY, "-S", REPLAY), "expected one of them"),
        (2, ("search", "kafka://h/t", "x1"), "use skws watch"),
        (2, ("search", "-", "x1"), "use skws watch"),
        (2, ("search", "x", "-r", "postgresql://ann:s3cret@h/db"), "give a database as SOURCE"),
        (4, ("watch", "x", "-S", "shop.sqlite"), "no such SQLite file"),
        (2, ("search", "--", "x1", "-x2", *LOCAL), "everything after -- is the query"),
        (2, ("search", "-s", SCHEMA, "-r", REPLAY), "expected keywords after SOURCE, or --pattern TEXT"),
        (2, (*SEARCH, "--format", "xml"), "'xml' is not one of"),
        (2, (*SEARCH, "--mesh", "wood"), "'wood' is not one of"),
        (2, (*SEARCH, "--purge", "eager"), "--mesh full, partial or forest"),
        (2, (*SEARCH, "--mesh", "forest", "--no-demand"), "--mesh full"),
        (2, (*SEARCH, "--limit", "0"), "expected a number above 0, or all"),
        (2, (*SEARCH, "--window", "20 minuts"), "did you mean 'minute'?"),
        (2, (*SEARCH, "--format", "parquet"), "--format parquet needs --output"),
        (2, (*SEARCH, "--index", "x.index"), "--index needs a database"),
        (2, (*SEARCH, "--dead-letters", "x.jsonl"), "--dead-letters needs --on-error dead-letter"),
        (2, (*SEARCH, "--on-error", "skip", "--dead-letters", "x"), "--dead-letters needs --on-error"),
        (2, (*SEARCH, "--master", "local[2]"), "--master needs --engine spark"),
        (2, ("search", "the", *LOCAL), "no keyword is left"),
        (2, ("search", "actr:travolta", *LOCAL), "did you mean 'actor'?"),
        (2, ("search", "\udcff", *LOCAL), "not valid UTF-8"),
        (
            2,
            ("search", "a1", "-s", SCHEMA, "-r", REPLAY, "--lateness", "1 s", "--engine", "spark"),
            "--lateness needs --engine local",
        ),
        (2, ("search", "a1", "-s", SCHEMA, "-r", REPLAY, "--master", "host"), "spark://HOST:PORT"),
        (3, ("search", "x1", "-s", "no.yaml", "-r", REPLAY), "no.yaml: no such file"),
        (4, ("search", "x1", "-s", SCHEMA, "-r", "no.jsonl", "--engine", "local"), "no.jsonl: no such file"),
        (1, (*SEARCH, "--output", "/nowhere/x"), "cannot write to /nowhere/x"),
        (1, (*SEARCH, "--output", "/"), "it is a directory"),
        (0, ("--help",), ""),
        (0, ("search", "--help"), ""),
    ],
)
def test_errors_have_their_exit_code_and_message(
    skws: Skws, code: int, arguments: tuple[object, ...], message: str
) -> None:
    outcome = skws(*arguments)
    assert outcome.code == code
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert code == 0 or outcome.out == ""


def test_an_invalid_option_value_is_reported_with_the_choices(skws: Skws) -> None:
    message = skws(*SEARCH, "--format", "xml").err
    assert message.startswith("skws: Invalid value for '--format' / '-f': 'xml' is not one of 'table', ")


@pytest.mark.parametrize(("code", "option"), [(3, "--schema"), (0, "--replay"), (1, "--output")])
def test_typer_does_not_check_whether_files_are_readable(
    skws: Skws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, option: str
) -> None:
    forbidden = tmp_path / "forbidden.jsonl"
    forbidden.touch()
    # Typer would check with os.access and exit with 2. The tests may run as root, which may read all files.
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != str(forbidden))
    assert skws(*SEARCH, option, forbidden).code == code


def test_version_is_printed(skws: Skws) -> None:
    assert skws("--version").out.startswith("skws 0.")


def test_unwritable_output_fails_before_the_replay_is_read(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{nonsense\n")
    command = (*SEARCH, "--replay", tmp_path / "bad.jsonl", "--on-error", "fail")
    assert skws(*command).code == 5
    assert skws(*command, "--output", "/nowhere/x").code == 1


def test_an_unexpected_error_is_one_line_without_skws_debug(
    skws: Skws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error is raised by a source of another package."""
    installed(tmp_path, "broken", {SOURCES: {"broken": "broken_source:source"}})
    (tmp_path / "broken_source.py").write_text("def source(text):\n    raise RuntimeError('went\\nwrong')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ("watch", "-s", SCHEMA, "--source", "broken:x", "zebra")
    outcome = skws(*command)
    assert outcome.code == 1
    assert "skws: unexpected RuntimeError: went" in outcome.err
    assert "SKWS_DEBUG=1" in outcome.err
    monkeypatch.setenv("SKWS_DEBUG", "1")
    with pytest.raises(RuntimeError):
        skws(*command)


@pytest.mark.check
@pytest.mark.parametrize("arguments", [SEARCH, ("--help",), ("--version",)])
def test_a_full_disk_is_reported_in_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as device:
        outcome = process(*arguments, stdout=device)
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert outcome.err.startswith("skws: cannot write to standard output")
    assert outcome.err.endswith(": No space left on device\n")


@pytest.mark.parametrize(
    ("redirection", "code", "message", "line_count"),
    [
        ("<&-", 0, "", len(IDS)),
        (">&-", 1, "cannot write to standard output", 0),
        ("2>&-", 0, "", len(IDS)),
        ("| true; exit ${PIPESTATUS[0]}", 0, "", 0),  # a reader that stops early is not a failure
    ],
)
def test_only_a_closed_standard_output_is_an_error(
    redirection: str, code: int, message: str, line_count: int
) -> None:
    command = shlex.join([sys.executable, "-m", "skws", *map(str, SEARCH), "--format", "jsonl", "-q"])
    process = subprocess.run(
        ["bash", "-c", f"{command} {redirection}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert process.returncode == code
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stdout.count("\n") == line_count


def test_an_interrupt_exits_with_code_130(tmp_path: Path) -> None:
    pipe = tmp_path / "stream.jsonl"
    os.mkfifo(pipe)  # the search waits for its writer
    # A shell starts background commands, possibly these tests, with interrupts ignored.
    setup = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program = f"{setup}from skws.cli import main; main()"
    command = (sys.executable, "-c", program, "search", "x1", "-s", str(SCHEMA), "-r", str(pipe))
    with (
        subprocess.Popen(
            [*command, "--engine", "local"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        pipe.open("wb"),  # opens as soon as the search has opened it
    ):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "skws: interrupted\n")


def test_an_interrupt_while_modules_load_exits_with_code_130() -> None:
    script = """
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from skws.cli import main
main()
"""
    assert python("-c", script) == (130, "", "skws: interrupted\n")


_COMMANDS = [list(map(str, SEARCH)), ["--help"], ["networks", "nolan", "-s", str(SCHEMA)]]
_FOR_SOURCES = "from skws.sources.addresses import parse_source; parse_source('x'); parse_source('replay:x')"


@pytest.mark.check
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (
            f"from skws.cli.main import run; [run(one) for one in {_COMMANDS!r}]",
            "pandas textual rich.console",
        ),
        (_FOR_SOURCES, "psycopg2 confluent_kafka pyarrow"),
        ("import skws.jobs.local, skws.cli.watch", "sqlglot"),
    ],
)
def test_commands_load_no_unneeded_libraries(code: str, heavy: str) -> None:
    unwanted = {*heavy.split(), "pyspark", "pyarrow.parquet", "z3", "networkx", "lark"}
    outcome = python("-c", f"import sys; {code}; print({unwanted!r} & {{*sys.modules}})")
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "set()"), outcome.err


def test_a_file_that_another_user_hides_is_named(
    skws: Skws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in such a folder can neither be found nor missed."""
    original_stat, hidden = Path.stat, tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "replay.jsonl").write_bytes(REPLAY.read_bytes())

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.parent == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return original_stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    for arguments in (
        (*SEARCH, "-o", hidden / "results.jsonl"),
        ("query", "list", "--control", hidden / "control"),
        ("search", "tarantino", "-s", SCHEMA, "-r", hidden / "replay.jsonl", "--format", "csv"),
    ):
        assert "unexpected" not in skws(*arguments).err


def test_force_color_is_ignored_without_a_terminal() -> None:
    outcome = process(*SEARCH, "--format", "tree", FORCE_COLOR="1")
    assert "\x1b" not in outcome.out + outcome.err
    assert "*Tarantino*" in outcome.out


def test_a_terminal_shows_color_and_progress_unless_disabled() -> None:
    colored = on_a_terminal(*SEARCH, "--format", "tree")
    assert "\x1b[4;33mTarantino\x1b[0m" in colored
    assert colored.index("reading") < colored.index("Tarantino")
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        output = on_a_terminal(*SEARCH, "--format", "tree", **environment)
        assert "\x1b" not in output
        assert "*Tarantino*" in output
        assert "reading" not in output


SHOP_SCHEMA = """\
version: 1
name: shop
window: {window}
relations:
  person: {{attributes: {{pid: integer, name: text}}, key: [pid]}}
  order: {{attributes: {{oid: integer, pid: integer, item: text, code: string}}}}
  note: {{attributes: {{nid: integer, body: text, region: text}}, search: [body]}}
joins: {joins}
"""
RECORDS = """\
{"relation": "person", "time": "2026-01-01T00:00:00Z", "row": {"pid": 1, "name": "Ada"}}
{"relation": "order", "time": "2026-01-02T00:00:00Z", "row": {"oid":1,"pid":1,"item":"kettle","code":"KT-7"}}
{"relation": "note", "time": "2026-01-01T00:00:00Z", "row": {"nid":1,"body":"urgent","region":"north"}}
"""
JOINS = "[person.pid = order.pid]"


@pytest.mark.parametrize(
    ("query", "window", "joins", "options", "reason"),
    [
        (
            "ada kettle",
            "none",
            "[]",
            (),
            "no row has all of them, and the schema has no joins\nadd a join: skws schema join",
        ),
        ("ada urgent", "none", JOINS, (), "no joins lead from person ('ada') to note ('urgent')"),
        (
            "ada urgent -order:",
            "none",
            "[person.pid = order.pid, order.oid = note.nid]",
            (),
            "no joins lead from person ('ada') to note ('urgent'), apart from those left out",
        ),
        ("ada lamp", "none", JOINS, (), "no row matches 'lamp'"),
        (
            "ada KT-7",
            "none",
            JOINS,
            (),
            "order.code contains 'kt-7', but is not searched: give it type: text\n",
        ),
        (
            "ada north",
            "none",
            JOINS,
            (),
            "note.region contains 'north', but is not searched: add it to the search: list\n",
        ),
        (
            "ada kettle",
            "none",
            JOINS,
            ("--max-size", 1),
            "no row contains all of them; try a larger --max-size\n",
        ),
        (
            "ada kettle",
            "1 hour",
            JOINS,
            (),
            "within a window contains all of them; try a larger --window\n",
        ),
        ("kettle ; ada", "none", JOINS, (), "in this order\nin any order: skws search"),
        ("ada urgent", "none", JOINS, ("--lateness", "0 s"), "1 record came too late"),
    ],
)
def test_an_empty_search_reports_the_reason(
    skws: Skws, tmp_path: Path, query: str, window: str, joins: str, options: tuple[object, ...], reason: str
) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP_SCHEMA.format(window=window, joins=joins))
    (tmp_path / "day.jsonl").write_text(RECORDS)
    outcome = skws("search", tmp_path / "day.jsonl", query, "-s", tmp_path / "shop.yaml", *options)
    assert (outcome.code, outcome.out) == (0, "")
    assert reason in outcome.err
    assert ("--window" in outcome.err) == (window != "none")


def test_an_empty_watch_reports_the_reason_at_its_end(skws: Skws, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP_SCHEMA.format(window="100 days", joins=JOINS))
    (tmp_path / "day.jsonl").write_text(RECORDS)
    outcome = skws(
        "watch", "ada", "kettel", "-S", f"replay:{tmp_path}/day.jsonl?speed=1e9", "-s", tmp_path / "shop.yaml"
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.endswith(
        "ada kettel: no results: no row of the window matches 'kettel'; did you mean 'kettle'?\n"
    )
