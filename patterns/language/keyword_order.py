"""Keyword queries with an order: ``fraud ; refund``, all of the first before the second."""

from __future__ import annotations

from patterns.language.expression import Expression, Letter, Read, alternation, sequence
from patterns.language.syntax import Keyword, Pattern
from schema.errors import PatternError
from schema.model import Schema


def keyword_order(text: str, schema: Schema) -> Pattern:
    """The pattern of keywords in order: one tuple of any searched stream for each, labelled by the keyword.

    A keyword is a word or a quoted phrase; the same one may come again.
    Raises PatternError.
    """
    steps = [part.strip() for part in _steps(text)]
    streams = [i for i, r in enumerate(schema.relations) if r.search and not r.table]
    if not streams:
        raise PatternError("no stream of the schema is searched for keywords")
    parts: list[Expression] = []
    conditions: list[Keyword] = []
    for number, step in enumerate(steps):
        if not step:
            raise PatternError(f"a keyword is missing before or after ';' in {text!r}")
        variable = f"{number}: {step}"
        parts.append(alternation(*(Read(Letter(i, variable)) for i in streams)))
        conditions.append(Keyword(variable, None, step, (0, len(text))))
    return Pattern(text, sequence(*parts), tuple(conditions))


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
