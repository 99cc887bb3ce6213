"""What ``--sink`` may be: standard output, files, a database, a web hook, a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from schema.errors import SourceError, UsageError, nearest
from skws.choices import OutputFormat
from skws.sources.redact import redacted
from skws.watch.sinks.base import Sink
from skws.watch.sinks.jsonl import JsonLinesSink
from skws.watch.sinks.parquet import ParquetSink
from skws.watch.sinks.sqlite import SqliteSink
from skws.watch.sinks.stdout import StdoutSink
from skws.watch.sinks.table import Retractions, table_name
from windows.window import MICROSECOND, parse_duration

if TYPE_CHECKING:
    from skws.watch.sinks.webhook import Receiver

_KINDS: Final = ("stdout", "jsonl", "parquet", "sqlite", "postgresql", "http", "https", "command")
_HOW: Final = (
    "expected stdout:FORMAT, jsonl:FILE, parquet:FOLDER, sqlite:FILE, postgresql://USER@HOST/DATABASE,"
    " https://HOST/PATH or command:PROGRAM"
)


def open_sinks(texts: Iterable[str], *, color: bool = False) -> list[Sink]:
    """The sinks at some addresses, each once; none is opened yet. Raises UsageError, SourceError."""
    return [parse_sink(text, color=color) for text in dict.fromkeys(texts)]


def parse_sink(text: str, *, color: bool = False) -> Sink:
    """The sink at an address. Raises UsageError for what is none, SourceError if it cannot be had here."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in (*_KINDS, "postgres") or not rest:
        raise UsageError(f"sink {redacted(text)}: {_HOW}{nearest(kind, _KINDS)}")
    match kind:
        case "stdout":
            return StdoutSink(_format(rest), sys.stdout.buffer, color=color)
        case "jsonl":
            return JsonLinesSink(Path(rest))
        case "parquet":
            path, given = _split(text, rest, "?", ("every",))
            every = parse_duration(given.get("every", "10 s"), what="every") / MICROSECOND
            return ParquetSink(Path(path), every)
        case "sqlite":
            path, given = _split(text, rest, "?", ("table", "retractions", "scores"))
            return SqliteSink(Path(path), *_table(given))
        case "postgresql" | "postgres":
            return _postgres(text)
    return _posting(text, rest if kind == "command" else text, _receivers(kind))


def _format(name: str) -> OutputFormat:
    known = [str(each) for each in OutputFormat if each is not OutputFormat.PARQUET]
    if name not in known:
        raise UsageError(f"stdout:{name}: expected one of {', '.join(known)}{nearest(name, known)}")
    return OutputFormat(name)


def _split(text: str, rest: str, by: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """What stands before the parameters, and those. Raises UsageError for one that is not known."""
    before, _, query = rest.partition(by)
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in known:
            raise UsageError(f"sink {redacted(text)}: no parameter {name!r}{nearest(name, known)}")
    return before, given


def _table(given: dict[str, str]) -> tuple[str, Retractions, bool]:
    what = given.get("retractions", "delete")
    known = [str(each) for each in Retractions]
    if what not in known:
        raise UsageError(f"retractions={what}: expected delete or mark{nearest(what, known)}")
    scores = given.get("scores", "no")
    if scores not in {"yes", "no"}:
        raise UsageError(f"scores={scores}: expected yes or no")
    return table_name(given.get("table", "results")), Retractions(what), scores == "yes"


def _postgres(text: str) -> Sink:
    try:
        from skws.sources.postgres.address import Address  # noqa: PLC0415 - psycopg2 is an extra
        from skws.watch.sinks.postgres import PostgresSink  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "psycopg2":
            raise
        raise SourceError("PostgreSQL needs psycopg2: install skws with its extra, skws[postgres]") from None
    base, _, query = text.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in {"table", "retractions", "scores"}}
    rest = urlencode([(name, value) for name, value in pairs if name not in own])
    return PostgresSink(Address.of(f"{base}?{rest}" if rest else base), *_table(own))


def _receivers(kind: str) -> Callable[[str], Receiver]:
    """What makes the receiver of an address."""
    from skws.watch.sinks.http import Endpoint  # noqa: PLC0415 - for who has one
    from skws.watch.sinks.program import Program  # noqa: PLC0415

    return Program if kind == "command" else Endpoint


def _posting(text: str, rest: str, receiver: Callable[[str], Receiver]) -> Sink:
    """A sink that posts; what stands behind ``#`` says how."""
    from skws.watch.sinks.webhook import Delivery, WebhookSink  # noqa: PLC0415 - for who has one

    address, given = _split(text, rest, "#", ("letters", "attempts", "most"))
    letters = given.get("letters")
    delivery = Delivery(
        _above_zero("attempts", given.get("attempts", "8")),
        _above_zero("most", given.get("most", "100")),
        Path(letters) if letters else None,
    )
    return WebhookSink(receiver(address), delivery)


def _above_zero(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{name}={text}: expected a number above 0")
    return int(text)
