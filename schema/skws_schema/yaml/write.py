"""Writes a schema as YAML, laid out as people write it.

Line by line: a YAML library's emitter would quote the key ``on`` for readers of
YAML 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import yaml

from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Schema, Unknown
from skws_schema.values import iso
from skws_schema.yaml.located import SCALARS, TAG_PREFIX

WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""


for _name, _pattern in SCALARS.items():
    _Dumper.add_implicit_resolver(TAG_PREFIX + _name, _pattern, None)


def to_yaml(schema: Schema) -> str:
    """YAML from which ``parse_schema`` reads an equal schema; defaults are left out."""
    lines = head(schema.name, schema.window)
    if schema.synonyms:
        lines += ["synonyms:", *(f"  - {scalar(', '.join(group))}" for group in schema.synonyms)]
    if schema.unknown is not Unknown.IGNORE:
        lines += [f"unknown: {schema.unknown}"]
    lines += ["relations:"]
    for relation in schema.relations:
        lines += _relation_lines(relation)
    lines += ["joins:" if schema.joins else "joins: []"]
    lines += [line for join in schema.joins for line in join_lines(join)]
    return "\n".join(lines) + "\n"


def scalar(value: str | int | float) -> str:
    """One value, quoted where necessary, for flow and block style."""
    plain = not isinstance(value, str) or value.isprintable()
    return _flow(value, None if plain else '"')


def head(name: str, window: str) -> list[str]:
    """The lines above the relations."""
    return ["version: 1", f"name: {scalar(name)}", f"window: {scalar(window)}"]


def names(items: Iterable[str]) -> str:
    """A list of names in one line."""
    return f"[{', '.join(map(scalar, items))}]"


def attribute_text(attribute: Attribute) -> str:
    """An attribute's type, with its bounds, its analyzer and what records call it if it has any."""
    bounds = _bounds(attribute)
    if attribute.analyzer is not Analyzer.ENGLISH:
        bounds += f", analyzer: {attribute.analyzer}"
    if attribute.origin is not None:
        bounds += f", from: {scalar(attribute.origin)}"
    return f"{{type: {attribute.type}{bounds}}}" if bounds else attribute.type.value


def join_lines(join: Join) -> list[str]:
    conditions = [f"{join.left}.{left} = {join.right}.{right}" for left, right in join.on]
    written = [scalar(condition) for condition in conditions]
    on = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    if join.name == " and ".join(conditions):
        return [f"  - {on}" if len(written) == 1 else f"  - on: {on}"]
    line = f"  - {{name: {scalar(join.name)}, on: {on}}}"
    return [line] if len(line) <= WIDTH else [f"  - name: {scalar(join.name)}", f"    on: {on}"]


def mapping_lines(name: str, entries: Mapping[str, str]) -> list[str]:
    """A mapping inside a relation, in one line if it fits."""
    items = [f"{scalar(key)}: {text}" for key, text in entries.items()]
    line = f"    {name}: {{{', '.join(items)}}}"
    return [line] if len(line) <= WIDTH else [f"    {name}:", *(f"      {item}" for item in items)]


def _relation_lines(relation: Relation) -> Iterator[str]:
    yield f"  {scalar(relation.name)}:"
    yield from mapping_lines("attributes", {a.name: attribute_text(a) for a in relation.attributes})
    if relation.key:
        yield f"    key: {names(relation.key)}"
    if relation.search != tuple(a.name for a in relation.attributes if a.type is AttributeType.TEXT):
        yield f"    search: {names(relation.search)}"
    if relation.time is not None:
        yield f"    time: {scalar(relation.time)}"
    if relation.table:
        yield "    table: true"
    if relation.source is not None:
        yield f"    source: {scalar(relation.source)}"
    if relation.finite:
        yield "    finite: true"


def _bounds(attribute: Attribute) -> str:
    ends = (("min", attribute.min), ("max", attribute.max))
    return "".join(f", {end}: {bound_text(attribute, value)}" for end, value in ends if value is not None)


def bound_text(attribute: Attribute, value: int | float) -> str:
    """A ``min`` or ``max`` as it is written."""
    if attribute.type is AttributeType.TIMESTAMP:
        return scalar(iso(int(value)))
    return scalar(value)


def _flow(value: str | int | float, style: str | None) -> str:
    dumped: str = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        default_style=style,
        allow_unicode=True,
        width=1 << 30,
    )
    return dumped.strip()[1:-1].strip()
