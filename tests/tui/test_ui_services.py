"""The services of the UI without a terminal, some compared with plain models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.theme import BUILTIN_THEMES

from docs.stepped_run import SteppedRun
from skws.data.batch import Record, RecordBatch
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.results.result import Result, ResultTuple
from skws.sinks.base import OutputError
from skws.spec.query_spec import Stream, completed, last_word
from skws_schema.errors import SchemaError, SkwsError, UsageError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_tui.screens.dialogs import ACTIONS
from skws_tui.screens.metrics_screen import resampled
from skws_tui.services.analyzer import QueryAnalyzer, change_text, fold_line, read_draft
from skws_tui.services.browsing import Page, RowPlace, page_of
from skws_tui.services.cells import wrap_cells
from skws_tui.services.live_rows import LatestRows
from skws_tui.services.result_buffer import ListOrder, ListSelection, ResultBuffer
from skws_tui.services.result_drawing import (
    Drawer,
    TableColumns,
    TuplePhrase,
    duration,
    plain_text,
    sentence,
    separator,
    when,
)
from skws_tui.services.user_files import (
    SavedSession,
    export,
    load_keymap,
    load_session,
    save_session,
    session_file,
)
from skws_tui.services.view import EventQueue, JobEvents, LogLine, View
from skws_tui.themes import palette
from skws_tui.widgets.result_pane import why_empty
from skws_tui.widgets.time_line import TimeLine, bars
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window, parse_window
from tests.strategies import examples
from tests.tui.ui import movies

SCHEMA = parse_schema(
    """
version: 1
relations:
  note: {attributes: {n: integer, words: text}, key: [n]}
  line: {attributes: {words: text}}
