"""The YAML document of a schema, as written: one pydantic model a level.

It says which keys exist, what shape their values have, and what editors show
for them. What needs more than one place of the document (names that must
exist, types that must agree) is checked in ``schema.check``.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag

from schema.model import AttributeType

_NAME = re.compile(r"\w[\w-]*")
NAME_RULE = "a name is made of letters, digits, '_' and '-', and does not start with '-'"


def is_name(text: str) -> bool:
    """True if a relation or an attribute can be called so: ``.`` and ``:`` are the query language's."""
    return _NAME.fullmatch(text) is not None


def _checked_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r} cannot be a name: {NAME_RULE}")
    return text


def _short_or_long(value: object) -> str | None:
    """Which way of writing is meant; pydantic then reports the errors of that one alone."""
    if isinstance(value, str):
        return "(short)"
    return "(long)" if isinstance(value, dict | BaseModel) else None


def _checked_bound(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a number or a timestamp")  # noqa: TRY004 - pydantic takes ValueError
    return value


def _one_or_several(value: object) -> str | None:
    if isinstance(value, str):
        return "(one)"
    return "(several)" if isinstance(value, list) else None


# For editors; without \w, which is ASCII alone in their regular expressions.
_NAME_PATTERN = r"^[^\s!-/:-@\[-^`{-~][^\s!-,./:-@\[-^`{-~]*$"

Name: TypeAlias = Annotated[
    str, Strict(), AfterValidator(_checked_name), Field(json_schema_extra={"pattern": _NAME_PATTERN})
]
Text: TypeAlias = Annotated[str, Strict(), Field(min_length=1)]
Flag: TypeAlias = Annotated[bool, Strict()]
Bound: TypeAlias = Annotated[int | float | str, BeforeValidator(_checked_bound)]
Conditions: TypeAlias = Annotated[
    Annotated[Text, Tag("(one)")] | Annotated[list[Text], Field(min_length=1), Tag("(several)")],
    Discriminator(_one_or_several),
]


class _Level(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class AttributeDocument(_Level):
    """An attribute with more than a type."""

    type: AttributeType
    """What values it holds; only text is searched for keywords."""
    min: Bound | None = Field(default=None, examples=[0, "2026-01-01T00:00:00Z"])
    """Smallest value there can be. For integer, number and timestamp."""
    max: Bound | None = Field(default=None, examples=[10, "2026-12-31T23:59:59Z"])
    """Largest value there can be. For integer, number and timestamp."""


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
    """Attributes unique among live tuples. A row with the key of a live one replaces it. NULL equals none."""
    search: list[Name] | None = Field(default=None, examples=[["title"]])
    """Text attributes that keywords are looked for in (default: every text attribute)."""
    time: Name | None = Field(default=None, examples=["released"])
    """The timestamp attribute that is the event time (default: the record's own time)."""
    table: Flag = False
    """A static table, there before the streams; its tuples never expire."""
    source: Text | None = Field(default=None, examples=["movies.parquet", "sqlite:movies.db"])
    """Where the rows of a table are read from: a file, a folder, sqlite:FILE or postgresql://... (default:
    they come with the streams). A path is relative to this file."""
    finite: Flag = False
    """A stream that ends, so that remembering all of it needs bounded memory."""


class JoinDocument(_Level):
    """A named or a composite join."""

    name: Text | None = Field(default=None, examples=["cast_of"])
    """What networks and results call it (default: its condition)."""
    on: Conditions = Field(examples=["movie.mid = plays.mid", ["a.x = b.x", "a.y = b.y"]])
    """One condition, or all those of a composite key."""


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
    """What the schema is called (default: the name of its file)."""
    window: Text = Field(default="none", examples=["20 minutes", "1000 tuples", "none"])
    """How long tuples live: a duration, a number of tuples, none, or a window expression."""
    relations: dict[Name, RelationDocument] = Field(min_length=1)
    """The relations, by name."""
    joins: list[JoinEntry] | None = Field(default=None, examples=[["director.did = movie.did"]])
    """How tuples of two relations, or of one, belong together."""
