"""The YAML document of a schema: one pydantic model per level, messages for faults, and a writer.

The models define the keys, the shape of their values, and the help that editors show. Faults are reported at
their line, in the words of the format. Rules that involve several entries (names that must exist, types that
must agree) are in ``skws_schema.yaml.check``.

The writer lays a schema out line by line, as people do: a YAML library would quote the key ``on`` for readers
of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
)

from skws_schema.errors import nearest, shown
from skws_schema.model import (
    Analyzer,
    Attribute,
    AttributeType,
    Join,
    Relation,
    Schema,
    Unknown,
    VersionOrder,
    iso,
)
from skws_schema.yaml.located import SCALARS, TAG_PREFIX, Data, Located, Path

_NAME = re.compile(r"\w[\w-]*")
NAME_RULE = "a name is made of letters, digits, '_' and '-', and does not start with '-'"


def is_name(text: str) -> bool:
    """True if ``text`` can name a relation or an attribute; ``.`` and ``:`` belong to the query language."""
    return _NAME.fullmatch(text) is not None


def as_name(text: str) -> str:
    """A valid name like ``text``: ``Order ID`` becomes ``Order_ID``. Empty if no character is allowed."""
    return text if is_name(text) else re.sub(r"[^\w-]+", "_", text).strip("_-")


def _check_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{shown(text)} cannot be a name: {NAME_RULE}")
    return text


def _short_or_long(value: object) -> str | None:
    """The notation in use, so that pydantic reports only the errors of that notation."""
    if isinstance(value, str):
        return "(short)"
    return "(long)" if isinstance(value, dict | BaseModel) else None


def _check_bound(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a number or a timestamp")  # noqa: TRY004 - pydantic takes ValueError
    return value


def _one_or_several(value: object) -> str | None:
    if isinstance(value, str):
        return "(one)"
    return "(several)" if isinstance(value, list) else None


# For editors, in whose regular expressions \w matches only ASCII.
_NAME_PATTERN = r"^[^\s!-/:-@\[-^`{-~][^\s!-,./:-@\[-^`{-~]*$"

Name: TypeAlias = Annotated[
    str, Strict(), AfterValidator(_check_name), Field(json_schema_extra={"pattern": _NAME_PATTERN})
]
Text: TypeAlias = Annotated[str, Strict(), Field(min_length=1)]
Flag: TypeAlias = Annotated[bool, Strict()]
Bound: TypeAlias = Annotated[int | float | str, BeforeValidator(_check_bound)]
Conditions: TypeAlias = Annotated[
    Annotated[Text, Tag("(one)")] | Annotated[list[Text], Field(min_length=1), Tag("(several)")],
    Discriminator(_one_or_several),
]


Synonyms: TypeAlias = Annotated[
    Annotated[Text, Tag("(one)")] | Annotated[list[Text], Tag("(several)")], Discriminator(_one_or_several)
]


class _Level(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class AttributeDocument(_Level):
    """An attribute with more than a type."""

    type: AttributeType
    """The type of its values; only text is searched for keywords."""
    min: Bound | None = Field(default=None, examples=[0, "2026-01-01T00:00:00Z"])
    """Smallest possible value. For integer, number and timestamp."""
    max: Bound | None = Field(default=None, examples=[10, "2026-12-31T23:59:59Z"])
    """Largest possible value. For integer, number and timestamp."""
    analyzer: Analyzer | None = Field(default=None, examples=["german"])
    """How keywords match a text: by the stems of a language; simple: words without case and accents; none:
    the whole text, character by character (default: that of the relation)."""
    order: VersionOrder | None = Field(default=None, examples=["debian"])
    """The order in which conditions compare versions. For text and string."""
    origin: Text | None = Field(default=None, alias="from", examples=["Order ID", "customer.address.city"])
    """Its column in records, or a path into nested objects and arrays, with dots between (default: its name).
    The texts of an array are joined with commas."""


AttributeEntry: TypeAlias = Annotated[
    Annotated[AttributeType, Tag("(short)")] | Annotated[AttributeDocument, Tag("(long)")],
    Discriminator(_short_or_long),
]


class RelationDocument(_Level):
    """A stream of tuples, or a static table."""

    attributes: dict[Name, AttributeEntry] = Field(
        min_length=1, examples=[{"mid": "integer", "title": "text", "released": "timestamp"}]
    )
    """Name and type of each attribute, in the order of the rows."""
    key: list[Name] = Field(default=[], examples=[["mid"]])
    """Attributes unique among live tuples.

    A row with the key of a live one replaces it. NULL equals nothing.
    """
    search: list[Name] | None = Field(default=None, examples=[["title"]])
    """Text attributes that keywords are matched with (default: every text attribute)."""
    analyzer: Analyzer = Field(default=Analyzer.ENGLISH, examples=["german"])
    """The analyzer of all text attributes that have none of their own."""
    time: Name | None = Field(default=None, examples=["released"])
    """The timestamp attribute with the event time (default: the record's own time)."""
    table: Flag = False
    """A static table, loaded before the streams; its tuples never expire."""
    source: Text | None = Field(default=None, examples=["movies.parquet", "sqlite:movies.db"])
    """The file, folder or database (sqlite:FILE, postgresql://...) with the rows of a table (default: they
    arrive with the streams). A path is relative to this file."""
    origin: Text | None = Field(default=None, alias="from", examples=["commits.files", "Order Details"])
    """Its table in a database (default: its name), or the array that holds its rows: RELATION.PATH is an
    array of objects in the rows of another relation or, with its own name, in objects that are not rows."""
    finite: Flag = False
    """A stream that ends, so that all of it fits in bounded memory."""


class JoinDocument(_Level):
    """A named or a composite join."""

    name: Text | None = Field(default=None, examples=["cast_of"])
    """Its name in networks and results (default: its condition)."""
    on: Conditions = Field(examples=["movie.mid = plays.mid", ["a.x = b.x", "a.y = b.y"]])
    """One condition, or the conditions of a composite key."""


JoinEntry: TypeAlias = Annotated[
    Annotated[Text, Field(examples=["director.did = movie.did"]), Tag("(short)")]
    | Annotated[JoinDocument, Tag("(long)")],
    Discriminator(_short_or_long),
]


class Document(_Level):
    """A stream schema: the relations that arrive as streams, and how their tuples join."""

    version: Literal[1] = 1
    """Version of this format."""
    name: Text | None = Field(default=None, examples=["movies"])
    """The name of the schema (default: the name of its file)."""
    window: Text = Field(default="none", examples=["20 minutes", "1000 tuples", "none"])
    """How long tuples live: a duration, a number of tuples, none, or a window expression."""
    synonyms: Synonyms | None = Field(default=None, examples=["synonyms.txt", ["car, automobile"]])
    """Groups of words with the same meaning in queries, separated by commas: a list of groups, or a file with
    one group per line, relative to this file."""
    relations: dict[Name, RelationDocument] = Field(min_length=1)
    """The relations, by name."""
    unknown: Unknown = Field(default=Unknown.IGNORE, examples=["fail"])
    """Attributes of records that no relation has: ignore skips and counts them, fail treats their records as
    bad."""
    joins: list[JoinEntry] | None = Field(default=None, examples=[["director.did = movie.did"]])
    """The conditions on which tuples of two relations, or of one, are joined."""


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a schema's YAML, as plain data."""
    schema_json: dict[str, Any] = Document.model_json_schema()
    _close(schema_json)
    return {"$schema": DIALECT, **schema_json, "title": "skws stream schema"}


def _close(node: object) -> None:
    """Reject keys that are not names: pydantic's schema allows any key beside its pattern."""
    if isinstance(node, dict):
        if "patternProperties" in node:
            node["additionalProperties"] = False
        for value in node.values():
            _close(value)
    elif isinstance(node, list):
        for value in node:
            _close(value)


_TYPES = ", ".join(AttributeType)
_ANALYZERS = ", ".join(Analyzer)
_NAMES = "a list of attribute names, such as [mid]"

_LEVELS: dict[tuple[str, ...], tuple[type[BaseModel], str]] = {
    (): (Document, "a mapping with 'relations' and 'joins'"),
    ("relations", "*"): (RelationDocument, "a mapping with 'attributes'"),
    ("relations", "*", "attributes", "*"): (AttributeDocument, f"a type ({_TYPES})"),
    ("joins", "*"): (JoinDocument, "a condition such as a.x = b.y, or a mapping with 'on'"),
}
_EXPECTED: dict[tuple[str, ...], str] = {
    **{level: expected for level, (_, expected) in _LEVELS.items()},
    ("version",): "1, the version of this format",
    ("name",): "a name (text)",
    ("window",): "a duration with its unit (20 minutes), a number of tuples (1000 tuples) or none",
    ("synonyms",): 'the name of a file, or a list of groups such as ["car, automobile"]',
    ("synonyms", "*"): 'words that mean the same, such as "car, automobile"',
    ("unknown",): f"one of {', '.join(Unknown)}",
    ("relations",): "a mapping from names to relations",
    ("joins",): "a list of joins",
    ("relations", "*", "attributes"): "a mapping from names to types, such as {mid: integer}",
    ("relations", "*", "key"): _NAMES,
    ("relations", "*", "search"): _NAMES,
    ("relations", "*", "key", "*"): "the name of an attribute",
    ("relations", "*", "search", "*"): "the name of an attribute",
    ("relations", "*", "analyzer"): f"an analyzer ({_ANALYZERS})",
    ("relations", "*", "attributes", "*", "analyzer"): f"an analyzer ({_ANALYZERS})",
    ("relations", "*", "attributes", "*", "order"): f"an order of versions ({', '.join(VersionOrder)})",
    ("relations", "*", "time"): "the name of an attribute",
    ("relations", "*", "table"): "true or false",
    ("relations", "*", "source"): "a path or an address (text)",
    ("relations", "*", "from"): "the name of a table, or RELATION.PATH of an array",
    ("relations", "*", "finite"): "true or false",
    ("relations", "*", "attributes", "*", "type"): f"a type ({_TYPES})",
    ("relations", "*", "attributes", "*", "from"): "a column of records, or a path with dots",
    ("relations", "*", "attributes", "*", "min"): "a number or a timestamp",
    ("relations", "*", "attributes", "*", "max"): "a number or a timestamp",
    ("joins", "*", "name"): "a name (text)",
    ("joins", "*", "on"): "a condition such as a.x = b.y, or a list of them",
    ("joins", "*", "on", "*"): "a condition such as a.x = b.y",
}
_ITEMS = {"relations": "relation", "attributes": "attribute", "on": "condition"}


def read_shape(located: Located) -> Document | None:
    """The document; None if its shape is wrong, with each fault reported."""
    try:
        return Document.model_validate(located.data)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _report(located, fault)
        return None


def value_text(value: Data) -> str:
    """A value of the document, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    return shown(value) if isinstance(value, str) else f"the number {shown(value)}"


def _report(located: Located, fault: Mapping[str, Any]) -> None:
    path = _path(located.data, fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            located.report(located.key_place(path), _unknown_key(path))
        case "missing":
            if not _is_misspelt(located.at(path[:-1]), path):
                located.report(
                    located.key_place(path[:-1]), f"{_subject(path[:-1])}{shown(path[-1])} is missing"
                )
        case "value_error" if fault["loc"][-1] == "[key]":
            located.report(located.key_place(path), str(fault["ctx"]["error"]))
        case "enum" if isinstance(fault["input"], str):
            located.report(located.value_place(path), _unknown_choice(path, fault["input"]))
        case "too_short":
            located.report(
                located.key_place(path),
                f"{_subject(path)}expected at least one {_ITEMS[str(path[-1])]}, found none",
            )
        case _:
            expected = _EXPECTED.get(_pattern(path), "something else")
            message = f"{_subject(path)}expected {expected}, found {value_text(fault['input'])}"
            located.report(located.value_place(path), message)


def _path(data: Data, loc: tuple[str | int, ...]) -> Path:
    """The keys in ``loc``, without pydantic's marks such as ``(long)`` and ``[key]``."""
    path: list[str | int] = []
    for step in loc:
        if isinstance(data, dict) and isinstance(step, str):
            if step in data or step[:1] not in {"(", "["}:
                path.append(step)
                data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step]
    return tuple(path)


