"""All formats have the same results; text formats are safe, fit the screen and mark keywords."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.replay_search import Search
from skws.results.result import Result, ResultTuple
from skws.sinks.display import fair_share
from skws.sinks.formats import open_writer
from skws.sinks.parquet_sink import ParquetEncoder
from skws.sinks.text import fitted, instant, mark_keywords, shortened, visible
from skws.spec.enums import EngineName, OutputFormat
from skws.spec.job import Job
from skws_schema.yaml.load import load_schema, parse_schema
from skws_windows.window import Unbounded
from tests.commands import REPLAY, SCHEMA

ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def movie_results(query: str = "tarantino travolta") -> tuple[Plan, list[Result]]:
    search = Search(Job.search(query, load_schema(SCHEMA), REPLAY, engine=EngineName.LOCAL))
    assert search.plan is not None
    return search.plan, list(search.results())


class Terminal(io.BytesIO):
    """Records the output to a terminal."""

    def isatty(self) -> bool:
        return True


def output_of(
    kind: str, plan: Plan, results: list[Result], *, color: bool = False, terminal: bool = False
) -> str:
    out = Terminal() if terminal else io.BytesIO()
    with open_writer(OutputFormat(kind), None, plan, out, color=color) as writer:
        for result in results:
            writer.write(result)
    return out.getvalue().decode()


def from_csv(text: str) -> list[dict[str, Any]]:
    results = []
    for record in csv.DictReader(io.StringIO(text)):
        result: dict[str, Any] = dict(record)
        for name in ("start", "end", "at"):
            result[name] = float(record[name]) if record[name] else None
        for name in ("tuples", "joins", "snapshot"):
            result[name] = orjson.loads(record[name])
        result["changed"] = orjson.loads(record["changed"]) if record["changed"] else None
        results.append(result)
    return results


def from_parquet(path: Path) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    for result in results:
        for tuple_ in result["tuples"]:
            tuple_["row"] = orjson.loads(tuple_["row"])
            assert (tuple_.pop("labels"), tuple_.pop("position")) == (None, None)  # of patterns
        result["joins"] = [[j["left"], j["right"], j["name"]] for j in result["joins"]]
        result["changed"] = orjson.loads(result["changed"]) if result["changed"] else None
    return results


def expected_records(results: list[Result]) -> list[dict[str, Any]]:
    return [
        {"changed": None, "at": None, **orjson.loads(r.to_json()), "snapshot": r.snapshot} for r in results
    ]


@pytest.fixture
def static() -> tuple[Plan, list[Result]]:
    """A result of a snapshot, with unknown bounds, and its retraction."""
    schema = parse_schema("relations: {t: {attributes: {x: text, n: number, b: boolean}}}\njoins: []")
    row: dict[str, str | int | float | bool | None] = {"x": 'Ünicöde, "q"\nline', "n": None, "b": True}
    tuples = (ResultTuple.given("t", "t:1", ("line",), row),)
    results = [
        Result("+", "line", "line", "1", None, None, "t{line}", tuples, (), snapshot=True),
        Result("-", "line", "line", "1", None, 5.5, "t{line}", tuples, ()),
    ]
    return Plan(schema, parse_query("line", schema), Unbounded()), results


def test_data_formats_have_the_same_content(static: tuple[Plan, list[Result]], tmp_path: Path) -> None:
    insertion = static[1][0]
    changed = (("t:1", ("n",)),)
    updated = static[0], [insertion, replace(insertion, op="~", at=4.5, changed=changed, snapshot=False)]
    for number, (plan, results) in enumerate((movie_results(), static, updated)):
        lines = output_of("jsonl", plan, results).splitlines()
        assert [Result.from_json(line.encode()) for line in lines] == results
        assert from_csv(output_of("csv", plan, results)) == expected_records(results)
        file = tmp_path / f"{number}.parquet"
        with open_writer(OutputFormat.PARQUET, file, plan, io.BytesIO()) as writer:
            for result in results:
                writer.write(result)
        assert from_parquet(file) == expected_records(results)


def test_an_empty_result_has_at_most_a_header(tmp_path: Path) -> None:
    plan, _ = movie_results()
    assert [output_of(kind, plan, []) for kind in ("jsonl", "table", "tree")] == ["", "", ""]
    assert output_of("csv", plan, []).count("\n") == 1
    with open_writer(OutputFormat.PARQUET, tmp_path / "none.parquet", plan, io.BytesIO()):
        pass
    table = pq.read_table(tmp_path / "none.parquet")
    assert (table.num_rows, table.column_names[:4]) == (0, ["op", "name", "query", "id"])


def test_parquet_row_groups_are_written_incrementally(tmp_path: Path) -> None:
    _, results = movie_results("nolan caine")
    encoder = ParquetEncoder(row_group=2)
    parts = [encoder.begin(), *map(encoder.encode, results[:5]), encoder.end()]
    assert [bool(part) for part in parts] == [True, False, True, False, True, False, True]
    file = tmp_path / "many.parquet"
    file.write_bytes(b"".join(parts))
    groups = pq.ParquetFile(file).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [2, 2, 1]
    assert from_parquet(file) == expected_records(results[:5])


def test_a_failed_run_leaves_no_parquet_file(tmp_path: Path) -> None:
    plan, results = movie_results()

    def failing() -> None:
        with open_writer(OutputFormat.PARQUET, tmp_path / "x.parquet", plan, io.BytesIO()) as writer:
            writer.write(results[0])
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_tree_shows_joins_on_edges_and_marks_keywords() -> None:
    plan, results = movie_results()
    assert output_of("tree", plan, results[:1]).splitlines() == [
        "+ 1994-10-14T00:00:00Z .. 2031-08-07T00:00:00Z  "
        "director{tarantino} - movie{} - plays{} - actor{travolta}",
        "  director  did: 21, name: Quentin *Tarantino*",
        "  └─ movie [director.did = movie.did]  "
        "mid: 35, title: Pulp Fiction, did: 21, released: 1994-10-14T00:00:00Z",
        "     └─ plays [movie.mid = plays.mid]  mid: 35, aid: 29, role: Vincent Vega",
        "        └─ actor [plays.aid = actor.aid]  aid: 29, name: John *Travolta*",
    ]


def test_tree_branches_like_its_network(static: tuple[Plan, list[Result]]) -> None:
    plan, _ = static
    tuples = tuple(
        ResultTuple.given("t", f"t:{i}", (), {"x": f"w{i}", "n": None, "b": None}) for i in range(5)
    )
    joins = ((0, 1, "a"), (2, 1, "b"), (2, 3, "c"), (1, 4, "d"))
    lines = output_of(
        "tree", plan, [Result("+", "q", "q", "1", 0.0, None, "t{}", tuples, joins)]
    ).splitlines()
    assert lines == [
        "+ 1970-01-01T00:00:00Z ..  t{}",
        "  t  x: w0",
        "  └─ t [a]  x: w1",
        "     ├─ t [b]  x: w2",
        "     │  └─ t [c]  x: w3",
        "     └─ t [d]  x: w4",
    ]


def test_tree_shows_unknown_bounds(static: tuple[Plan, list[Result]]) -> None:
    first, second = output_of("tree", *static).split("\n\n")
    assert first.splitlines() == ["+ always  t{line}  (snapshot)", '  t  x: Ünicöde, "q" *line*, b: true']
    assert second.startswith("- until 1970-01-01T00:00:05.500000Z  t{line}\n")


@pytest.mark.parametrize("kind", ["tree", "table"])
def test_color_adds_only_escape_sequences(kind: str) -> None:
    plan, results = movie_results()
    colored, plain = (output_of(kind, plan, results, color=color) for color in (True, False))
    assert "\x1b[4;33m" in colored
    assert "\x1b[4;36m" in colored  # the second keyword has its own colour
    assert "\x1b" not in plain
    assert ESCAPE.sub("", colored) == plain.replace("*", "")


@pytest.mark.parametrize("columns", [20, 80, 120, 200])
def test_table_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    plan, results = movie_results("spielberg brody")
    lines = output_of("table", plan, results, terminal=True).splitlines()
    assert len(lines) == 1 + len(results)
    assert lines[0].split() == ["op", "time", "network", "match"]
    assert max(map(cell_len, lines)) <= max(columns, 70)
    assert all(line[4:24] == instant(r.start or 0) for line, r in zip(lines[1:], results, strict=True))
    if columns == 200:
        assert "Brody" in lines[1]


def test_a_wide_terminal_shows_whole_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "Quentin Tarantino - Pulp Fiction - Vincent Vega - John Travolta" in output_of(
        "table", *movie_results(), terminal=True
    )


def test_a_table_shows_columns_compared_by_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    included = output_of("table", *movie_results("tarantino travolta released>=1990-01-01"))
    assert "Quentin Tarantino - 1994-10-14T00:00:00Z - Pulp Fiction - " in included
    excluded = output_of("table", *movie_results("tarantino travolta -released<1990-01-01"))
    assert "Quentin Tarantino - Pulp Fiction - " in excluded


@pytest.mark.parametrize("columns", [20, 80])
def test_a_table_without_a_terminal_is_not_truncated(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    plan, results = movie_results("spielberg brody")
    text = output_of("table", plan, results)
    assert "…" not in text
    assert all(result.network in text for result in results)
    assert "Steven Spielberg - Jaws" in text
    assert "…" in output_of("table", plan, results, terminal=True)


def test_tree_and_table_escape_control_characters(static: tuple[Plan, list[Result]]) -> None:
    plan, _ = static
    row: dict[str, str | int | float | bool | None] = {"x": "\x1b[2Jline\r\u202egnp", "n": None, "b": None}
    unsafe = Result(
        "+", "line", "line", "1", 0.0, 1.0, "t{line}", (ResultTuple.given("t", "t:1", (), row),), ()
    )
    for kind in ("tree", "table"):
        text = output_of(kind, plan, [unsafe])
        assert not set(text) & set("\x1b\r\u202e")
        assert "␛[2J" in text


def test_instants_are_iso_times_or_seconds() -> None:
    assert instant(0.25) == "1970-01-01T00:00:00.250000Z"
    assert instant(-1) == "1969-12-31T23:59:59Z"
    assert instant(1e15) == "1000000000000000 s"


texts = st.text(st.characters(codec="utf-8"), max_size=60) | st.text("ab 漢字é", max_size=60)


@given(texts, st.data(), st.integers(4, 40))
def test_shortening_fits_and_keeps_the_first_span(text: str, data: st.DataObject, width: int) -> None:
    text = visible(text)
    start = data.draw(st.integers(0, max(len(text) - 1, 0)))
    spans = [(start, min(start + 1, len(text)), 0)] if text else []
    short, remaining = shortened(text, spans, width)
    assert cell_len(short) <= width
    assert [short[s:e] for s, e, _ in remaining] == [text[s:e] for s, e, _ in spans]
    assert cell_len(fitted(text, width)) == width


@given(texts)
def test_visible_text_keeps_positions_and_has_no_controls(text: str) -> None:
    output = visible(text)
    assert len(output) == len(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in output)


@given(texts, st.data())
def test_marks_do_not_change_the_text(text: str, data: st.DataObject) -> None:
    text = visible(text).replace("*", "")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    spans = [(a, b, i % 8) for i, (a, b) in enumerate(zip(cuts[::2], cuts[1::2], strict=False))]
    assert mark_keywords(text, spans, color=False).replace("*", "") == text
    assert ESCAPE.sub("", mark_keywords(text, spans, color=True)) == text


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 300))
def test_fair_share_is_the_largest_that_fits(widths: list[int], room: int) -> None:
    share = fair_share(widths, room)
    total = sum(min(w, share) for w in widths)
    assert total <= room or share == 3
    if any(w > share for w in widths) and share > 3:
        assert sum(min(w, share + 1) for w in widths) > room
