"""Numbers over time as lines of text: a name, the number now, and a sparkline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import set_cell_size
from rich.style import Style
from rich.text import Text

from skws.results.writers.text import instant, visible
from skws.watch.metrics import Metrics
from tui.services.drawing import Palette, duration
from tui.services.view import History, View

_BARS: Final = "▁▂▃▄▅▆▇█"
_NAME: Final = 24
_VALUE: Final = 14


def sparkline(points: Sequence[float], width: int) -> str:
    """The latest points as bars, one a column, from nothing up to the largest of them."""
    shown = list(points)[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    if not most:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(point / most * len(_BARS)), len(_BARS) - 1)] for point in shown)


def source_told(source: str, speed: float) -> str:
    """The name of a source; of a replay how fast it goes: its own speed ``speed`` times."""
    name, of_its_own, own = source.rpartition("?speed=")
    return f"{name} ×{float(own) * speed:,.10g}" if of_its_own else source


def figures(
    view: View,
    palette: Palette,
    width: int,
    memory: int | None = None,
    speed: float = 1.0,
    *,
    stages: bool = True,
) -> Text:
    """All metrics of a view, with the time that ``stages`` take or without.

    ``memory``: of the process, in bytes; ``speed``: multiplies a replay's.
    """
    metrics = view.metrics
    if metrics is None:
        return Text("The engine has not started yet.", palette.dim)
    lines = [_heading("stream", palette), *_stream(metrics, view, palette, width)]
    lines += [_heading("relations", palette), *_relations(metrics, view, palette, width)]
    lines += [_heading("queries", palette), *_queries(metrics, view, palette, width)]
    lines += [_heading("engine", palette), *_engine(metrics, view, palette, width, memory)]
    where = f"{metrics.engine}, {source_told(metrics.source, speed)}"
    lines.append(_line("engine", where, None, palette, width))
    if stages and metrics.stages:
        lines += [_heading("time by stage", palette), *_stages(metrics, view, palette, width)]
    return Text("\n").join(lines)


def _stream(metrics: Metrics, view: View, palette: Palette, width: int) -> Iterator[Text]:
    yield _line("tuples/s", f"{metrics.rate:,.0f}", view.histories.get("tuples/s"), palette, width)
    yield _line("tuples", f"{metrics.tuples:,}", None, palette, width)
    yield _line("deletions", f"{metrics.deletions:,}", None, palette, width)
    yield _line("late", f"{metrics.late:,}", None, palette, width)
    yield _line("bad", f"{metrics.bad:,}", None, palette, width)
    when = "none yet" if metrics.event_time is None else instant(int(metrics.event_time))
    yield _line("event time", when, None, palette, width)
    yield _line("lag", metrics.behind or "none known", None, palette, width)


def _relations(metrics: Metrics, view: View, palette: Palette, width: int) -> Iterator[Text]:
    for relation in metrics.relations:
        value = f"{relation.rate:,.1f}/s"
        yield _line(relation.name, value, view.histories.get(f"relation {relation.name}"), palette, width)


def _queries(metrics: Metrics, view: View, palette: Palette, width: int) -> Iterator[Text]:
    for query in metrics.queries:
        value = f"{query.results:,}  {query.rate:,.1f}/s"
        yield _line(query.name, value, view.histories.get(f"query {query.name}"), palette, width)
    if not metrics.queries:
        yield Text("  none stands", palette.dim)


def _engine(metrics: Metrics, view: View, palette: Palette, width: int, memory: int | None) -> Iterator[Text]:
    histories = view.histories
    # Some have ended and are not purged yet; queries of several kinds hold the same tuples.
    yield _line("tuples held", f"{metrics.live_tuples:,}", histories.get("live tuples"), palette, width)
    yield _line("waiting partials", f"{metrics.waiting:,}", histories.get("waiting partials"), palette, width)
    yield _line("operators used", f"{metrics.operators:,}", None, palette, width)
    yield _line("results/s", _sum_rates(metrics), histories.get("results/s"), palette, width)
    yield _line("latency p50", _seconds(metrics.latency_p50), None, palette, width)
    yield _line("latency p99", _seconds(metrics.latency_p99), histories.get("latency p99"), palette, width)
    if memory is not None:
        yield _line("memory", f"{memory / 1e6:,.0f} MB", None, palette, width)
    yield _line("up", duration(metrics.uptime), None, palette, width)


def _stages(metrics: Metrics, view: View, palette: Palette, width: int) -> Iterator[Text]:
    """How busy each was lately, and how long in all."""
    for stage in metrics.stages:
        value = f"{stage.busy:4.0%}  {stage.seconds:,.1f} s"
        yield _line(stage.name, value, view.histories.get(f"stage {stage.name}"), palette, width)


def _line(name: str, value: str, history: History | None, palette: Palette, width: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"  {set_cell_size(visible(name), _NAME)} ")
    line.append(f"{visible(value):<{_VALUE}}  ", Style(bold=True))
    if history is not None:
        line.append(sparkline(list(history.points), width - line.cell_len - 1), palette.relation)
    return line


def _heading(text: str, palette: Palette) -> Text:
    return Text(text, palette.heading)


def _sum_rates(metrics: Metrics) -> str:
    return f"{sum(query.rate for query in metrics.queries):,.1f}"


def _seconds(value: float | None) -> str:
    return "none yet" if value is None else f"{value * 1000:,.1f} ms"
