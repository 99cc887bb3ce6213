"""The automata of a window expression as Graphviz' DOT, or as SVG.

The SVG has the states of an automaton in a line, with transitions as arcs
above (forwards) and below (backwards). Guards are in a legend, as they are
often longer than their arcs.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from skws.sinks.text import visible
from skws_schema import drawing
from skws_schema.drawing import CHARACTER, SVG_FONT, Cluster, Edge, Node
from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.language.expression import WindowExpression

_GAP: Final = 110
_RADIUS: Final = 16
_MARGIN: Final = 50
_STYLE: Final = (
    f"text{{{SVG_FONT};"
    "paint-order:stroke;stroke:#fff;stroke-width:3px}"  # a label stands out where an arc crosses it
    "circle,path{fill:none;stroke:#52708c}.final{stroke-width:1}.head{fill:#52708c}"
)


def automata(expression: WindowExpression) -> Iterator[tuple[str, LookbackAutomaton]]:
    for number, pair in enumerate(expression.pairs, start=1):
        of = f" {number}" if len(expression.pairs) > 1 else ""
        yield f"before the window{of}", pair.before
        yield f"window{of}", pair.window


def to_dot(expression: WindowExpression) -> str:
    """A digraph with a cluster for each automaton; final states have double borders."""
    clusters = []
    for number, (title, automaton) in enumerate(automata(expression)):
        start, state = f"s{number}", f"q{number}_"
        members: list[Node | Edge] = [Node(start, style="shape=point")]
        members.append(Edge(start, f"{state}{automaton.initial}"))
        for each in range(automaton.states):
            final = "peripheries=2" if each in automaton.final else ""
            members.append(Node(f"{state}{each}", str(each), final))
        for p, guard, q in automaton.transitions:
            members.append(Edge(f"{state}{p}", f"{state}{q}", visible(str(guard))))
        clusters.append(Cluster(visible(title), members))
    return drawing.to_dot("windows", clusters, ["rankdir=LR", "node [shape=circle]"])


def to_svg(expression: WindowExpression) -> str:
    """One picture, with the automata below each other."""
    parts: list[str] = []
    top, width = 0.0, 300.0
    for title, automaton in automata(expression):
        drawn, wide, high = _drawn(title, automaton, top)
        parts += drawn
        top += high
        width = max(width, wide)
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
    )
    return drawing.to_svg(width, top, _STYLE, [marker, *parts])


def _drawn(title: str, automaton: LookbackAutomaton, top: float) -> tuple[list[str], float, float]:
    """The elements of one automaton, and their width and height."""
    span = max((abs(p - q) for p, _, q in automaton.transitions), default=1)
    rise = 30 + 22 * max(span, 1)
    axis = top + 30 + rise
    names = {guard: f"g{i}" for i, guard in enumerate(automaton.guards, start=1)}
    parts = [_text(10, top + 20, f"{title}:")]
    entry = _x(automaton.initial)
    parts.append(_path(f"M{entry - 40},{axis} H{entry - _RADIUS}"))
    for state in range(automaton.states):
        parts.append(f'<circle cx="{_x(state)}" cy="{axis}" r="{_RADIUS}"/>')
        if state in automaton.final:
            parts.append(f'<circle class="final" cx="{_x(state)}" cy="{axis}" r="{_RADIUS - 4}"/>')
        parts.append(_text(_x(state) - 3 * len(str(state)), axis + 4, str(state)))
    for p, guard, q in automaton.transitions:
        parts += _arc(p, q, names[guard], axis)
    legend = [f"{name}: {guard}" for guard, name in names.items()]
    below = axis + rise + 10
    parts += [_text(20, below + 16 * i, line) for i, line in enumerate(legend)]
    wide = max([_x(automaton.states) + 20, *(40 + CHARACTER * len(line) for line in legend)])
    return parts, wide, below + 16 * len(legend) + 10 - top


def _arc(p: int, q: int, label: str, axis: float) -> list[str]:
    if p == q:
        x = _x(p)
        loop = f"M{x - 8},{axis - 14} C{x - 30},{axis - 52} {x + 30},{axis - 52} {x + 8},{axis - 14}"
        return [_path(loop), _text(x - 6, axis - 46, label)]
    side = -1 if q > p else 1
    begin, end = _x(p) - side * 11, _x(q) + side * 11
    edge, middle, bend = axis + side * 12, (_x(p) + _x(q)) / 2, axis + side * (18 + 40 * abs(p - q))
    curve = f"M{begin},{edge} Q{middle},{bend} {end},{edge}"
    return [_path(curve), _text(middle - 6, (edge + bend) / 2 + side * 4 + (8 if side > 0 else 0), label)]


def _x(state: int) -> float:
    return _MARGIN + _RADIUS + state * _GAP


def _path(data: str) -> str:
    return f'<path d="{data}" marker-end="url(#head)"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" xml:space="preserve">{escape(visible(text))}</text>'
