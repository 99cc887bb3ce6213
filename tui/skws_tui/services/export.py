"""Writes results to a file, in the formats of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

from skws.results.model import LiveResult, Result
from skws.sinks.destination import destination
from skws.sinks.formats import Writer, plain_encoder
from skws.spec.enums import OutputFormat
from skws_schema.errors import UsageError
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


def export(results: Sequence[LiveResult], path: Path) -> None:
    """Write results in the order given, in the format of the file name's ending.

    Raises UsageError for another ending, and for results of patterns in other formats than JSON; OutputError.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; expected the name of a file")
    networks = [result for result in results if isinstance(result, Result)]
    if len(networks) < len(results) and path.suffix != ".jsonl":
        raise UsageError(f"{path}: results of patterns are exported as .jsonl")
    scored = any(result.score is not None for result in networks)
    with destination(path, BytesIO()) as opened:
        writer = Writer(plain_encoder(FORMATS[path.suffix], ranked=scored), opened)
        for result in results:
            writer.write(result)
        writer.finish()
