"""Windows as JSON lines and as a table; the verdict of the static check; drawings of the automata.

A drawing has the states of an automaton in a line, with transitions as arcs
above (forwards) and below (backwards). Guards are in a legend, as they are
often longer than their arcs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from math import floor
from typing import Final

import orjson

from skws.results.names import json_row
from skws.results.result import dumped
from skws.sinks.base import Encoder
from skws.sinks.text import escaped, fitted, instant, padded, value_text, visible
from skws_schema import drawing
from skws_schema.drawing import CHARACTER, SVG_FONT, Cluster, DotEdge, DotNode
from skws_schema.model import AttributeType, Value
from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.automata.regular import WindowExpression
from skws_windows.guards.alphabet import Alphabet
from skws_windows.overlap_verdict import OverlapVerdict, Witness
from skws_windows.processor.panes import Aggregate
from skws_windows.processor.stream_processor import Key, Window
from skws_windows.window import MICROSECOND

_WIDTHS: Final = (8, 8, 8, 20, 20)
_CELL: Final = 14


class Shown:
    """Converts keys and aggregates for output: times are in seconds."""

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
        """The key: None without fields, a value for one field, a list for several."""
        values = [_seconds(v) if timed else v for v, timed in zip(key, self._key_times, strict=True)]
        return (values[0] if len(values) == 1 else values) if values else None

    def values(self, window: Window) -> dict[str, Value]:
        """The aggregates by name."""
        pairs = zip(self.aggregates, window.aggregates, self._times, strict=True)
        return {str(a): _seconds(v) if timed else v for a, v, timed in pairs}


class WindowLines(Encoder[Window]):
    """One JSON object per window."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def encode(self, window: Window) -> bytes:
        fields = {
            "first": window.first,
            "last": window.last,
            "start": window.start / MICROSECOND,
            "end": window.end / MICROSECOND,
            "key": self._shown.key(window.key),
            "aggregates": self._shown.values(window),
        }
        return dumped(fields) + b"\n"


class WindowTable(Encoder[Window]):
    """A heading, then a line for each window. ``cut``: truncate cells to their widths."""

    def __init__(self, shown: Shown, *, cut: bool) -> None:
        self._shown = shown
        self._cell = fitted if cut else padded
        self._has_heading = False

    def encode(self, window: Window) -> bytes:
        head = b"" if self._has_heading else self._head()
        self._has_heading = True
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


def verdict_json(verdict: OverlapVerdict, expression: WindowExpression, alphabet: Alphabet) -> bytes:
    """The verdict of the static check, with a stream on which windows pile up if they can."""
    limits = expression.limits
    fields = {
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
    return escaped(orjson.dumps(fields, option=orjson.OPT_INDENT_2)) + b"\n"


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
        position = number - witness.prefix
        heading = "   repeatedly:" if position == 0 else ""
        if position == witness.loop * witness.repetitions:
            heading = "   then:"
        if position >= witness.loop and position < witness.loop * witness.repetitions:
            continue
        row = json_row(relations[record.relation], record.row)
        values = ", ".join(f"{name}: {json.dumps(value)}" for name, value in row.items())
        lines += [heading] if heading else []
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


_GAP: Final = 110
_RADIUS: Final = 16
_MARGIN: Final = 50
_STYLE: Final = (
    f"text{{{SVG_FONT};"
    "paint-order:stroke;stroke:#fff;stroke-width:3px}"  # keeps a label readable if an arc crosses it
    "circle,path{fill:none;stroke:#52708c}.final{stroke-width:1}.head{fill:#52708c}"
)


def automata(expression: WindowExpression) -> Iterator[tuple[str, LookbackAutomaton]]:
    for number, pair in enumerate(expression.pairs, start=1):
        suffix = f" {number}" if len(expression.pairs) > 1 else ""
        yield f"before the window{suffix}", pair.before
        yield f"window{suffix}", pair.window


def to_dot(expression: WindowExpression) -> str:
    """A digraph with a cluster for each automaton; final states have double borders."""
    clusters = []
    for number, (title, automaton) in enumerate(automata(expression)):
        start, state = f"s{number}", f"q{number}_"
        members: list[DotNode | DotEdge] = [DotNode(start, style="shape=point")]
        members.append(DotEdge(start, f"{state}{automaton.initial}"))
        for state_number in range(automaton.states):
            final = "peripheries=2" if state_number in automaton.final else ""
            members.append(DotNode(f"{state}{state_number}", str(state_number), final))
        for p, guard, q in automaton.transitions:
            members.append(DotEdge(f"{state}{p}", f"{state}{q}", visible(str(guard))))
        clusters.append(Cluster(visible(title), members))
    return drawing.to_dot("windows", clusters, ["rankdir=LR", "node [shape=circle]"])


def to_svg(expression: WindowExpression) -> str:
    """One picture, with the automata below each other."""
    parts: list[str] = []
    top, width = 0.0, 300.0
    for title, automaton in automata(expression):
        elements, automaton_width, height = _automaton_svg(title, automaton, top)
        parts += elements
        top += height
        width = max(width, automaton_width)
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
    )
    return drawing.to_svg(width, top, _STYLE, [marker, *parts])


