"""Why a search found nothing: keywords that no tuple contains, or that no result joins.

This runs only after a search without results, on a bounded part of the replay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from skws.data.record import BadRecord, Record
from skws.formats import Replay, read_split
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.suggest import Vocabulary, why_apart
from skws_schema.errors import SourceError
from skws_schema.model import Relation, Schema
from skws_windows.window import Unbounded

SAMPLE_RECORDS: Final = 50_000
_DIGIT: Final = re.compile(r"\d")


@dataclass(slots=True)
class Sample:
    """Counts over a part of a replay: the tuples that satisfy each slot, and all words.

    ``relations``: for each slot, those of these tuples. ``unsearched``: for each slot, an attribute that has
    its text but is not searched.
    """

    slots: list[int]
    relations: list[set[int]]
    unsearched: dict[int, str] = field(default_factory=dict)
    words: Vocabulary = field(default_factory=Vocabulary)
    tuples: int = 0
    whole: bool = True


def why_nothing(plan: Plan, replay: Replay, records: int = SAMPLE_RECORDS) -> list[str]:
    """Lines for the user; none if the replay cannot be read by this process."""
    try:
        seen = _sample(plan, replay, records)
    except SourceError:  # the files may be on the cluster only
        return []
    where = "" if seen.whole else f" of the {seen.tuples:,} looked at"
    lines = why_apart(plan.query.slots, seen.slots, seen.words, where)
    lines += [
        f"{attribute} contains {plan.query.slots[slot].text!r}, but is not searched: give it type: text"
        for slot, attribute in seen.unsearched.items()
        if not seen.slots[slot]
    ]
    if not lines and seen.tuples and len(plan.query.slots) > 1:
        lines.append(f"every keyword matches some tuple, but {_why_unjoined(plan, seen.relations)}")
    return lines


def _why_unjoined(plan: Plan, relations: Sequence[set[int]]) -> str:
    """Why no result has a tuple for each slot, where all slots match tuples of ``relations``."""
    order = " in this order" if plan.query.sequence else ""
    if not plan.schema.joins:
        return "no tuple has all of them, and the schema names no joins"
    apart = _apart(plan.schema, relations)
    if apart is not None:
        first, second = (plan.query.slots[slot].text for slot in apart)
        names = [_names(plan.schema, relations[slot]) for slot in apart]
        return f"no joins lead from {names[0]} ({first!r}) to {names[1]} ({second!r})"
    if isinstance(plan.window, Unbounded):
        return f"no {plan.max_size} joined tuples have all{order}; try a larger --max-size"
    return (
        f"no {plan.max_size} joined tuples of one window have all{order}; try a larger --max-size or --window"
    )


def _apart(schema: Schema, relations: Sequence[set[int]]) -> tuple[int, int] | None:
    """Two slots whose relations no path of joins connects; None if there are none."""
    near: dict[int, set[int]] = {}
    for position, join in enumerate(schema.joins):
        if position not in schema.evolution.removed_joins:
            ends = {schema.index[join.left], schema.index[join.right]}
            for end in ends:
                near.setdefault(end, set()).update(ends)
    reached, new = set(relations[0]), set(relations[0])
    while new:
        new = {beyond for relation in new for beyond in near.get(relation, ())} - reached
        reached |= new
    return next(((0, slot) for slot, found in enumerate(relations) if reached.isdisjoint(found)), None)


def _names(schema: Schema, relations: set[int]) -> str:
    return ", ".join(schema.relations[relation].name for relation in sorted(relations))


def _sample(plan: Plan, replay: Replay, records: int) -> Sample:
    seen = Sample([0] * len(plan.query.slots), [set() for _ in plan.query.slots])
    share = max(1, records // max(1, len(replay.splits)))
    for split in replay.splits:
        items = iter(read_split(split, plan.schema))
        for item in _insertions(islice(items, share)):
            _count(item, plan, seen)
        seen.whole = seen.whole and next(items, None) is None
    return seen


def _insertions(items: Iterator[Record | BadRecord]) -> Iterator[Record]:
    for item in items:
        if isinstance(item, Record) and not item.delete:
            yield item


def _count(record: Record, plan: Plan, seen: Sample) -> None:
    seen.tuples += 1
    found = plan.matcher.bitmap(record.relation, record.row)
    relation = plan.schema.relations[record.relation]
    for slot, wanted in enumerate(plan.query.slots):
        if found != EXCLUDED and found >> slot & 1:
            seen.slots[slot] += 1
            seen.relations[slot].add(record.relation)
        elif slot not in seen.unsearched and not seen.slots[slot]:
            attribute = _holding(wanted.text, relation, record)
            seen.unsearched |= {slot: attribute} if attribute else {}
    for column in relation.search_columns:
        value = record.row[column]
        if value is not None:
            # Nobody mistypes one code for another, and each row has codes of its own.
            words = " ".join(word for word in str(value).split() if not _DIGIT.search(word))
            seen.words.add(words, relation.attributes[column].analyzer)


def _holding(text: str, relation: Relation, record: Record) -> str | None:
    """An attribute that is not searched and has ``text`` in its value."""
    for attribute, value in zip(relation.attributes, record.row, strict=True):
        if (
            type(value) is str
            and attribute.name not in relation.search
            and text.casefold() in value.casefold()
        ):
            return f"{relation.name}.{attribute.name}"
    return None
