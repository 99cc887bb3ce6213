"""Encoders turn results into bytes, one encoder for each output format; they do no I/O."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import orjson

from skws.results.model import LiveResult

T_contra = TypeVar("T_contra", contravariant=True)

COLUMNS: Final = ("op", "query", "id", "start", "end", "network", "tuples", "joins", "snapshot")
RANKED: Final = ("score", "explanation", "event", "rank", "at", "reason", "group", "folded")
"""Further columns of results that have a score."""


class Encoder(ABC, Generic[T_contra]):
    """The bytes of one output, in order: those of ``begin``, of each result, and of ``end``.

    ``verbatim``: a terminal gets the bytes as they are, since data in them is already safe to show.
    """

    verbatim = False

    def begin(self) -> bytes:
        """Called once, before all results."""
        return b""

    @abstractmethod
    def encode(self, result: T_contra) -> bytes:
        """May be empty: some formats hold results back."""

    def end(self) -> bytes:
        """Called once, after the last result of a run that ended well."""
        return b""


class JsonLinesEncoder(Encoder[LiveResult]):
    """One JSON object a line: the form that consumers depend on."""

    def encode(self, result: LiveResult) -> bytes:
        return result.to_json() + b"\n"


class CsvEncoder(Encoder[LiveResult]):
    """A header, then one result a record; nested parts are JSON.

    UTF-8, with a line feed after each record. Unknown values are empty, ``snapshot`` is true or false.
    ``ranked`` adds the columns of results that have a score.
    """

    def __init__(self, *, ranked: bool = False) -> None:
        self._columns = (*COLUMNS, *RANKED) if ranked else COLUMNS
        self._line = io.StringIO()
        self._csv = csv.writer(self._line, lineterminator="\n")

    def begin(self) -> bytes:
        return self._record(self._columns)

    def encode(self, result: LiveResult) -> bytes:
        shown = result.to_dict()
        shown["tuples"] = orjson.dumps(shown["tuples"]).decode()
        shown["joins"] = orjson.dumps(shown.get("joins", [])).decode()
        shown["snapshot"] = "true" if result.snapshot else "false"
        if "explanation" in shown:
            shown["explanation"] = orjson.dumps(shown["explanation"]).decode()
        return self._record(shown.get(column) for column in self._columns)

    def _record(self, fields: Iterable[object]) -> bytes:
        self._csv.writerow(fields)
        written = self._line.getvalue().encode()
        self._line.seek(0)
        self._line.truncate()
        return written
