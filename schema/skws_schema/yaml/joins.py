"""The joins of a document: from their text to checked, directed, named joins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skws_schema.errors import nearest
from skws_schema.model import AttributeType, Join
from skws_schema.yaml.check import Draft, mapping
from skws_schema.yaml.located import Located, Path


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


def read_joins(located: Located, relations: Mapping[str, Draft]) -> tuple[Join, ...]:
    """Every readable join, in order; faults are reported."""
    entries = mapping(located.data).get("joins")
    joins: dict[Path, Join] = {}
    for number in range(len(entries) if isinstance(entries, list) else 0):
        path: Path = ("joins", number)
        conditions = _conditions(located, path, relations)
        if conditions:
            joins[path] = _join(located, path, conditions)
    _check_names(located, joins)
    _check_twice(located, joins)
    return tuple(joins.values())


def _conditions(located: Located, path: Path, relations: Mapping[str, Draft]) -> list[Condition]:
    """The conditions of one join, oriented as its first; empty if any of them is wrong."""
    entry = located.at(path)
    if isinstance(entry, dict):
        entry, path = entry.get("on"), (*path, "on")
    written = {(*path, i): e for i, e in enumerate(entry)} if isinstance(entry, list) else {path: entry}
    found: list[Condition] = []
    for place, text in written.items():
        condition = _condition(located, place, text, relations) if isinstance(text, str) and text else None
        if condition and (not found or _oriented(located, place, found, condition)):
            found.append(condition)
    return found if len(found) == len(written) else []


def _condition(located: Located, path: Path, text: str, relations: Mapping[str, Draft]) -> Condition | None:
    try:
        condition = parse_condition(text)
    except ValueError as error:
        located.report(located.value_place(path), str(error))
        return None
    sides = [_check_side(located, path, text, side, relations) for side in (condition.left, condition.right)]
    if not all(known for known, _ in sides):
        return None
    left, right = (kind for _, kind in sides)
    if left and right and left.family is not right.family:
        message = f"{condition.left} is {left} but {condition.right} is {right}; a join needs equal types"
        located.report(located.value_place(path), message)
    return condition


def _check_side(
    located: Located, path: Path, text: str, side: Side, relations: Mapping[str, Draft]
) -> tuple[bool, AttributeType | None]:
    """Whether the attribute exists, as far as known, and its type if known."""
    draft = relations.get(side.relation)
    if draft is None:
        message = f"no relation {side.relation!r}{nearest(side.relation, relations)}"
        located.report(located.place_within(path, text, side.offset), message)
        return False, None
    if draft.types is None:
        return True, None
    if side.attribute not in draft.types:
        message = (
            f"no attribute {side.attribute!r} in {side.relation!r}{nearest(side.attribute, draft.types)}"
        )
        offset = side.offset + len(side.relation) + 1
        located.report(located.place_within(path, text, offset), message)
        return False, None
    return True, draft.types[side.attribute]


def _oriented(located: Located, path: Path, before: list[Condition], condition: Condition) -> bool:
    """True if the condition is between the same relations as the first, either way round, and new."""
    first = before[0].relations
    if condition.relations not in (first, first[::-1]):
        expected = " and ".join(map(repr, first))
        message = f"all conditions of a join are between the same two relations; expected {expected}"
        located.report(located.value_place(path), message)
        return False
    pairs = [_pair(c, first) for c in before]
    if _pair(condition, first) in pairs:
        located.report(located.value_place(path), f"condition {condition} is written twice")
        return False
    return True


def _pair(condition: Condition, relations: tuple[str, str]) -> tuple[str, str]:
    side = condition if condition.relations == relations else condition.flipped
    return side.left.attribute, side.right.attribute


def _join(located: Located, path: Path, conditions: list[Condition]) -> Join:
    name = mapping(located.at(path)).get("name")
    left, right = conditions[0].relations
    return Join(
        name=name if isinstance(name, str) and name else " and ".join(map(str, conditions)),
        left=left,
        right=right,
        on=tuple(_pair(condition, (left, right)) for condition in conditions),
    )


def _check_names(located: Located, joins: Mapping[Path, Join]) -> None:
    first: dict[str, Path] = {}
    for path, join in joins.items():
        before = first.setdefault(join.name, path)
        if before != path and not _same(join, joins[before]):
            line = located.value_place(before)[0]
            place = located.value_place((*path, "name"))
            located.report(place, f"join name {join.name!r} is taken by the join in line {line}")


def _check_twice(located: Located, joins: Mapping[Path, Join]) -> None:
    first: dict[object, Path] = {}
    for path, join in joins.items():
        before = first.setdefault(_meaning(join), path)
        if before != path:
            line = located.value_place(before)[0]
            located.report(located.value_place(path), f"the same join as in line {line}: {join.name}")


def _same(one: Join, other: Join) -> bool:
    return _meaning(one) == _meaning(other)


def _meaning(join: Join) -> object:
    """Equal for joins that connect the same tuples, whichever side is written first."""
    forward = (join.left, join.right, tuple(sorted(join.on)))
    backward = (join.right, join.left, tuple(sorted((b, a) for a, b in join.on)))
    return min(forward, backward)