def _pattern(path: Path) -> tuple[str, ...]:
    """``path`` with ``*`` in place of the names and numbers that the user chose."""
    return tuple("*" if depth in {1, 3} else str(step) for depth, step in enumerate(path))


def _subject(path: Path) -> str:
    """The subject of a message, as a prefix."""
    names = [str(step) for step in path if isinstance(step, str)]
    if names[:1] == ["relations"] and len(names) > 1:
        del names[0]
        if names[1:2] == ["attributes"] and len(names) > 2:
            del names[1]
    return ".".join(names) + ": " if names else ""


def _unknown_key(path: Path) -> str:
    keys = _keys(path[:-1])
    key = str(path[-1])
    hint = nearest(key, keys) or f"; expected one of {', '.join(keys)}"
    return f"{_subject(path[:-1])}unknown key {shown(key)}{hint}"


def _keys(path: Path) -> list[str]:
    """The keys of the mapping at ``path``, as they are written."""
    model, _ = _LEVELS[_pattern(path)]
    return [field.alias or name for name, field in model.model_fields.items()]


_CHOICES: dict[str | int, tuple[type[StrEnum], str]] = {
    "analyzer": (Analyzer, "analyzer"),
    "order": (VersionOrder, "order of versions"),
    "unknown": (Unknown, "choice for unknown attributes"),
}


