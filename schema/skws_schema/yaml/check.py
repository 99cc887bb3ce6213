"""Faults between several entries of a document: unknown names, types that do not fit.

The checks work on the raw data, not on the validated model, so that one fault hides no other. Data of the
wrong shape is skipped: ``skws_schema.yaml.document`` reports its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from skws_schema.errors import nearest, shown
from skws_schema.model import BOUNDABLE, AttributeType, Schema, instant, iso
from skws_schema.yaml.located import Data, Located, Path

CheckWindow: TypeAlias = Callable[[str], str | None]
CheckExpression: TypeAlias = Callable[[Schema], str | None]


@dataclass(frozen=True)
class RelationDraft:
    """The readable parts of a relation; None in place of the others."""

    name: str
    path: Path
    entry: Mapping[str, Data]
    types: Mapping[str, AttributeType | None] | None


def drafts(located: Located) -> dict[str, RelationDraft]:
    """The relations of the document, by name, in order."""
    relations = mapping(mapping(located.data).get("relations"))
    return {
        name: RelationDraft(name, ("relations", name), mapping(entry), _types(entry))
        for name, entry in relations.items()
    }


def check_relations(located: Located, relations: Mapping[str, RelationDraft]) -> None:
    """Report every fault inside a relation."""
    for draft in relations.values():
        for check in _RELATION_CHECKS:
            check(located, draft)
        _check_origin(located, draft, relations)


def _check_origin(located: Located, draft: RelationDraft, relations: Mapping[str, RelationDraft]) -> None:
    """Report an array of rows in a relation that does not exist, and relations inside each other."""
    origin = draft.entry.get("from")
    if not isinstance(origin, str) or not origin:
        return
    position = located.value_place((*draft.path, "from"))
    parent, dot, path = origin.partition(".")
    if not dot:
        return
    if not path:
        located.report(
            position, f"{draft.name}.from: expected a name or RELATION.PATH, found {shown(origin)}"
        )
    elif parent not in relations:
        located.report(
            position, f"{draft.name}.from: no relation {shown(parent)}{nearest(parent, relations)}"
        )
    elif draft.entry.get("source") is not None:
        located.report(position, f"{draft.name}.from: a table with a source takes its rows only from there")
    elif parent != draft.name and draft.name in _enclosing_relations(parent, relations):
        located.report(position, f"{draft.name}.from: {parent} takes its rows from {draft.name}")


def _enclosing_relations(name: str, relations: Mapping[str, RelationDraft]) -> list[str]:
    """``name`` and the relations whose rows enclose its rows, from the inside out."""
    names: list[str] = []
    while name in relations and name not in names:
        names.append(name)
        origin = relations[name].entry.get("from")
        name = origin.partition(".")[0] if isinstance(origin, str) and "." in origin else ""
    return names


def check_window_text(located: Located, check_window: CheckWindow | None) -> None:
    """Report a window that the windows layer rejects."""
    text = mapping(located.data).get("window")
    reason = check_window(text) if check_window and isinstance(text, str) and text else None
    if reason:
        located.report(window_place(located), f"window: {reason}")


def window_place(located: Located) -> tuple[int, int]:
    """Line and column of the window's text."""
    return located.value_place(("window",))


def mapping(data: Data) -> Mapping[str, Data]:
    """``data`` if it is a mapping, else an empty one."""
    return data if isinstance(data, dict) else {}


