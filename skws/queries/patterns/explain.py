"""Explains a pattern: its window, the q-tree of a conjunctive query, its automaton, and its memory."""

from __future__ import annotations

from skws.queries.patterns.normal_form import memory_lines
from skws.queries.patterns.text import read_query
from skws_patterns.drawing import AutomatonDrawing
from skws_patterns.queries.hcq import ConjunctiveQuery
from skws_patterns.queries.qtree import compact, drawing, qtree
from skws_schema.model import Schema
from skws_windows.window import Unbounded, Window, parse_window, window_text


def pattern_text(text: str, schema: Schema, window: Window | None) -> str:
    """The explanation as text. Raises PatternError, QueryError."""
    query = read_query(text, schema)
    used = window or query.window or parse_window(schema.window)
    parts = [f"pattern: {text}", f"window: {window_text(used)}"]
    if isinstance(query.source, ConjunctiveQuery):
        names = tuple(relation.name for relation in schema.relations)
        tree = drawing(query.source, compact(qtree(query.source)), names)
        parts.append("compact q-tree:\n" + "\n".join(f"  {line}" for line in tree.splitlines()))
    shared = f"the value of {query.root.name}" if query.root else "time: not all tuples share a value"
    parts.append(f"shared out by {shared}")
    parts.append(f"automaton: {AutomatonDrawing(query.pcea, schema).text()}")
    if isinstance(used, Unbounded):
        parts += memory_lines(text, schema)
    return "\n".join(parts) + "\n"


def pattern_dot(text: str, schema: Schema) -> str:
    """The automaton in the DOT language. Raises PatternError, QueryError."""
    return AutomatonDrawing(read_query(text, schema).pcea, schema).dot()