joins: []
"""
)
NUMBERS = st.one_of(st.integers(0, 3), st.none())
ROWS = st.tuples(st.integers(0, 1), NUMBERS, st.sampled_from(["red fox", "red", "fox fox", "blue"]))
WINDOWS: st.SearchStrategy[Window] = st.sampled_from([TimeWindow(5), CountWindow(4), Unbounded()])


def result(number: int, *, op: str = "+", query: str = "q", end: float | None = None) -> Result:
    member = ResultTuple.given("note", f"note:{number}", ("red",), {"n": number, "words": "red"})
    return Result(op, query, query, f"{number}", 0.0, end, "note{red}", (member,), ())  # type: ignore[arg-type]


@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=30), WINDOWS, st.integers(1, 12))
def test_the_latest_rows_equal_a_plain_list(
    steps: list[tuple[tuple[int, int | None, str], bool]], window: Window, size: int
) -> None:
    rows, kept_window = LatestRows(Stream(SCHEMA, window), capacity=8), CountWindow(8)
    records = [
        Record(relation, time, (number, words) if relation == 0 else (words,), delete)
        for time, ((relation, number, words), delete) in enumerate(steps)
    ]
    for start in range(0, len(records), size):
        batch = records[start : start + size]
        rows.add(RecordBatch.of(batch), batch[-1].time)
    model: list[tuple[int, int, int, tuple[object, ...]]] = []  # position, time, relation, row
    insertion_count = 0
    for record in records:
        keyed = record.relation == 0 and record.row[0] is not None
        if isinstance(window, CountWindow):
            model = [m for m in model if insertion_count - 1 < window.end(m[0])]
        model = [m for m in model if insertion_count - 1 < kept_window.end(m[0])]
        same_key = [
            m
            for m in model
            if m[2] == record.relation and (m[3][0] == record.row[0] if keyed else m[3] == record.row)
        ]
        if same_key and (record.delete or keyed):
            model.remove(same_key[0])
        if not record.delete:
            model.append((insertion_count, record.time, record.relation, record.row))
            insertion_count += 1
    shorter_window = window if isinstance(window, CountWindow) else kept_window
    model = [m for m in model if insertion_count - 1 < shorter_window.end(m[0])]
    if isinstance(window, TimeWindow):
        model = [m for m in model if records[-1].time < window.end(m[1])]
    assert len(rows) == len(model)
    assert rows.counts() == Counter(SCHEMA.relations[m[2]].name for m in model)
    assert [rows.latest(each.name) for each in SCHEMA.relations] == [
        [m[3] for m in model if m[2] == number] for number in range(len(SCHEMA.relations))
    ]
    texts = [str(m[3][-1]).split() for m in model]
    for word in ("red", "fox", "blue"):
        assert dict(rows.completions(word)).get(word, 0) == sum(word in text for text in texts)
    query = parse_query("red fox", SCHEMA)
    keyword_slots = list(enumerate(("red", "fox")))
    expected = Counter(
        (m[2], sum((word in str(m[3][-1]).split()) << slot for slot, word in keyword_slots)) for m in model
    )
    assert rows.node_counts(Matcher(query, SCHEMA)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("+-~m"), st.none() | st.integers(1, 40)), max_size=60
    )
)
@example([(0, "+", 1), (1, "+", None), (0, "~", 9)])
@example([(0, "+", 2), (0, "-", None), (1, "+", None)])
@example([(0, "+", 1), (1, "+", None), (1, "m", None), (0, "~", 5), (1, "m", None), (1, "m", None)])
@examples(60)
def test_the_buffer_holds_the_latest_results_and_drops_ended_ones_first(
    steps: list[tuple[int, str, int | None]],
) -> None:
    """``m`` is a move of the reader. After late records, a result that seems to have ended may be updated."""
    buffer = ResultBuffer(capacity=5)
    rows: list[list[Any]] = []  # number, end, ending, rows ended before it, final
    dropped_count = ended_count = 0
    for instant, (number, op, end) in enumerate(steps):
        if op == "m":
            buffer.settle()
            for row in rows:
                row[4] = row[2] is not None
            continue
        row_of_number = next((row for row in rows if row[0] == number), None)
        if op == "~" and row_of_number is None:
            continue  # an update follows its result
        buffer.take([result(number, op=op, end=end)])
        if op == "~":
            assert row_of_number is not None
            row_of_number[1:] = end, None, 0, False
        elif op == "+":
            rows = [row for row in rows if row is not row_of_number]
            rows.append([number, end, None, 0, False])
        elif row_of_number is not None and row_of_number[2] is None:
            ended_count += 1
            row_of_number[2:4] = "gone", ended_count
        if len(rows) > 5:
            ended_rows = [row for row in rows if row[2]]
            rows.remove(min(ended_rows, key=itemgetter(3)) if ended_rows else rows[0])
            dropped_count += 1
        buffer.expire(instant)
        due_rows = [row for row in rows if row[2] is None and row[1] is not None and row[1] <= instant]
        for row in sorted(due_rows, key=itemgetter(1)):
            ended_count += 1
            row[2:4] = "expired", ended_count
    listed = [(int(row.result.id), row.ending) for row in buffer.rows()]
    assert listed == [(row[0], row[2]) for row in reversed(rows)]
    assert buffer.dropped == dropped_count
    assert sum(buffer.counts(live=False).values()) == len(rows) == len(buffer)
    listed_live = buffer.rows(ListSelection(live=True))
    assert [int(row.result.id) for row in listed_live] == [row[0] for row in reversed(rows) if not row[4]]
    assert sum(buffer.counts(live=True).values()) == len(listed_live)


@pytest.mark.parametrize("is_moving", [False, True])
def test_a_day_of_results_needs_no_more_memory_than_an_hour(is_moving: bool) -> None:
    buffer = ResultBuffer(capacity=50)
    max_queued = 0
    for second in range(86_400 // 4):
        ends = (second + 3, second + 100_000)[second % 2]
        buffer.take([result(second, end=ends)])
        if second % 3 == 0:
            buffer.take([result(second - 9, op="-")])
        buffer.expire(second)
        if is_moving:
            buffer.settle()
        max_queued = max(max_queued, buffer.end_count)
    assert len(buffer) <= 50
    assert max_queued <= 4 * 50 + 1


@given(st.lists(st.tuples(st.sampled_from("+~-"), st.integers(0, 3), st.none() | st.integers(1, 20))))
@examples(60)
def test_a_row_expires_when_its_present_version_ends(steps: list[tuple[str, int, int | None]]) -> None:
    buffer = ResultBuffer()
    ends: dict[str, tuple[float | None, str | None]] = {}  # of the latest row of each result, and its ending
    for instant, (op, number, end) in enumerate(steps):
        buffer.take([result(number, op=op, end=end)])
        name = str(number)
        known_end, ending = ends.get(name, (None, None))
        if op in "+~":  # an update lets an ended result live again
            ends[name] = end, None
        elif name in ends:
            ends[name] = known_end, ending or "gone"
        buffer.expire(instant)
        ends = {
            name: (end, ending or ("expired" if end is not None and end <= instant else None))
            for name, (end, ending) in ends.items()
        }
        assert {row.result.id: row.ending for row in buffer.rows()} == {
            name: ending for name, (_, ending) in ends.items()
        }


def test_a_row_with_many_updates_needs_no_more_memory_than_others() -> None:
    buffer = ResultBuffer(capacity=50)
    buffer.take([result(1, end=1_000.0)])
    for update in range(2_000):
        buffer.take([result(1, op="~", end=1_000.0 + update)])
    assert buffer.end_count == 1
    for update in range(2_000):
        buffer.take([result(1, op="~", end=900.0 - update / 10)])
    assert buffer.end_count <= 4 * 50 + 1


def test_results_of_the_same_tuples_are_one_row() -> None:
    def joined(identity: str, name: str, op: str = "+") -> Result:
        ends = [ResultTuple.given("flight", "f1", ("x",), {}), ResultTuple.given("city", "c1", ("y",), {})]
        return Result(op, "q", "q", identity, 0.0, 9.0, "n", tuple(ends), ((0, 1, name),))  # type: ignore[arg-type]

    buffer = ResultBuffer()
    buffer.folding = True
    assert buffer.take([joined("1", "from"), joined("2", "to")]) == 1
    (row,) = buffer.rows()
    assert [one.id for one in row.alike] == ["1", "2"]
    assert buffer.rows(ListSelection(words="from")) == [row]
    buffer.take([joined("1", "from", "-")])
    assert (row.result.id, row.ending) == ("2", None)
    assert buffer.rows(ListSelection(words="from")) == []
    buffer.take([joined("2", "to", "-")])
    assert row.ending == "gone"
    buffer.take([joined("3", "to")])
    assert [one.ending for one in buffer.rows()] == [None, "gone"]
    buffer.take([joined("3", "to")])  # the same tuples join again
    assert [one.ending for one in buffer.rows()] == [None, "gone"]
    buffer.clear()
    # After an update, other results get their own row, which stays open when the updated one ends.
    buffer.take([joined("1", "from"), joined("1", "from", "~"), joined("2", "to")])
    buffer.take([joined("1", "from", "-"), joined("3", "via")])
    assert [[one.id for one in row.alike] for row in buffer.rows()] == [["2", "3"], ["1"]]
    separate_buffer = ResultBuffer()
    assert separate_buffer.take([joined("1", "from"), joined("2", "to")]) == 2


def test_the_buffer_filters_by_query_network_and_words() -> None:
    buffer = ResultBuffer()
    buffer.take([result(1, query="a"), result(2, query="b"), result(12, query="b")])
    assert [s.result.id for s in buffer.rows(ListSelection("b"))] == ["12", "2"]
    assert [s.result.id for s in buffer.rows(ListSelection(words="NOTE:1 red"))] == ["12", "1"]
    assert buffer.rows(ListSelection(network="other")) == []
    buffer.drop_query("b")
    assert [s.result.id for s in buffer.rows()] == ["1"]


@given(
    st.lists(st.tuples(st.text("ab界 ", min_size=1, max_size=40), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 120),
)
@examples(60)
def test_a_sentence_keeps_matches_and_its_width(parts: list[tuple[str, bool]], width: int) -> None:
    phrases = [TuplePhrase(text, (), matched=matched) for text, matched in parts]
    sentence_parts = sentence(phrases, width)
    match_count = sum(p.matched for p in phrases)
    assert sum(p.matched for p in sentence_parts) == match_count
    text = sentence_parts[0].text + "".join(
        separator(*pair) + pair[1].text for pair in pairwise(sentence_parts)
    )
    assert cell_len(text) <= max(width, 14 * match_count + 3)


def test_distinguishing_values_of_connecting_rows_remain() -> None:
    phrases = [
        TuplePhrase("Quentin Tarantino"),
        TuplePhrase("Pulp Fiction", matched=False, names=True),
        TuplePhrase("Vincent Vega of the town", matched=False),
        TuplePhrase("John Travolta"),
    ]
    assert [each.text for each in sentence(phrases, 55)] == [
        "Quentin Tarantino", "Pulp Fiction", "…", "John Travolta",
    ]  # fmt: skip
    assert [each.text for each in sentence(phrases, 40)] == [
        "Quentin Ta…", "Pulp Ficti…", "John Travol…",
    ]  # fmt: skip
    assert [each.text for each in sentence(phrases, 28)] == ["Quenti…", "Pulp F…", "John Tr…"]
    assert [each.text for each in sentence(phrases, 20)] == ["Quentin T…", "John Trav…"]


@given(st.text("ab界 ", max_size=60), st.integers(2, 40))
@examples(60)
def test_wrapped_lines_fit_and_keep_the_text(text: str, width: int) -> None:
    lines = wrap_cells(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_the_event_queue_notifies_once_until_emptied_and_drops_the_oldest() -> None:
    calls: list[int] = []
    queue = EventQueue(lambda: calls.append(1), capacity=3)
    for number in range(5):
        queue.put(results=[result(number)], lines=[LogLine(0, "info", f"{number}")])
    events = queue.take()
    assert calls == [1]
    assert ([r.id for r in events.results], events.dropped, len(events.lines)) == (["2", "3", "4"], 2, 5)
    assert queue.take() == JobEvents()
    queue.put(queries=())
    assert calls == [1, 1]
    assert queue.take().queries == ()


def test_results_of_removed_queries_are_dropped_even_if_late() -> None:
    view = View(movies())
    view.apply_events(JobEvents(queries=("q", "r"), results=[result(1), result(2, query="r")]))
    view.apply_events(JobEvents(queries=("r",)))
    view.apply_events(JobEvents(results=[result(3)]))
    assert [s.result.query for s in view.results.rows()] == ["r"]


def test_a_rejected_query_is_not_shown_as_the_state_of_the_engine() -> None:
    request = movies()
    view, job = View(request), SteppedRun(request, EventQueue())
    view.apply_events(JobEvents(lines=[LogLine(0, "info", "Spark is starting")]))
    view.note(LogLine(1, "error", "the query has no positive keyword"))
    assert why_empty(view, None, ListSelection(), (), job) == (
        "The engine is starting: Spark is starting.\nYou can already type keywords."
    )


@pytest.fixture
def live_rows() -> tuple[View, LatestRows, Schema]:
    request = movies()
    rows = LatestRows(replace(request.job.stream, window=Unbounded()))
    index = request.job.schema.index
    actors = [(1, "John Travolta"), (2, "Uma Thurman")]
    records = [Record(index["actor"], number, (number, name)) for number, name in actors]
    rows.add(RecordBatch.of(records), 2)
    return View(request), rows, request.job.schema


def test_an_analysis_counts_matches_and_suggests(live_rows: tuple[View, LatestRows, Schema]) -> None:
    view, rows, _ = live_rows
    analysis = view.analyzer.analyse("travlta actor:uma the", rows)
    assert [(slot.count, slot.correction) for slot in analysis.slots] == [(0, "travolta"), (1, "")]
    assert analysis.dropped == ("the",)
    assert view.analyzer.analyse("uma, thurman!", rows).ignored == (",", "!")
    assert "'~' is only allowed at the end of a word" in view.analyzer.analyse("u~ma", rows).fault
    assert [slot.count for slot in view.analyzer.analyse("travolta -actor:", rows).slots] == [0]
    assert analysis.corrected == "travolta actor:uma the"
    assert view.analyzer.analyse("(uma", rows).fault
    assert view.analyzer.analyse("travolta actor.aid<2", rows).restricting == ("actor.aid<2",)
    second_analysis = view.analyzer.analyse("travlota~ t?urman trvlta~ actor.aid<2 !actor.aid=2", rows)
    assert [(slot.text, slot.count, slot.correction) for slot in second_analysis.slots] == [
        ("travlota~", 1, ""),
        ("t?urman", 0, ""),
        ("trvlta~", 0, ""),
        ("!actor.aid=2", 0, ""),
    ]
    assert view.analyzer.analyse("  ", rows).slots == ()


@pytest.mark.parametrize(
    "text",
    [
        *("top: ada", "top five: ada", "TOP 5: ada", "Rank: ada", "top 5 : ada", "top 5 group group: ada"),
        *("top 5 window: ada", "top 5 rank recency: ada", "rank recency half-life: ada", "rank a b: ada"),
        *(
            "rank recency, keywords: ada",
            pytest.param(f"top {'9' * 5_000}: ada", id="top many digits"),
            "Pattern: actor a",
            "window : ada",
            "sql: SELECT 1",
            "rank: rank: ada",
        ),
        *("top 5: top 3: ada", "rank: pattern: actor a", "pattern select a.aid:actor a", "rank nothing: ada"),
        *(
            "top 0: ada",
            "window 5 s: ada",
            "rank half-life soon: ada",
            "top 5 half-life 5 s half-life 6 s: ada",
        ),
    ],
)
def test_an_incomplete_prefix_is_rejected(live_rows: tuple[View, LatestRows, Schema], text: str) -> None:
    view, rows, _ = live_rows
    with pytest.raises(SkwsError):
        view.analyzer.check(text)
    assert view.analyzer.analyse(text, rows).fault


def test_an_analysis_with_expression_windows_names_the_counted_rows() -> None:
    job = replace(movies().job, window=parse_window("open when movie.mid > 0 close when movie.mid < 0"))
    rows = LatestRows(job.stream)
    rows.add(RecordBatch.of([Record(job.schema.index["actor"], 1, (1, "John Travolta"))]), 1)
    assert QueryAnalyzer(job, job.schema).why_nothing("travlta", rows) == [
        "no row of the latest 1 matches 'travlta'; did you mean 'travolta'?"
    ]


def test_the_last_word_is_completed(live_rows: tuple[View, LatestRows, Schema]) -> None:
    view, rows, _ = live_rows
    assert view.analyzer.analyse("uma tr", rows).completions == (("travolta", 1),)
    assert [last_word(text) for text in ("", "a ", 'a "b', "actor:Tr", "-x")] == ["", "", "b", "Tr", "x"]
    assert view.analyzer.analyse("uma rel", rows).completions == (("released", 0),)
    assert view.analyzer.analyse("uma !movie.m", rows).completions == (("movie.mid", 0),)
    assert view.analyzer.analyse("uma ti", rows).completions == (("title:", 0),)
    assert view.analyzer.analyse("uma Mov", rows).completions[0] == ("movie:", 0)
    assert not any(map(last_word, ("t*t", "t?t", "uma~", "aid<2", "!name=t", "*t")))
    assert completed("uma actor:Tr", "travolta") == "uma actor:travolta"


def test_sessions_are_stored_by_schema_and_damaged_ones_ignored(tmp_path: Path) -> None:
    path = session_file(tmp_path / "s.yaml", tmp_path / "state")
    assert path != session_file(tmp_path / "t.yaml", tmp_path / "state")
    session = SavedSession(["a b"], theme="nord", trees=True)
    for text in ("x", "y", "x"):
        session.remember(text)
    session.toggle_saved("y")
    save_session(session, path)
    assert load_session(path) == session
    assert session.history == ["y", "x"]
    for damaged_data in (b"{", b"[]", b'{"version": 9}', b'{"version": 1, "queries": [1, ""], "saved": 5}'):
        path.write_bytes(damaged_data)
        assert load_session(path) == SavedSession()


def test_every_error_in_a_keymap_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    assert load_keymap(path, ACTIONS) == {}
    path.write_text("copy: c, ctrl+y\nfilter: f\n")
    assert load_keymap(path, ACTIONS) == {"copy": "c,ctrl+y", "filter": "f"}
    path.write_text("copie: c\nfilter: [f]\ncopy: ','\nundo: 'x,,y'\n")
    with pytest.raises(SchemaError) as error:
        load_keymap(path, ACTIONS)
    assert [(p.line, p.column) for p in error.value.problems] == [(1, 1), (2, 9), (3, 7), (4, 7)]
    assert "did you mean 'copy'?" in str(error.value)
    path.write_text("- copy\n")
    with pytest.raises(SchemaError, match="expected lines like"):
        load_keymap(path, ACTIONS)


def test_drafts_show_problems_or_the_graph() -> None:
    invalid_draft = read_draft(
        "version: 1\nrelations: {a: {attributes: {x: txet}}}\nwindow: 3 hedgehogs\n", Path("s.yaml")
    )
    assert invalid_draft.schema is None
    assert len(invalid_draft.problems) >= 2
    expression = "relations: {a: {attributes: {x: integer}}}\nwindow: open when y > 3 close when x < 1\n"
    (problem,) = read_draft(expression, Path("s.yaml")).problems
    assert (problem.line, problem.message.splitlines()[0]) == (2, "window: no field or relation 'y'")
    relations = "relations: {a: {attributes: {x: text}}, b: {attributes: {x: text}}}"
    text = f"version: 1\n{relations}\njoins: [a.x = b.x]\n"
    valid_draft = read_draft(text, Path("s.yaml"))
    assert valid_draft.graph[0] == "a"
    assert valid_draft.schema is not None
    unjoined_draft = read_draft(text.replace("[a.x = b.x]", "[]"), Path("s.yaml"))
    assert unjoined_draft.schema is not None
    assert change_text(valid_draft.schema, unjoined_draft.schema) == "removes a.x = b.x"
    assert change_text(valid_draft.schema, valid_draft.schema) == "changes nothing that is running"
    assert unjoined_draft.warnings


def test_bars_scale_to_the_largest_and_a_minute_is_resampled() -> None:
    assert bars([0, 1, 2, 4]) == " ▃▅█"
    assert bars([1, 2], 4.0) == "▃▅"
    assert bars([]) == ""
    assert resampled([1, 5, 2, 3], 2, 4) == [5, 3]
    assert resampled([1, 5], 4, 4) == [0, 0, 1, 5]
    assert resampled([7], 6, 3) == [0, 0, 0, 0, 7, 7]


def test_the_time_line_of_a_replay_is_drawn_before_its_first_record() -> None:
    run = SteppedRun(movies(), EventQueue())
    run.start()
    line = TimeLine(run, palette(BUILTIN_THEMES["textual-dark"]))
    assert line.render().plain.splitlines() == ["rows     │ from 1971-12-23", "results  │ to   2023-10-20"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.6, "1 min"),
        (12_000, "3 h 20 min"),
        (90_000, "1 d 1 h"),
        (-5, "0 s"),
        (1e8, "3 y 61 d"),
    ],
)
def test_lengths_of_time_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_result_is_dimmed_once_it_has_ended() -> None:
    view = View(movies())
    view.queries = ("travolta",)
    member = ResultTuple.given("actor", "actor:1", ("travolta",), {"aid": 1, "name": "John\x1b[2J Travolta"})
    live_result = Result("+", "travolta", "travolta", "1", 0.0, 60.0, "actor{travolta}", (member,), ())
    view.results.take([live_result])
    (row,) = view.results.rows()
    drawer, columns = Drawer(view, palette(BUILTIN_THEMES["textual-dark"])), TableColumns(70, badge=7)
    lines = [drawer.line(row, columns), *drawer.tree(row)]
    assert "\x1b" not in plain_text(lines)
    for line in lines:
        styles = [line.plain[s.start : s.end] for s in line.spans if getattr(s.style, "underline", False)]
        assert styles == ["Travolta"]
    assert lines[0].cell_len == 70
    view.results.expire(60)
    lines = [drawer.line(row, columns), *drawer.tree(row)]
    assert lines[0].plain.rstrip().endswith("expired")
    assert {str(s.style) for line in lines for s in line.spans} == {
        str(palette(BUILTIN_THEMES["textual-dark"]).dim)
    }
    assert drawer.countdown(row) == "expired, 1970-01-01 00:01:00"


def test_an_update_changes_its_row_in_place_and_marks_the_change() -> None:
    view = View(movies())
    view.queries = ("travolta",)

    def change(op: str, number: str, name: str, age: int, **more: Any) -> Result:
        member = ResultTuple.given("actor", f"actor:{number}", ("travolta",), {"name": name, "age": age})
        return Result(op, "travolta", "travolta", number, 0.0, 60.0, "actor{travolta}", (member,), (), **more)  # type: ignore[arg-type]

    results = [change("+", "1", "John Travolta", 69), change("+", "2", "Joey Travolta", 72)]
    assert view.results.take(results) == 2
    changes = (("actor:1", ("age",)),)
    assert view.results.take([change("~", "1", "John Travolta", 70, at=30.0, changed=changes)]) == 0
    first, second = view.results.rows(ListSelection(sort=ListOrder.OLDEST))
    drawer = Drawer(view, palette(BUILTIN_THEMES["textual-dark"]))
    for row, marked in ((first, ["70"]), (second, [])):
        for is_whole in (False, True):
            lines = drawer.detail(row, 80, whole=is_whole)
            assert [lines.plain[s.start : s.end] for s in lines.spans if s.style == "reverse"] == marked
            assert ("updated" in lines.plain) == bool(marked)
    assert "updated  1970-01-01 00:00:30, age of actor:1" in drawer.detail(first, 80, whole=True).plain


def test_a_keyword_late_in_a_long_value_is_visible_in_a_narrow_tree() -> None:
    view = View(movies())
    view.queries = ("travolta",)
    name = f"{'some words ' * 20}Travolta {'and more ' * 20}"
    member = ResultTuple.given("actor", "actor:1", ("travolta",), {"aid": 1, "name": name})
    view.results.take([Result("+", "travolta", "travolta", "1", 0.0, 60.0, "actor{travolta}", (member,), ())])
    (row,) = view.results.rows()
    drawer = Drawer(view, palette(BUILTIN_THEMES["textual-dark"]))
    for width in range(30, 100):
        first = drawer.detail(row, width, whole=False).plain.splitlines()[0]
        assert "Travolta" in first
        assert cell_len(first) <= width


@pytest.mark.parametrize(
    ("seconds", "now", "text"),
    [
        (None, 0, ""),
        (782_092_800, 782_179_200, "1994-10-14"),
        (782_092_861, 782_092_900, "00:01:01"),
        (782_092_861, 782_292_900, "1994-10-14"),
        (1e18, 0, "1000000000"),
    ],
)
def test_instants_of_today_are_times_and_others_dates(seconds: float | None, now: float, text: str) -> None:
    assert when(seconds, now)[:10] == text


def test_keywords_of_a_long_text_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key draws the selected result again."""
    job = movies().job
    analyzer = QueryAnalyzer(job, job.schema)
    text = "blue " * 1000 + "red"
    spans = analyzer.spans("red", "movie", "title", text)
    assert spans == [(5000, 5003, 0)]
    monkeypatch.setattr("skws_tui.services.analyzer.highlight", None)
    assert analyzer.spans("red", "movie", "title", text) == spans


