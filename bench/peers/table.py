"""The comparison as a text table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.peers.compare import Row

_HEADINGS = ("engine", "tuples", "results", "equal?", "start CPU s", "CPU s", "wall s", "peak MB", "to skws")


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A heading line, a line per engine, and then the reasons of unfinished ones."""
    cells = [_HEADINGS, *map(_cells, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    for row in cells:
        name, *values = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([name.strip().ljust(widths[0]), *values])
    yield from (f"{row.engine}: {row.status}" for row in rows if row.results is None)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.engine,
        f"{row.tuples:,}",
        _cell_text(row.results, ",d"),
        "-" if row.equal is None else "yes" if row.equal else "NO",
        _cell_text(row.start_cpu_seconds, ",.2f"),
        _cell_text(row.cpu_seconds, ",.2f"),
        _cell_text(row.wall_seconds, ",.2f"),
        _cell_text(None if row.peak_bytes is None else row.peak_bytes / 1e6, ",.0f"),
        _cell_text(row.ratio, ",.1f"),
    )


def _cell_text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