def _unknown_choice(path: Path, value: str) -> str:
    kind, noun = _CHOICES.get(path[-1], (AttributeType, "type"))
    choices = [choice.value for choice in kind]
    hint = nearest(value.lower(), choices)
    if kind is AttributeType and value.lower() in {"version", "semver"}:
        hint = "; versions are texts with an order: {type: string, order: semantic}, or debian"
    return f"unknown {noun} {shown(value)}; expected one of {', '.join(choices)}{hint}"


def _is_misspelt(siblings: Data, path: Path) -> bool:
    """True if an unknown key looks like the missing one; the message about that key is enough."""
    keys = _keys(path[:-1])
    extra = [key for key in siblings if key not in keys] if isinstance(siblings, dict) else []
    return any(nearest(key, keys) == nearest(str(path[-1]), keys) for key in extra)


WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would not read as text."""


for _name, _form in SCALARS.items():
    _Dumper.add_implicit_resolver(TAG_PREFIX + _name, _form, None)


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
    is_printable = not isinstance(value, str) or value.isprintable()
    return _flow(value, None if is_printable else '"')


def head(name: str, window: str) -> list[str]:
    """The lines above the relations."""
    return ["version: 1", f"name: {scalar(name)}", f"window: {scalar(window)}"]


def names(items: Iterable[str]) -> str:
    """A list of names in one line."""
    return f"[{', '.join(map(scalar, items))}]"


def attribute_text(attribute: Attribute) -> str:
    """An attribute's type, with its bounds, analyzer, order and origin, if any."""
    bounds = _bounds(attribute)
    if attribute.analyzer is not Analyzer.ENGLISH:
        bounds += f", analyzer: {attribute.analyzer}"
    if attribute.order is not None:
        bounds += f", order: {attribute.order}"
    if attribute.origin is not None:
        bounds += f", from: {scalar(attribute.origin)}"
    return f"{{type: {attribute.type}{bounds}}}" if bounds else attribute.type.value


