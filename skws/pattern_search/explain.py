"""What becomes of a pattern: its window, its q-tree if it is a query, its automaton, and its memory."""

from __future__ import annotations

from patterns.drawing import AutomatonDrawing
from patterns.queries import ConjunctiveQuery, compact, qtree
from patterns.queries.qtree import drawing
from schema.model import Schema
from skws.bounded.patterns import memory_lines
from skws.pattern_search.text import read_query
from windows.window import Unbounded, Window, parse_window, window_text


def pattern_text(text: str, schema: Schema, window: Window | None) -> str:
    """An explanation to read. Raises PatternError, QueryError."""
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
