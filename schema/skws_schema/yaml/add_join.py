"""Adds a join to the YAML of a schema, and leaves all other lines unchanged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final

from skws_schema.errors import SchemaError, UsageError, nearest, shown
from skws_schema.model import AttributeType, Join, Schema, sides
from skws_schema.yaml.document import join_lines
from skws_schema.yaml.load import Side, parse_condition, parse_schema
from skws_schema.yaml.suggested_joins import possible_of

_JOINS: Final = re.compile(r"joins:\s*(?:\[\s*\])?\s*(?:#.*)?")
_EMPTY: Final = re.compile(r"\s*\[\s*\]")
_ITEM: Final = re.compile(r"\s*-\s.*|\s*-")


def join_of(conditions: Sequence[str], schema: Schema) -> Join:
    """A join with conditions such as ``tickets.opened_by=users.id``.

    Raises UsageError for a text that is not a condition, an unknown attribute, or types that cannot be equal.
    """
    pairs = []
    for text in conditions:
        try:
            left, right = parse_condition(text)
        except ValueError as error:
            raise UsageError(str(error)) from None
        types = [_type(side, schema) for side in (left, right)]
        if types[0].family is not types[1].family:
            raise UsageError(f"{left} is {types[0]} but {right} is {types[1]}; a join needs equal types")
        pairs.append((left, right))
    first = pairs[0]
    names = (first[0].relation, first[1].relation)
    on = []
    for left, right in pairs:
        if (left.relation, right.relation) != names:
            left, right = right, left  # noqa: PLW2901 - the same condition, sides exchanged
        if (left.relation, right.relation) != names:
            expected = " and ".join(names)
            raise UsageError(f"{left} = {right}: expected a condition between {expected}, as the first one")
        on.append((left.attribute, right.attribute))
    return Join.of(*names, tuple(dict.fromkeys(on)))


def with_join(text: str, join: Join, folder: Path | None = None) -> str:
    """The YAML of a schema with another join, in place of the comment that suggests it.

    ``folder``: that of the files to which the YAML refers. Raises UsageError if it has the join already, or
    if its list of joins is not written line by line.
    """
    joins = [sides(existing) for existing in parse_schema(text, folder=folder).joins]
    if sides(join) in joins:
        raise UsageError(f"the schema has the join {join.name}")
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = _with_line(text.replace("\r\n", "\n").removesuffix("\n").split("\n"), join)
    new_text = "".join(f"{line}{line_end}" for line in lines or ())
    if lines is None or not _has_joins(new_text, [*joins, sides(join)], folder):
        raise UsageError(f"add this line under joins: with an editor: {' '.join(join_lines(join)).strip()}")
    return new_text


def _has_joins(text: str, joins: Sequence[Hashable], folder: Path | None) -> bool:
    try:
        return Counter(map(sides, parse_schema(text, folder=folder).joins)) == Counter(joins)
    except SchemaError:  # such as a line after the end of the document
        return False


def _with_line(lines: list[str], join: Join) -> list[str] | None:
    """The lines with the join; None if the list of joins is not written line by line."""
    head = next((n for n, line in enumerate(lines) if _JOINS.fullmatch(line)), None)
    if head is None:
        if any(line.startswith("joins") for line in lines):
            return None
        head = len(lines)
        lines = [*lines, "joins:"]
    lines[head] = _EMPTY.sub("", lines[head])
    indent, end = _items(lines, head)
    suggestion = next((n for n in range(head + 1, len(lines)) if _suggests(lines[n], join)), None)
    span = slice(end, end) if suggestion is None else slice(suggestion, suggestion + 1)
    lines[span] = [f"{indent}{line[2:]}" for line in join_lines(join)]
    return lines


def _suggests(line: str, join: Join) -> bool:
    possible = possible_of(line)
    if possible is None:
        return False
    try:
        left, right = parse_condition(possible.on)
    except ValueError:  # another comment
        return False
    return {(left.relation, left.attribute), (right.relation, right.attribute)} in map(set, sides(join))


def _type(side: Side, schema: Schema) -> AttributeType:
    if side.relation not in schema.index:
        raise UsageError(f"no relation {shown(side.relation)}{nearest(side.relation, schema.index)}")
    types = {a.name: a.type for a in schema.relation(side.relation).attributes}
    if side.attribute not in types:
        raise UsageError(
            f"no attribute {shown(side.attribute)} in {shown(side.relation)}{nearest(side.attribute, types)}"
        )
    return types[side.attribute]


def _items(lines: Sequence[str], head: int) -> tuple[str, int]:
    """The indentation of the list below a line, and the number of the line after its last item."""
    indent, end = "  ", head + 1
    for number in range(head + 1, len(lines)):
        line = lines[number]
        if line.strip() and not line.startswith((" ", "-", "#")):
            break
        if _ITEM.fullmatch(line):
            if end == head + 1:
                indent = line[: len(line) - len(line.lstrip())]
            end = number + 1
        elif line.strip() and not line.lstrip().startswith("#"):
            end = number + 1
    return indent, end
