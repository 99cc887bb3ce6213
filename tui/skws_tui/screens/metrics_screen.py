"""Metrics of the job in groups, each on its own scale, over the last minute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import fitted, visible
from skws_tui.screens.live_screen import LiveScreen
from skws_tui.services.result_drawing import Palette, day_or_time, duration
from skws_tui.services.view import POINTS, View
from skws_tui.widgets.time_line import bars

_STATM: Final = Path("/proc/self/statm")
_NAME: Final = 22
_NUMBER: Final = 12
_MOST: Final = 100
"""The length of the longest line of bars."""


_WHOLE: Final = 1000
"""Scales from this number on have no decimals."""


class MetricsScreen(LiveScreen):
    """Rates, counts and delays."""

    heading = "metrics"
    CSS = "MetricsScreen VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines = -1

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="figures")

    def refresh_view(self) -> None:
        width = self.query_one(VerticalScroll).scrollable_content_region.width or self.size.width - 4
        memory = resident_bytes() if self.skws.show_machine else None
        static = self.skws.job.static if self.skws.job is not None else {}
        text = figures(self.skws.view, self.palette, width, memory, static, stages=self.skws.show_machine)
        lines = text.plain.count("\n")
        self.query_one("#figures", Static).update(text, layout=lines != self._lines)
        self._lines = lines


class _Row(NamedTuple):
    """One metric.

    ``history``: the name of its time series. ``value``: the current one, ``total``: the sum so far, or empty.
    """

    name: str
    value: str
    total: str
    history: str


class _Group(NamedTuple):
    """Metrics on one scale, from 0 to the largest value or to ``most``; ``unit`` names it.

    ``placeholder``: the text if there are no metrics.
    """

    title: str
    unit: str
    rows: Sequence[_Row]
    most: float | None = None
    total: str = ""
    placeholder: str = ""


def figures(
    view: View,
    palette: Palette,
    width: int,
    memory: int | None = None,
    static: Mapping[str, int] = {},
    *,
    stages: bool = True,
) -> Text:
    """All metrics of a view. ``memory``: that of the process, in bytes. ``stages``: True for their times.

    ``static``: the number of rows of static tables, by relation.
    """
    metrics = view.metrics
    if metrics is None:
        return Text("The engine has not started yet.", palette.dim)
    room = max(min(width - _NAME - 2 * _NUMBER - 4, _MOST), 1)
    lines = list(_facts(metrics, palette, memory, sum(static.values())))
    for group in _groups(metrics, static, stages=stages, has_queries=bool(view.queries)):
        lines.append(Text())
        lines += _group_lines(group, view, palette, room)
    return Text("\n").join(lines)


def _groups(
    metrics: Metrics, static: Mapping[str, int], *, stages: bool, has_queries: bool
) -> Iterator[_Group]:
    row_count = metrics.tuples + sum(static.values())
    rows = [_Row("all relations", f"{metrics.rate:,.1f}", f"{row_count:,}", "tuples/s")]
    rows += [
        _Row(r.name, f"{r.rate:,.1f}", f"{r.tuples + static.get(r.name, 0):,}", f"relation {r.name}")
        for r in metrics.relations
    ]
    yield _Group("rows arriving", "a second", rows, total="so far")
    found_rows = [
        _Row(q.name, f"{q.rate:,.1f}", f"{q.results:,}", f"query {q.name}") for q in metrics.queries
    ]
    placeholder = (
        "no standing query: searches for the best results are repeated as rows arrive"
        if has_queries
        else "no query yet"
    )
    yield _Group("results found", "a second", found_rows, total="so far", placeholder=placeholder)
    # Ended tuples count until they are purged; queries of several kinds hold the same tuples.
    in_memory = [
        _Row("rows", f"{metrics.live_tuples:,}", "", "live tuples"),
        _Row("partial results", f"{metrics.waiting:,}", "", "waiting partials"),
    ]
    yield _Group("held in memory", "now", in_memory)
    delays = [
        _Row("half of the results", _milliseconds(metrics.latency_p50), "", "latency p50"),
        _Row("99 % of the results", _milliseconds(metrics.latency_p99), "", "latency p99"),
    ]
    yield _Group("delay from row to result", "at most", delays)
    if stages and metrics.stages:
        work = [
            _Row(s.name, f"{s.busy:.0%}", f"{s.seconds:,.1f} s", f"stage {s.name}") for s in metrics.stages
        ]
        yield _Group("work", "of the time", work, 1.0, "so far")


def _facts(metrics: Metrics, palette: Palette, memory: int | None, static: int) -> Iterator[Text]:
    """Numbers without a history, in lines. ``static``: the number of rows of static tables."""
    counts = [(metrics.deletions, "deleted"), (metrics.late, "late"), (metrics.bad, "bad")]
    event_time = "none yet" if metrics.event_time is None else day_or_time(int(metrics.event_time))
    facts = [
        ("source", visible(_source(metrics.source))),
        ("engine", f"{metrics.engine}, up {duration(metrics.uptime)}"),
        ("event time", event_time),
        ("backlog", visible(metrics.behind)),
        (
            "rows",
            ", ".join([f"{metrics.tuples + static:,} read", *(f"{n:,} {label}" for n, label in counts)]),
        ),
    ]
    if static and not metrics.tuples:  # nothing moves in a folder of tables
        facts = [fact for fact in facts if fact[0] != "event time"]
    facts = [fact for fact in facts if fact[1]]
    if memory is not None:
        facts.append(("memory", f"{memory / 1e6:,.0f} MB"))
    for name, value in facts:
        yield Text.assemble((f"{name:<12}", palette.dim), value, no_wrap=True, overflow="ellipsis")


def _group_lines(group: _Group, view: View, palette: Palette, room: int) -> Iterator[Text]:
    """A heading with the scale, the rows, the axis of time."""
    histories = [list(view.histories.get(row.history, ())) for row in group.rows]
    points = [resampled(history, room, POINTS) for history in histories]
    most = group.most or max((point for values in points for point in values), default=0.0)
    scale = f"0 to {_scale(most, group)}" if most else ""
    heading = Text.assemble((f"{group.title:<{_NAME}}", "bold"))
    heading.append(f"{group.unit:>{_NUMBER}}{group.total:>{_NUMBER}}    {scale}", palette.dim)
    yield heading
    for row, values in zip(group.rows, points, strict=True):
        line = Text(f"  {fitted(visible(row.name), _NAME - 2)}")
        line.append(f"{row.value:>{_NUMBER}}").append(f"{row.total:>{_NUMBER}}", palette.dim)
        yield line.append("    " + bars(values, most or 1.0))
    if not group.rows:
        yield Text(f"  {group.placeholder}", palette.dim)
    elif most:
        axis = "a minute ago" + "now".rjust(room - 12) if room > 18 else "now".rjust(room)
        yield Text(" " * (_NAME + 2 * _NUMBER + 4) + axis, palette.dim)


def _scale(most: float, group: _Group) -> str:
    if group.most is not None:
        return f"{most:.0%}"
    if group.unit == "at most":
        return _milliseconds(most)
    return f"{most:,.4g}" if most < _WHOLE else f"{most:,.0f}"


def resampled(history: Sequence[float], columns: int, points: int) -> list[float]:
    """The largest number in each of ``columns`` equal parts of the last ``points``; 0 before the first."""
    padded = [0.0] * (points - len(history)) + list(history)[-points:]
    edges = [column * points // columns for column in range(columns + 1)]
    return [max(padded[start : max(end, start + 1)]) for start, end in pairwise(edges)]


def resident_bytes() -> int | None:
    """The resident memory now; None without ``/proc``."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _source(source: str) -> str:
    """The name of a source; the speed of a replay as a factor."""
    name, replayed, speed = source.rpartition("?speed=")
    return f"{name} ×{float(speed):,.10g}" if replayed else source


def _milliseconds(seconds: float | None) -> str:
    return "none yet" if seconds is None else f"{seconds * 1000:,.1f} ms"
