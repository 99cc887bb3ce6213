"""Figures of measured points as PNG: processor time and peak memory over the parameter, one line per mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.paper import FIGURES, Figure, Point
from bench.point import FINISHED
from skws_schema.errors import UsageError


def check_drawable() -> None:
    """Raises UsageError if matplotlib is missing, before hours are spent on measuring."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional extra
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'skws[bench]', or use --no-draw") from None


def draw(points: list[Point], folder: Path, title: str) -> list[Path]:
    """Draw one PNG for each figure with points; returns their paths."""
    paths = []
    for figure in FIGURES:
        figure_points = [point for point in points if point.figure == figure.name]
        if figure_points:
            paths.append(folder / f"figure-{figure.name}.png")
            _draw(figure, figure_points, paths[-1], title)
    return paths


def _draw(figure: Figure, points: list[Point], path: Path, title: str) -> None:
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    canvas = Canvas(figsize=(8, 3.2), dpi=80, layout="constrained")
    cpu, memory = canvas.subplots(1, 2)
    for mode in dict.fromkeys(point.mode for point in points):
        finished = [p for p in points if p.mode == mode and p.measured.status == FINISHED]
        unfinished = sum(p.mode == mode for p in points) - len(finished)
        label = f"{mode} ({unfinished} unfinished)" if unfinished else mode
        values = [p.value for p in finished]
        cpu.plot(values, [p.measured.cpu_seconds for p in finished], marker="o", label=label)
        memory.plot(values, [(p.measured.peak_bytes or 0) / 1e6 for p in finished], marker="o", label=label)
    _label(cpu, figure, "processor seconds")
    _label(memory, figure, "peak memory (MB)")
    _label_ticks(
        cpu, "|R|", {p.value: f"{p.measured.results:,}" for p in points if p.measured.results is not None}
    )
    _label_ticks(
        memory,
        "I (s)",
        {p.value: _init_seconds(p) for p in points if p.mode == "full" and p.measured.status == FINISHED},
    )
    cpu.set_yscale("log")
    lines, names = cpu.get_legend_handles_labels()
    canvas.legend(lines, names, loc="outside lower center", ncols=len(names), fontsize="small")
    canvas.suptitle(f"Figure {figure.name}: {title}", fontsize="medium")
    canvas.savefig(path)


def _init_seconds(point: Point) -> str:
    """The time to build the full mesh, in seconds."""
    return f"{point.measured.init_seconds or 0:.2f}"


def _label_ticks(axes: Any, name: str, texts: dict[float, str]) -> None:
    """Write a number under each value of the parameter, as in the paper."""
    ticks = sorted(texts)
    if ticks[-1] >= 8 * ticks[0]:  # otherwise the first numbers overlap
        axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{value:g}\n{texts[value]}" for value in ticks], fontsize="x-small")
    axes.text(-0.02, -0.14, name, transform=axes.transAxes, ha="right", fontsize="x-small")


def _label(axes: Any, figure: Figure, quantity: str) -> None:
    axes.set_xlabel(figure.label)
    axes.set_ylabel(quantity)
    axes.grid(visible=True, alpha=0.3)
