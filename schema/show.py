"""A schema written out: for people, for Graphviz, and as the YAML it can be read from again."""

from __future__ import annotations

from collections.abc import Iterator

from schema.drawing import draw
from schema.model import Attribute, Join, Relation, Schema
from schema.write import bound_text, to_yaml

__all__ = ["show", "to_dot", "to_yaml"]


def show(schema: Schema) -> str:
    """Relations, joins and the join graph as indented text; equal schemas read the same."""
    return "\n".join(_lines(schema)) + "\n"


def to_dot(schema: Schema) -> str:
    """The join graph in Graphviz' DOT language."""
    lines = [f"graph {_quoted(schema.name)} {{", "  node [shape=box];"]
    lines += [f"  {_quoted(r.name)}{' [style=dashed]' if r.table else ''};" for r in schema.relations]
    lines += [f"  {_quoted(j.left)} -- {_quoted(j.right)} [label={_quoted(j.name)}];" for j in schema.joins]
    return "\n".join([*lines, "}"]) + "\n"


def _lines(schema: Schema) -> Iterator[str]:
    yield f"{schema.name}: {len(schema.relations)} relations, {len(schema.joins)} joins"
    yield f"window: {schema.window}"
    yield ""
    yield "relations"
    for relation in schema.relations:
        yield f"  {relation.name}{_kind(relation)}"
        yield from (f"    {line}" for line in _attribute_lines(relation))
    yield ""
    yield "joins"
    for join in schema.joins:
        condition = " and ".join(_conditions(join))
        yield f"  {join.name}" + ("" if join.name == condition else f": {condition}")
    yield ""
    yield "join graph"
    yield from (f"  {line}" for line in draw(schema))


def _kind(relation: Relation) -> str:
    kinds = [word for word, on in (("table", relation.table), ("finite", relation.finite)) if on]
    return f" ({', '.join(kinds)})" if kinds else ""


def _attribute_lines(relation: Relation) -> Iterator[str]:
    width = max(len(a.name) for a in relation.attributes)
    for attribute in relation.attributes:
        roles = [
            role
            for role, names in (
                ("key", relation.key),
                ("search", relation.search),
                ("time", (relation.time,)),
            )
            if attribute.name in names
        ]
        notes = ", ".join(roles + _bounds(attribute))
        yield f"{attribute.name:<{width}}  {attribute.type:<9}  {notes}".rstrip()


def _bounds(attribute: Attribute) -> list[str]:
    ends = (("min", attribute.min), ("max", attribute.max))
    return [f"{end} {bound_text(attribute, value)}" for end, value in ends if value is not None]


def _conditions(join: Join) -> list[str]:
    return [f"{join.left}.{left} = {join.right}.{right}" for left, right in join.on]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
