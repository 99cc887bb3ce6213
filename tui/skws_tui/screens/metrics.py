"""Metrics of the job as lines: a name, the number now, and a sparkline of the last minute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.cells import set_cell_size
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from skws.jobs.metrics import Metrics
from skws.sinks.text import instant, visible
from skws_tui.screens.live import LiveScreen
from skws_tui.services.drawing import Palette, duration
from skws_tui.services.view import View

_STATM: Final = Path("/proc/self/statm")
_BARS: Final = "▁▂▃▄▅▆▇█"
_NAME: Final = 24
_VALUE: Final = 14


class MetricsScreen(LiveScreen):
    """One line a number."""

    name_shown = "metrics"
    CSS = "MetricsScreen VerticalScroll { padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines = -1

    def compose_body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="figures")

    def refresh_view(self) -> None:
        width = self.query_one(VerticalScroll).scrollable_content_region.width or self.size.width - 4
        memory = resident_bytes() if self.skws.show_machine else None
        job = self.skws.job
        speed, stages = 1.0 if job is None else job.control.status().speed, self.skws.show_machine
        drawn = figures(self.skws.view, self.palette, width, memory, speed, stages=stages)
        lines = drawn.plain.count("\n")
        self.query_one("#figures", Static).update(drawn, layout=lines != self._lines)
        self._lines = lines


class _Figure(NamedTuple):
    """``history``: the name of the numbers over time, empty for none."""

    name: str
    value: str
    history: str = ""


def figures(
    view: View,
    palette: Palette,
    width: int,
    memory: int | None = None,
    speed: float = 1.0,
    *,
    stages: bool = True,
) -> Text:
    """All metrics of a view; ``stages`` False leaves out the time of stages.

    ``memory``: of the process, in bytes; ``speed``: multiplies a replay's.
    """
    metrics = view.metrics
    if metrics is None:
        return Text("The engine has not started yet.", palette.dim)
    sections = {
        "stream": _stream(metrics),
        "relations": [_Figure(r.name, f"{r.rate:,.1f}/s", f"relation {r.name}") for r in metrics.relations],
        "queries": [
            _Figure(q.name, f"{q.results:,}  {q.rate:,.1f}/s", f"query {q.name}") for q in metrics.queries
        ],
        "engine": _engine(metrics, memory, speed),
    }
    if stages and metrics.stages:
        sections["time by stage"] = [
            _Figure(s.name, f"{s.busy:4.0%}  {s.seconds:,.1f} s", f"stage {s.name}") for s in metrics.stages
        ]
    lines = []
    for title, section in sections.items():
        lines.append(Text(title, "bold"))
        lines += [_line(figure, view, palette, width) for figure in section]
        if title == "queries" and not metrics.queries:
            lines.append(Text("  none stands", palette.dim))
    return Text("\n").join(lines)


def _stream(metrics: Metrics) -> Iterator[_Figure]:
    yield _Figure("tuples/s", f"{metrics.rate:,.0f}", "tuples/s")
    yield _Figure("tuples", f"{metrics.tuples:,}")
    yield _Figure("deletions", f"{metrics.deletions:,}")
    yield _Figure("late", f"{metrics.late:,}")
    yield _Figure("bad", f"{metrics.bad:,}")
    when = "none yet" if metrics.event_time is None else instant(int(metrics.event_time))
    yield _Figure("event time", when)
    yield _Figure("lag", metrics.behind or "none known")


def _engine(metrics: Metrics, memory: int | None, speed: float) -> Iterator[_Figure]:
    # Ended tuples that are not purged yet are held; queries of several kinds hold the same tuples.
    yield _Figure("tuples held", f"{metrics.live_tuples:,}", "live tuples")
    yield _Figure("waiting partials", f"{metrics.waiting:,}", "waiting partials")
    yield _Figure("operators used", f"{metrics.operators:,}")
    yield _Figure("results/s", f"{sum(query.rate for query in metrics.queries):,.1f}", "results/s")
    yield _Figure("latency p50", _milliseconds(metrics.latency_p50))
    yield _Figure("latency p99", _milliseconds(metrics.latency_p99), "latency p99")
    if memory is not None:
        yield _Figure("memory", f"{memory / 1e6:,.0f} MB")
    yield _Figure("up", duration(metrics.uptime))
    yield _Figure("engine", f"{metrics.engine}, {_source(metrics.source, speed)}")


def _line(figure: _Figure, view: View, palette: Palette, width: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"  {set_cell_size(visible(figure.name), _NAME)} ")
    line.append(f"{visible(figure.value):<{_VALUE}}  ", Style(bold=True))
    history = view.histories.get(figure.history)
    if history is not None:
        line.append(sparkline(list(history), width - line.cell_len - 1), palette.accent)
    return line


def sparkline(points: Sequence[float], width: int) -> str:
    """The latest points as bars, one a column, scaled from zero to their maximum."""
    shown = list(points)[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    if not most:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(point / most * len(_BARS)), len(_BARS) - 1)] for point in shown)


def resident_bytes() -> int | None:
    """Resident memory now; None where there is no ``/proc``."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _source(source: str, speed: float) -> str:
    """The name of a source; for a replay with its speed, ``speed`` times its own."""
    name, of_its_own, own = source.rpartition("?speed=")
    return f"{name} ×{float(own) * speed:,.10g}" if of_its_own else source


def _milliseconds(seconds: float | None) -> str:
    return "none yet" if seconds is None else f"{seconds * 1000:,.1f} ms"
