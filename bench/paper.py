"""Table 5.1 and Figures 5.1-5.8 of the S-KWS paper: one parameter varies, the others have their defaults."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.child import DEFAULT
from bench.load import Load
from bench.point import Measured, measure
from skws_schema.errors import UsageError, nearest

_USUAL = ("full", "partial", DEFAULT)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: the field of the load that varies, its values, and the compared modes."""

    name: str
    parameter: str
    label: str
    values: tuple[float, ...]
    modes: tuple[str, ...] = _USUAL


_WINDOWS = (5, 10, 20, 40, 80)
FIGURES = (
    Figure("5.1", "minutes", "window w (minutes)", _WINDOWS, ("full", "partial", "forest", DEFAULT)),
    Figure("5.2", "kwf", "keyword frequency KWF", (0.003, 0.007, 0.01, 0.013, 0.016)),
    Figure("5.3", "relations", "relations |SR|", (5, 10, 15, 20, 25)),
    Figure("5.4", "selectivity", "1 / join selectivity", (500, 750, 1000, 1250, 1500)),
    Figure("5.5", "keywords", "keywords |K|", (2, 3, 4, 5)),
    Figure("5.6", "max_size", "T_max", (2, 3, 4, 5, 6)),
    Figure("5.7", "minutes", "window w (minutes)", _WINDOWS, ("full", "full-nodemand", DEFAULT)),
    Figure("5.8", "minutes", "window w (minutes)", _WINDOWS, ("full", "full-eager", DEFAULT)),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One run of one figure."""

    figure: str
    parameter: str
    value: float
    mode: str
    measured: Measured


COLUMNS = ("figure", "parameter", "value", "mode", *(field.name for field in fields(Measured)))


def select_figures(names: str | None) -> tuple[Figure, ...]:
    """The figures of a list such as ``5.1,5.3``; None for all. Raises UsageError."""
    if names is None:
        return FIGURES
    figures = {figure.name: figure for figure in FIGURES}
    wanted_names = [name.strip() for name in names.split(",")]
    for name in wanted_names:
        if name not in figures:
            raise UsageError(
                f"--figures {name!r}: expected some of {', '.join(figures)}{nearest(name, figures)}"
            )
    return tuple(figures[name] for name in wanted_names)


def load_of(figure: Figure, value: float) -> Load:
    """The default load with this value of the figure's parameter."""
    parameters: dict[str, Any] = {figure.parameter: value}
    return replace(Load(), **parameters)


def points(
    figures: Iterable[Figure], hours: float, limit: float, report: Callable[[str], None]
) -> Iterator[Point]:
    """Run the figures' points one after the other; ``limit`` in seconds per point."""
    for figure in figures:
        for value in figure.values:
            load = load_of(figure, value)
            with TemporaryDirectory() as folder:
                path = Path(folder) / "load.jsonl"
                load.write(path, int(hours * 3600))
                for mode in figure.modes:
                    report(f"figure {figure.name}: {figure.parameter} {value}, {mode}")
                    measured = measure(mode, load, path, limit)
                    yield Point(figure.name, figure.parameter, value, mode, measured)


def write_csv(points: Iterable[Point], path: Path) -> list[Point]:
    """Write the points as CSV, each line as soon as it is measured; returns all points."""
    measured_points = []
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for point in points:
            values = asdict(point)
            writer.writerow({**{k: v for k, v in values.items() if k != "measured"}, **values["measured"]})
            file.flush()
            measured_points.append(point)
    return measured_points
