"""Windows as JSON lines and as a table; the verdict of the static check as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import floor
from typing import Final

import orjson

from skws.results.model import dumped
from skws.results.names import json_row
from skws.sinks.encoders import Encoder
from skws.sinks.text import escaped, fitted, instant, padded, value_text, visible
from skws_schema.model import AttributeType, Value
from skws_windows.check.verdict import Verdict, Witness
from skws_windows.guards.alphabet import Alphabet
from skws_windows.language.expression import WindowExpression
from skws_windows.processor.panes import Aggregate
from skws_windows.processor.processor import Key, Window
from skws_windows.window import MICROSECOND

_WIDTHS: Final = (8, 8, 8, 20, 20)
_CELL: Final = 14


class Shown:
    """How keys and aggregates are written: times in seconds."""

    def __init__(self, alphabet: Alphabet, per: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.per = tuple(per)
        self.aggregates = tuple(aggregates)
        self._key_times = [alphabet.fields[name].sort is AttributeType.TIMESTAMP for name in per]
        self._times = [
            a.field is not None
            and a.monoid != "count"
            and alphabet.fields[a.field].sort is AttributeType.TIMESTAMP
            for a in aggregates
        ]

    def key(self, key: Key) -> Value | list[Value]:
        """None without fields, the value of one field, a list for several."""
        values = [_seconds(v) if timed else v for v, timed in zip(key, self._key_times, strict=True)]
        return (values[0] if len(values) == 1 else values) if values else None

    def values(self, window: Window) -> dict[str, Value]:
        """The aggregates by name."""
        pairs = zip(self.aggregates, window.aggregates, self._times, strict=True)
        return {str(a): _seconds(v) if timed else v for a, v, timed in pairs}


class WindowLines(Encoder[Window]):
    """One JSON object a window."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def encode(self, window: Window) -> bytes:
        found = {
            "first": window.first,
            "last": window.last,
            "start": window.start / MICROSECOND,
            "end": window.end / MICROSECOND,
            "key": self._shown.key(window.key),
            "aggregates": self._shown.values(window),
        }
        return dumped(found) + b"\n"


class WindowTable(Encoder[Window]):
    """A heading, then a line for each window. ``cut``: cells are cut to their widths."""

    def __init__(self, shown: Shown, *, cut: bool) -> None:
        self._shown = shown
        self._cell = fitted if cut else padded
        self._headed = False

    def encode(self, window: Window) -> bytes:
        head = b"" if self._headed else self._head()
        self._headed = True
        values = [str(window.first), str(window.last), str(window.last - window.first + 1)]
        values += [instant(floor(time / MICROSECOND)) for time in (window.start, window.end)]
        cells = [self._cell(value, width) for value, width in zip(values, _WIDTHS, strict=True)]
        key = self._shown.key(window.key)
        keys = key if isinstance(key, list) else [key] if self._shown.per else []
        cells += [self._cell(_text(value), _CELL) for value in keys]
        aggregates = self._shown.values(window).items()
        cells += [self._cell(_text(value), max(_CELL, len(name))) for name, value in aggregates]
        return head + _row(cells)

    def _head(self) -> bytes:
        names = ["first", "last", "records", "start", "end"]
        cells = [self._cell(name, width) for name, width in zip(names, _WIDTHS, strict=True)]
        cells += [self._cell(name, _CELL) for name in self._shown.per]
        cells += [self._cell(str(a), max(_CELL, len(str(a)))) for a in self._shown.aggregates]
        return _row(cells)


def verdict_json(verdict: Verdict, expression: WindowExpression, alphabet: Alphabet) -> bytes:
    """The verdict of the static check, with a stream on which windows pile up if they can."""
    limits = expression.limits
    found = {
        "open_starts": verdict.open_starts,
        "windows_per_position": verdict.windows_per_position,
        "reason": verdict.reason,
        "lookback": expression.k,
        "selection": expression.selection,
        "limits": {
            "at_least": limits.least if limits.least > 1 else None,
            "at_most": limits.most,
            "within": None if limits.within is None else limits.within / MICROSECOND,
        },
        "witness": None if verdict.witness is None else _witness(verdict.witness, alphabet),
    }
    return escaped(orjson.dumps(found, option=orjson.OPT_INDENT_2)) + b"\n"


def _witness(witness: Witness, alphabet: Alphabet) -> dict[str, object]:
    """The stream as records of a replay: prefix, repeated loop, suffix."""
    relations = alphabet.schema.relations
    return {
        "prefix": witness.prefix,
        "loop": witness.loop,
        "repetitions": witness.repetitions,
        "suffix": witness.suffix,
        "open_starts": witness.open_starts,
        "windows_at_the_end": witness.ending,
        "records": [
            {
                "relation": relations[record.relation].name,
                "time": record.time / MICROSECOND,
                "row": json_row(relations[record.relation], record.row),
            }
            for record in witness.records
        ],
    }


def witness_text(witness: Witness, alphabet: Alphabet) -> str:
    """The stream of a witness as text, a line for each record."""
    relations = alphabet.schema.relations
    lines = []
    for number, record in enumerate(witness.records):
        place = number - witness.prefix
        again = "   again and again:" if place == 0 else ""
        if place == witness.loop * witness.repetitions:
            again = "   then:"
        if place >= witness.loop and place < witness.loop * witness.repetitions:
            continue
        row = json_row(relations[record.relation], record.row)
        values = ", ".join(f"{name}: {json.dumps(value)}" for name, value in row.items())
        lines += [again] if again else []
        lines.append(
            f"  {instant(record.time // MICROSECOND)} {relations[record.relation].name} {{{values}}}"
        )
    return "\n".join(map(visible, lines))


def _seconds(value: Value) -> Value:
    return value / MICROSECOND if isinstance(value, int | float) else value


def _text(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else visible(value_text(value))


def _row(cells: Sequence[str]) -> bytes:
    return ("  ".join(cells).rstrip() + "\n").encode()
