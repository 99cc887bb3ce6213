"""Addresses of ``--sink``: standard output, files, a database, a Kafka topic, a web hook, a command."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from skws.extras import SINKS, extension, installed
from skws.sinks.base import Sink
from skws.sinks.database_sink import PARAMETERS, ResultTable, SqliteSink
from skws.sinks.file_sinks import JsonLinesSink, ParquetSink
from skws.sinks.formats import StdoutSink
from skws.sources.feed import parameters, redacted
from skws.sources.kafka.topic_address import TopicAddress
from skws.spec.enums import OutputFormat
from skws_schema.errors import UsageError, nearest
from skws_windows.window import MICROSECOND, parse_duration

_KINDS: Final = ("stdout", "jsonl", "parquet", "sqlite", "postgresql", "kafka", "http", "https", "command")
_MOST_DIGITS: Final = 9
_HOW: Final = (
    "expected stdout:FORMAT, jsonl:FILE, parquet:FOLDER, sqlite:FILE, postgresql://USER@HOST/DATABASE,"
    " kafka://HOST:PORT/TOPIC, https://HOST/PATH or command:PROGRAM"
)


def open_sinks(texts: Iterable[str], *, color: bool = False) -> list[Sink]:
    """An unopened sink for each distinct address. Raises UsageError, SourceError."""
    return [parse_sink(text, color=color) for text in dict.fromkeys(texts)]


def parse_sink(text: str, *, color: bool = False) -> Sink:
    """The sink at an address. Raises UsageError if it is invalid, SourceError if a package is missing."""
    if "\0" in text:
        raise UsageError(f"sink {redacted(text)}: expected an address without U+0000")
    kind, colon, location = text.partition(":")
    if colon and location and kind in (*_KINDS, "postgres"):
        return _built_in(text, kind, location, color=color)
    constructor = extension(SINKS, kind) if colon else None
    if constructor is None:
        raise UsageError(f"sink {redacted(text)}: {_HOW}{nearest(kind, _KINDS)}")
    sink: Sink = constructor(text)
    return sink


def _built_in(text: str, kind: str, location: str, *, color: bool) -> Sink:
    match kind:
        case "stdout":
            return StdoutSink(_format(location), sys.stdout.buffer, color=color)
        case "jsonl":
            return JsonLinesSink(Path(location))
        case "parquet":
            path, parameters = _split(text, location, "?", ("every",))
            every = parse_duration(parameters.get("every", "10 s"), what="every") / MICROSECOND
            return ParquetSink(Path(path), every)
        case "sqlite":
            path, parameters = _split(text, location, "?", PARAMETERS)
            return SqliteSink(Path(path), ResultTable.of(parameters))
        case "postgresql" | "postgres" | "kafka":
            return _kafka(text) if kind == "kafka" else _postgres(text)
    return _posting_sink(text, location, is_command=kind == "command")


def _format(name: str) -> OutputFormat:
    formats = [str(item) for item in OutputFormat if item is not OutputFormat.PARQUET]
    if name not in formats:
        raise UsageError(f"stdout:{name}: expected one of {', '.join(formats)}{nearest(name, formats)}")
    return OutputFormat(name)


def _split(text: str, location: str, separator: str, names: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The address and its parameters. Raises UsageError for an unknown parameter."""
    address, _, query = location.partition(separator)
    return address, parameters(query, names, f"sink {redacted(text)}:")


def _postgres(text: str) -> Sink:
    with installed():
        from skws.sinks.postgres import PostgresSink  # noqa: PLC0415 - psycopg2 is an extra
    base, _, query = text.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    table_parameters = {name: value for name, value in pairs if name in PARAMETERS}
    other_parameters = urlencode([(name, value) for name, value in pairs if name not in table_parameters])
    return PostgresSink.of(
        f"{base}?{other_parameters}" if other_parameters else base, ResultTable.of(table_parameters)
    )


def _kafka(text: str) -> Sink:
    with installed():
        from skws.sinks.kafka import KafkaSink  # noqa: PLC0415 - confluent_kafka is an extra
    return KafkaSink(TopicAddress.of(text))


def _posting_sink(text: str, location: str, *, is_command: bool) -> Sink:
    """A sink that posts to a web address, or to a program; its parameters follow ``#``."""
    from skws.sinks.webhook import Delivery, Endpoint, HookProgram, WebhookSink  # noqa: PLC0415 - only for posts

    address, parameters = _split(text, location if is_command else text, "#", ("letters", "attempts", "most"))
    dead_letters = parameters.get("letters")
    delivery = Delivery(
        _positive_number("attempts", parameters.get("attempts", "8")),
        _positive_number("most", parameters.get("most", "100")),
        Path(dead_letters) if dead_letters else None,
    )
    return WebhookSink(HookProgram(address) if is_command else Endpoint(address), delivery)


def _positive_number(name: str, text: str) -> int:
    digits = text.lstrip("0")
    if not digits.isdecimal():
        raise UsageError(f"{name}={text}: expected a number above 0")
    if len(digits) > _MOST_DIGITS:
        raise UsageError(f"{name}: a number too large")
    return int(digits)