def _automaton_svg(title: str, automaton: LookbackAutomaton, top: float) -> tuple[list[str], float, float]:
    """The elements of one automaton, and their width and height."""
    span = max((abs(p - q) for p, _, q in automaton.transitions), default=1)
    rise = 30 + 22 * max(span, 1)
    axis = top + 30 + rise
    names = {guard: f"g{i}" for i, guard in enumerate(automaton.guards, start=1)}
    parts = [_svg_text(10, top + 20, f"{title}:")]
    entry_x = _x(automaton.initial)
    parts.append(_path(f"M{entry_x - 40},{axis} H{entry_x - _RADIUS}"))
    for state in range(automaton.states):
        parts.append(f'<circle cx="{_x(state)}" cy="{axis}" r="{_RADIUS}"/>')
        if state in automaton.final:
            parts.append(f'<circle class="final" cx="{_x(state)}" cy="{axis}" r="{_RADIUS - 4}"/>')
        parts.append(_svg_text(_x(state) - 3 * len(str(state)), axis + 4, str(state)))
    for p, guard, q in automaton.transitions:
        parts += _arc(p, q, names[guard], axis)
    legend = [f"{name}: {guard}" for guard, name in names.items()]
    below = axis + rise + 10
    parts += [_svg_text(20, below + 16 * i, line) for i, line in enumerate(legend)]
    width = max([_x(automaton.states) + 20, *(40 + CHARACTER * len(line) for line in legend)])
    return parts, width, below + 16 * len(legend) + 10 - top


def _arc(p: int, q: int, label: str, axis: float) -> list[str]:
    if p == q:
        x = _x(p)
        loop = f"M{x - 8},{axis - 14} C{x - 30},{axis - 52} {x + 30},{axis - 52} {x + 8},{axis - 14}"
        return [_path(loop), _svg_text(x - 6, axis - 46, label)]
    side = -1 if q > p else 1
    begin, end = _x(p) - side * 11, _x(q) + side * 11
    edge, middle, bend = axis + side * 12, (_x(p) + _x(q)) / 2, axis + side * (18 + 40 * abs(p - q))
    curve = f"M{begin},{edge} Q{middle},{bend} {end},{edge}"
    return [_path(curve), _svg_text(middle - 6, (edge + bend) / 2 + side * 4 + (8 if side > 0 else 0), label)]


def _x(state: int) -> float:
    return _MARGIN + _RADIUS + state * _GAP


def _path(data: str) -> str:
    return f'<path d="{data}" marker-end="url(#head)"/>'


def _svg_text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" xml:space="preserve">{escape(visible(text))}</text>'
