"""No command writes control characters of queries, data, file names or errors to a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Final

import pytest

from skws.jobs.metrics import Metrics, RelationMetrics, ResultMetrics
from skws.jobs.prometheus import text as prometheus_text
from skws.sinks.base import Destination
from skws.sinks.text import UNSAFE, escaped, visible, visible_lines
from skws.spec.enums import OutputFormat
from tests.commands import Skws, on_a_terminal, process

CONTROLS: Final = "\x1b[2J\x07\x9b31m\u202e\u2066\r\x7f\x85\u2028\u061c\x0b"
TYPED_CONTROLS: Final = CONTROLS.replace("[", "")
"""For keywords, which must not contain a bracket."""
RAW: Final = {chr(code) for code in UNSAFE} - {"\n"}
SCHEMA: Final = """
version: 1
window: 1 hour
relations:
  post:
    attributes: {id: integer, who: integer, body: text, at: timestamp}
    key: [id]
    search: [body]
    time: at
  user:
    attributes: {uid: integer, name: text, at: timestamp}
    key: [uid]
    search: [name]
    time: at
joins:
  - {name: wrote, on: post.who = user.uid}
"""


def assert_printable(text: str) -> None:
    controls = RAW & set(text)
    assert not controls, ascii(text[max(min(map(text.find, controls)) - 60, 0) :][:160])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A schema and a replay with control characters, in a folder with control characters in its name."""
    unsafe_folder = tmp_path / CONTROLS.replace("\x85", "").replace("\u2028", "")
    unsafe_folder.mkdir()
    (unsafe_folder / "schema.yaml").write_text(SCHEMA)
    rows = [
        {"relation": "user", "time": 1, "row": {"uid": 1, "name": f"ada {CONTROLS} lovelace", "at": 1}},
        {
            "relation": "post",
            "time": 2,
            "row": {"id": 1, "who": 1, "body": f"{CONTROLS}lamp{CONTROLS}\nnext", "at": 2},
        },
        {"relation": "post", "time": 3, "row": {"id": 2, "who": f"{CONTROLS}", "body": "bad", "at": 3}},
        {"relation": f"{CONTROLS}", "time": 4, "row": {}},
    ]
    (unsafe_folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (unsafe_folder / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    return unsafe_folder


PATTERN: Final = f'"lamp{TYPED_CONTROLS}" a ; "ada" b where a.who = b.uid'
COMMANDS: Final = {
    "search as a table": (
        "search",
        f"ada{TYPED_CONTROLS}",
        f"lamp{TYPED_CONTROLS}",
        "--format",
        "table",
        "-r",
    ),
    "search as trees": ("search", "ada lamp", "--format", "tree", "-r"),
    "search without results": ("search", f"nobody{TYPED_CONTROLS} lampp", "-r"),
    "ignored words": ("search", f"the{TYPED_CONTROLS} {TYPED_CONTROLS} lamp", "-r"),
    "an invalid query": ("search", f"nowhere:lamp{TYPED_CONTROLS}", "-r"),
    "the best result": ("search", f"ada{TYPED_CONTROLS} lamp", "--top", "1", "-r"),
    "a pattern": ("search", "--pattern", PATTERN, "-r"),
    "a pattern as trees": ("search", "--pattern", PATTERN, "--format", "tree", "-r"),
    "an invalid pattern": ("search", "--pattern", f"a ; {TYPED_CONTROLS}", "-r"),
    "explain": ("explain", f"ada{TYPED_CONTROLS} lamp", "-r"),
    "explain as DOT": ("explain", f"ada{TYPED_CONTROLS} lamp", "--format", "dot"),
    "explain as SVG": ("explain", f"ada{TYPED_CONTROLS} lamp", "--format", "svg"),
    "explain a pattern": ("explain", "--pattern", PATTERN),
    "explain a pattern as DOT": ("explain", "--pattern", PATTERN, "--format", "dot"),
    "networks": ("networks", f'ada "lamp{TYPED_CONTROLS}"'),
    "networks as JSON": ("networks", f'ada "lamp{TYPED_CONTROLS}"', "--format", "json"),
    "windows": ("windows", "open when body:'lamp' close when name:'ada' per at", "-r"),
    "windows of texts": (
        "windows",
        f"open when body != '{CONTROLS}' close when name = '{CONTROLS}' per name",
        "-r",
    ),
    "windows as DOT": ("windows", f"open when body = '{CONTROLS}' close when name = 'x'", "--format", "dot"),
    "windows as SVG": ("windows", f"open when body = '{CONTROLS}' close when name = 'x'", "--format", "svg"),
    "a check of windows": (
        "windows",
        f"every open when body = '{CONTROLS}' close when name = 'x'",
        "--check",
    ),
    "invalid windows": ("windows", f"open when {CONTROLS}", "-r"),
    "bounds": ("bounds", "check", f"select body from post where body = '{CONTROLS}'"),
    "invalid bounds": ("bounds", "check", f"select {CONTROLS}"),
    "schema show": ("schema", "show"),
    "schema as DOT": ("schema", "show", "--format", "dot"),
    "schema check": ("schema", "check"),
    "no such file": ("search", "x", "-r", f"{CONTROLS}.jsonl"),
    "no such option": ("search", f"--{CONTROLS}"),
    "no such command": (f"{CONTROLS}",),
    "no such format": ("search", "x", "--format", f"{CONTROLS}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_writes_control_characters(
    name: str, folder: Path, skws: Skws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *arguments = COMMANDS[name]
    if arguments and arguments[-1] == "-r":
        arguments += [str(folder / ("good.jsonl" if command == "explain" else "in.jsonl"))]
    arguments += {
        "search": ["--engine", "local", "--on-error", "skip"],
        "windows": ["--on-error", "skip"],
    }.get(command, [])
    schema = [str(folder / "schema.yaml")]
    arguments += schema if command == "schema" else ["--schema", *schema]
    if command == "bounds":
        (tmp_path / "q.sql").write_text(arguments[1])
        arguments[1] = "q.sql"
    outcome = skws(command, *arguments)
    assert outcome.out + outcome.err
    expected_code = 4 if name == "no such file" else 2 if "invalid" in name or "no such" in name else 0
    assert outcome.code == expected_code, outcome.err
    assert_printable(outcome.out)
    assert_printable(outcome.err)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_watch_writes_no_control_characters(
    log_format: str, folder: Path, skws: Skws, tmp_path: Path
) -> None:
    (tmp_path / "more.yaml").write_text(
        json.dumps({f"name{CONTROLS}": f"ada{TYPED_CONTROLS}", "wrong": "lamp"})
    )
    outcome = skws(
        *("watch", f"ada{TYPED_CONTROLS} lamp", "--schema", folder / "schema.yaml", "--engine", "local"),
        *("--source", f"replay:{folder / 'in.jsonl'}?speed=1e9", "--queries", tmp_path / "more.yaml"),
        *("--log-format", log_format, "--on-error", "skip", "--metrics-file", tmp_path / "m.json"),
    )
    assert "lamp" in outcome.out
    assert "bad" in outcome.err
    assert_printable(outcome.out)
    assert_printable(outcome.err)
    assert_printable((tmp_path / "m.json").read_text())


@pytest.mark.parametrize("output_format", [OutputFormat.JSONL, OutputFormat.CSV])
def test_data_formats_on_a_terminal_have_no_control_characters(
    output_format: OutputFormat, folder: Path
) -> None:
    command = (
        *("search", "ada lamp", "--schema", folder / "schema.yaml", "-r", folder / "in.jsonl", "--quiet"),
        *("--engine", "local", "--on-error", "skip", "--format", output_format),
    )
    output = on_a_terminal(*command, COLUMNS="200").replace("\r\n", "\n")
    piped = process(*command).out
    lines = [line for line in output.splitlines() if "lamp" in line]
    assert lines
    assert_printable("\n".join(lines))
    if output_format is OutputFormat.JSONL:
        assert [json.loads(line) for line in lines] == [
            json.loads(line) for line in piped.split("\n") if line
        ]
    else:
        row = next(csv.DictReader(io.StringIO(piped, newline="")))
        assert any(CONTROLS in str(output["row"].get("body")) for output in json.loads(row["tuples"]))


def test_metrics_have_no_control_characters() -> None:
    name = f'a\\b"{CONTROLS}\nc'
    metrics = Metrics(
        *(
            0.0,
            "running",
            "local",
            name,
            1.0,
            1,
            1.0,
            1,
            0,
            0,
            0,
            1.0,
            1,
            1,
            1,
            1,
            0,
            0,
            None,
            name,
            None,
            None,
        ),
        relations=(RelationMetrics(name, 1, 1.0),),
        queries=(ResultMetrics(name, name, 1, 0, 1.0),),
    )
    assert_printable(prometheus_text(metrics))
    assert 'relation="a\\\\b\\"␛[2J' in prometheus_text(metrics)
    assert '\\nc"} 1' in prometheus_text(metrics)
    assert_printable(metrics.to_json().decode())
    assert Metrics.from_json(metrics.to_json()) == metrics


def test_escaped_json_has_the_same_values() -> None:
    characters = "".join(map(chr, [*range(0x250), *range(0x600, 0x620), *range(0x2000, 0x2070), 0x1F3AC]))
    raw = json.dumps({"a": characters}, ensure_ascii=False).encode()
    assert json.loads(escaped(raw)) == {"a": characters}
    assert_printable(escaped(raw).decode())
    assert_printable(escaped(characters.encode()).decode().replace("\t", ""))
    assert escaped(b"plain \t\n") == b"plain \t\n"


def test_messages_keep_only_line_feeds() -> None:
    assert visible_lines(f"a\n{CONTROLS}\nb").count("\n") == 2
    assert "\n" not in visible("a\nb")
    assert_printable(visible_lines(CONTROLS + "\udcff"))


def test_output_to_a_file_is_not_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        Destination(file, "out").write(CONTROLS.encode())
    assert (tmp_path / "out").read_bytes().decode() == CONTROLS
