"""A pattern as parsed: its expression, its conditions and its window, with places for error messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from patterns.automata.predicates import Operator
from patterns.language.expression import Expression
from schema.model import Value
from windows.window import Window

Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reference:
    """``variable.attribute``."""

    variable: str
    attribute: str
    span: Span

    def __str__(self) -> str:
        return f"{self.variable}.{self.attribute}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """All tuples that these refer to have one value there."""

    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """An attribute compared with a constant."""

    reference: Reference
    operator: Operator
    value: Value
    span: Span


@dataclass(frozen=True, slots=True)
class Keyword:
    """A tuple contains a text: anywhere it is searched, or in one attribute."""

    variable: str
    attribute: str | None
    text: str
    span: Span


Condition: TypeAlias = Agreement | Filter | Keyword


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern over a schema. ``window``: None where the pattern does not say."""

    text: str
    expression: Expression
    conditions: tuple[Condition, ...] = ()
    window: Window | None = None