def test_the_format_of_an_export_follows_from_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.jsonl, \.csv, \.parquet"):
        export([], tmp_path / "x.txt")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(OutputError, match="it is a directory"):
        export([], tmp_path / "d.csv")
    with pytest.raises(OutputError, match="File name too long"):
        export([], tmp_path / f"{'x' * 300}.csv")


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("├─ PostLinks  (PostLinks.RelatedPostId = Posts.Id)", 80, None),
        ("Posts and a long name without joins", 20, None),
        (
            "├─ PostLinks  (PostLinks.RelatedPostId = Posts.Id)",
            40,
            ["├─ PostLinks  (PostLinks.RelatedPostId =", "│              Posts.Id)"],
        ),
        (
            "│  └─ Votes  (Votes.UserId = Users.Id)",
            30,
            ["│  └─ Votes  (Votes.UserId =", "│             Users.Id)"],
        ),
        (
            "├─ PostLinks  (PostLinks.RelatedPostId = Posts.Id)",
            20,
            ["├─ PostLinks", "│  (PostLinks.Relate", "│  dPostId =", "│  Posts.Id)"],
        ),
        ("├─ PostLinks  (PostLinks.RelatedPostId = Posts.Id)", 12, None),
        ("├─ 帖子  (帖子.编号 = 用户.编号)", 26, ["├─ 帖子  (帖子.编号 =", "│         用户.编号)"]),
    ],
)
def test_the_joins_of_a_graph_wrap_below_themselves(
    line: str, width: int, expected: list[str] | None
) -> None:
    assert fold_line(line, width).splitlines() == (expected or [line])


def test_rows_are_browsed_with_the_schema_of_the_session() -> None:
    """The view may still have the previous schema."""
    rows = LatestRows(Stream(SCHEMA, Unbounded()))
    rows.add(RecordBatch.of([Record(0, 1, (1, "red"))]), 1)
    assert page_of(rows, RowPlace("note"), "") == Page([{"n": 1, "words": "red"}], 1, ["n", "words"])
    wider = "relations: {note: {attributes: {n: integer, words: text, more: text}, key: [n]}}\njoins: []\n"
    rows.change_schema(wider)
    assert page_of(rows, RowPlace("note"), "") == Page([], 0, ["n", "words", "more"])
    rows.add(RecordBatch.of([Record(2, 2, (2, "blue", "x"))]), 2)  # after the two previous relations
    page = page_of(rows, RowPlace("note", (("n", "2"),)), "blue")
    assert page == Page([{"n": 2, "words": "blue", "more": "x"}], 1, ["n", "words", "more"])
    assert page_of(rows, RowPlace("line", (("gone", "2"),)), "") == Page([], 0, ["words"])
    assert page_of(rows, RowPlace("nosuch"), "") == Page([], 0, [])
