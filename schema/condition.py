"""The text of a join's condition: ``director.did = movie.did``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """``relation.attribute``, and where in the condition's text it starts."""

    relation: str
    attribute: str
    offset: int

    def __str__(self) -> str:
        return f"{self.relation}.{self.attribute}"


@dataclass(frozen=True, slots=True)
class Condition:
    """Two attributes that must be equal, as written."""

    left: Side
    right: Side

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"

    @property
    def flipped(self) -> Condition:
        return Condition(self.right, self.left)

    @property
    def relations(self) -> tuple[str, str]:
        return self.left.relation, self.right.relation


def parse_condition(text: str) -> Condition:
    """Read ``relation.attribute = relation.attribute``; raises ValueError with what was expected."""
    parts = text.split("=")
    if len(parts) == 1:
        raise ValueError(
            f"a join needs '=': expected relation.attribute = relation.attribute, found {text!r}"
        )
    if len(parts) > 2:
        raise ValueError(
            f"more than one '=' in {text!r}; write a composite join as a list: on: [a.x = b.x, ...]"
        )
    return Condition(_side(parts[0], 0), _side(parts[1], len(parts[0]) + 1))


def _side(text: str, start: int) -> Side:
    names = text.strip().split(".")
    if len(names) != 2 or not all(names) or any(c.isspace() for c in text.strip()):
        raise ValueError(f"expected relation.attribute, found {text.strip()!r}")
    return Side(names[0], names[1], start + len(text) - len(text.lstrip()))
