"""Writes results to a file, in the formats of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

from skws.results.model import LiveResult, Result
from skws.sinks.destination import destination
from skws.sinks.formats import open_writer
from skws.spec.enums import OutputFormat
from skws_schema.errors import UsageError
from skws_tui.services.analyzer import Analyzer
from skws_tui.services.request import UiRequest

FORMATS: Final = {
    ".jsonl": OutputFormat.JSONL,
    ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET,
}


def file_to_write(name: str, request: UiRequest) -> Path:
    """The path of a file name. Raises UsageError for a file that a browser may not write."""
    if not request.served:
        return Path(name).expanduser()
    if request.exports is None:
        raise UsageError("exports from a browser are off: start skws tui --serve with --export-to DIR")
    path = request.exports / name
    if name != path.name or path.parent != request.exports or "\0" in name:
        raise UsageError(f"{name}: expected the name of a file, which is put in {request.exports}")
    if path.is_symlink():
        raise UsageError(f"{name}: is a link; expected another name")
    return path


def export(results: Sequence[LiveResult], path: Path, analyzer: Analyzer) -> None:
    """Write results in the order given, in the format of the file name's ending.

    Raises UsageError for another ending, OutputError.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; expected the name of a file")
    found = [result for result in results if isinstance(result, Result)]
    if len(found) < len(results):
        _export_lines(results, path)
        return
    # Results name their queries, so the plan of any query will do; it needs scores if a result has one.
    scored = any(result.score is not None for result in found)
    plan = analyzer.plan(f"rank: {found[0].query}" if scored else found[0].query)
    with open_writer(FORMATS[path.suffix], path, plan, BytesIO()) as writer:
        for result in found:
            writer.write(result)


def _export_lines(results: Sequence[LiveResult], path: Path) -> None:
    """Write results of several kinds, which only JSON can hold. Raises UsageError for another format."""
    if path.suffix != ".jsonl":
        raise UsageError(f"{path}: results of patterns are exported as .jsonl")
    with destination(path, BytesIO()) as opened:
        opened.write(b"".join(result.to_json() + b"\n" for result in results))