def bound_value(kind: AttributeType, value: Data) -> int | float:
    """A ``min`` or ``max`` as a value of its attribute's type (timestamps in microseconds since the epoch).

    Raises ValueError with what was expected.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is AttributeType.TIMESTAMP:
        return _microseconds(value)
    if kind is AttributeType.INTEGER and not (number and isinstance(value, int)):
        raise ValueError(f"expected an integer, found {shown(value)}")
    if not isinstance(value, int | float) or not number:
        raise ValueError(f"expected a number, found {shown(value)}")
    return value


def _microseconds(value: Data) -> int:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            micros = round(value * 1_000_000)
            iso(micros)  # fails outside the years 1 to 9999
            return micros
        return instant(str(value))
    except (ValueError, OverflowError):
        raise ValueError(
            f"expected a timestamp (2026-01-31T12:00:00Z, or seconds since the epoch), found {shown(value)}"
        ) from None


def _types(entry: Data) -> dict[str, AttributeType | None] | None:
    attributes = mapping(entry).get("attributes")
    if not isinstance(attributes, dict):
        return None
    return {name: _type(entry_of_attribute) for name, entry_of_attribute in attributes.items()}


def _type(entry: Data) -> AttributeType | None:
    entry = entry.get("type") if isinstance(entry, dict) else entry
    return AttributeType(entry) if isinstance(entry, str) and entry in list(AttributeType) else None


def _check_names(located: Located, draft: RelationDraft) -> None:
    """Report names in key, search and time that are no attributes, or are listed twice."""
    for field in ("key", "search", "time"):
        value = draft.entry.get(field)
        path = (*draft.path, field)
        items = [((*path, i), n) for i, n in enumerate(value)] if isinstance(value, list) else [(path, value)]
        names: set[Data] = set()
        for item_path, name in items:
            if not isinstance(name, str):
                continue
            if name in names:
                located.report(
                    located.value_place(item_path), f"{draft.name}.{field}: {shown(name)} is named twice"
                )
            elif draft.types is not None and name not in draft.types:
                message = f"{draft.name}.{field}: no attribute {shown(name)}{nearest(name, draft.types)}"
                located.report(located.value_place(item_path), message)
            names.add(name)


def _check_search(located: Located, draft: RelationDraft) -> None:
    names = draft.entry.get("search")
    for i, name in enumerate(names if isinstance(names, list) else []):
        kind = (draft.types or {}).get(name) if isinstance(name, str) else None
        if kind and kind is not AttributeType.TEXT:
            position = located.value_place((*draft.path, "search", i))
            located.report(
                position, f"{draft.name}.search: expected a text attribute; {shown(name)} is {kind}"
            )


def _check_time(located: Located, draft: RelationDraft) -> None:
    name = draft.entry.get("time")
    if not isinstance(name, str):
        return
    position = located.value_place((*draft.path, "time"))
    kind = (draft.types or {}).get(name)
    if kind and kind is not AttributeType.TIMESTAMP:
        located.report(
            position, f"{draft.name}.time: expected a timestamp attribute; {shown(name)} is {kind}"
        )
    if draft.entry.get("table") is True:
        message = f"{draft.name}.time: a table has no event time; leave out 'time' or 'table: true'"
        located.report(located.key_place((*draft.path, "time")), message)


def _check_source(located: Located, draft: RelationDraft) -> None:
    if draft.entry.get("source") is not None and draft.entry.get("table") is not True:
        message = f"{draft.name}.source: only a table has a source of its own; add 'table: true'"
        located.report(located.key_place((*draft.path, "source")), message)


def _check_analyzers(located: Located, draft: RelationDraft) -> None:
    for name, kind in (draft.types or {}).items():
        entry = mapping(mapping(draft.entry.get("attributes")).get(name))
        if "analyzer" in entry and kind and kind is not AttributeType.TEXT:
            position = located.key_place((*draft.path, "attributes", name, "analyzer"))
            message = f"{draft.name}.{name}: only a text attribute has an analyzer; this is {kind}"
            located.report(position, message)


def _check_orders(located: Located, draft: RelationDraft) -> None:
    for name, kind in (draft.types or {}).items():
        entry = mapping(mapping(draft.entry.get("attributes")).get(name))
        if entry.get("order") is not None and kind and kind.family is not AttributeType.TEXT:
            position = located.key_place((*draft.path, "attributes", name, "order"))
            message = f"{draft.name}.{name}: only a string or text has an order of versions; this is {kind}"
            located.report(position, message)


def _check_bounds(located: Located, draft: RelationDraft) -> None:
    for name, kind in (draft.types or {}).items():
        entry = mapping(mapping(draft.entry.get("attributes")).get(name))
        if kind:
            _check_bounds_of(located, (*draft.path, "attributes", name), kind, entry)


def _check_bounds_of(located: Located, path: Path, kind: AttributeType, entry: Mapping[str, Data]) -> None:
    values: dict[str, int | float] = {}
    subject = f"{path[1]}.{path[3]}"
    for end in ("min", "max"):
        value = entry.get(end)
        if value is None or isinstance(value, bool | list | dict):
            continue
        if kind not in BOUNDABLE:
            expected = ", ".join(BOUNDABLE)
            message = f"{subject}: {end} needs one of the types {expected}; this is {kind}"
            located.report(located.key_place((*path, end)), message)
            continue
        try:
            values[end] = bound_value(kind, value)
        except ValueError as error:
            located.report(located.value_place((*path, end)), f"{subject}.{end}: {error}")
    if len(values) == 2 and values["min"] > values["max"]:
        message = f"{subject}: min {entry['min']} exceeds max {entry['max']}"
        located.report(located.value_place((*path, "min")), message)


_RELATION_CHECKS = (
    _check_names,
    _check_search,
    _check_time,
    _check_source,
    _check_analyzers,
    _check_orders,
    _check_bounds,
)
