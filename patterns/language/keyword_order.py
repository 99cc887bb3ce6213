"""Keyword queries with an order: ``fraud ; refund``, all of the first before the second."""

from __future__ import annotations

from patterns.language.parse import parse_pattern
from patterns.language.syntax import Pattern
from schema.errors import PatternError
from schema.model import Schema


def keyword_order(text: str, schema: Schema) -> Pattern:
    """The pattern of keywords in order: one tuple of any searched stream for each, labelled by the keyword.

    A keyword is whatever a keyword query understands, such as a word or a
    quoted phrase. Raises PatternError.
    """
    steps = [step.strip() for step in _steps(text)]
    if not all(steps):
        raise PatternError(f"a keyword is missing before or after ';' in {text!r}")
    return parse_pattern(" ; ".join(map(_quoted, steps)), schema)


def _quoted(step: str) -> str:
    escaped = step.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _steps(text: str) -> list[str]:
    """The parts between semicolons that stand outside quotes."""
    steps, quoted = [""], False
    for character in text:
        quoted ^= character == '"'
        if character == ";" and not quoted:
            steps.append("")
        else:
            steps[-1] += character
    return steps