def join_lines(join: Join) -> list[str]:
    conditions = [f"{join.left}.{left} = {join.right}.{right}" for left, right in join.on]
    scalars = [scalar(condition) for condition in conditions]
    on = scalars[0] if len(scalars) == 1 else f"[{', '.join(scalars)}]"
    if join.name == " and ".join(conditions):
        return [f"  - {on}" if len(scalars) == 1 else f"  - on: {on}"]
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
    if relation.origin is not None:
        yield f"    from: {scalar(relation.origin)}"
    if relation.source is not None:
        yield f"    source: {scalar(relation.source)}"
    if relation.finite:
        yield "    finite: true"


def _bounds(attribute: Attribute) -> str:
    ends = (("min", attribute.min), ("max", attribute.max))
    return "".join(f", {end}: {bound_text(attribute, value)}" for end, value in ends if value is not None)


def bound_text(attribute: Attribute, value: int | float) -> str:
    """A ``min`` or ``max`` as YAML."""
    if attribute.type is AttributeType.TIMESTAMP:
        return scalar(iso(int(value)))
    return scalar(value)


def _flow(value: str | int | float, style: str | None) -> str:
    text: str = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        default_style=style,
        allow_unicode=True,
        width=1 << 30,
    )
    return text.strip()[1:-1].strip()
