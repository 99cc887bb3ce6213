"""Why a query has found nothing: keywords that no tuple contains, or that no result joins.

This runs only for queries without results, on a bounded number of tuples.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import attrgetter, or_
from typing import Final

from skws.data.batch import BadRecord, Record
from skws.formats import Replay, read_split
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.keywords.suggest import Vocabulary, meant_for, why_missing
from skws_schema.errors import SourceError
from skws_schema.model import Possible, Relation, Row, Schema, sourced
from skws_schema.paths import from_here
from skws_windows.window import Unbounded

SAMPLE_RECORDS: Final = 50_000
_SUGGESTED: Final = 3
_DIGIT: Final = re.compile(r"\d")


@dataclass(slots=True)
class Sample:
    """Counts over some tuples, for a plan: those that satisfy each slot.

    ``relations``: for each slot, those of these tuples. ``unsearched``: for each slot, an attribute that has
    its text but is not searched.
    """

    plan: Plan
    slots: list[int] = field(init=False)
    relations: list[set[int]] = field(init=False)
    unsearched: dict[int, str] = field(default_factory=dict)
    tuples: int = 0

    def __post_init__(self) -> None:
        self.slots = [0] * len(self.plan.query.slots)
        self.relations = [set() for _ in self.slots]

    def add(self, number: int, row: Row) -> None:
        """Count a tuple of the relation ``number``."""
        self.tuples += 1
        plan = self.plan
        found = plan.matcher.bitmap(number, row)
        for slot, wanted in enumerate(plan.query.slots):
            if found != EXCLUDED and found >> slot & 1:
                self.slots[slot] += 1
                self.relations[slot].add(number)
            elif slot not in self.unsearched and not self.slots[slot]:
                attribute = _holding(wanted.text, plan.schema.relations[number], row)
                self.unsearched |= {slot: attribute} if attribute else {}

    def why_nothing(self, words: Mapping[str, int], where: str = "") -> list[str]:
        """Lines for the user. ``words``: those of the tuples, folded; ``where``: which tuples these are."""
        plan = self.plan
        among = where or (" of the stream" if sourced(plan.schema) else "")
        lines = why_missing(meant_for(plan.query.slots, self.slots, words), among)
        lines += [
            f"{attribute} contains {plan.query.slots[slot].text!r}, but is not searched: give it type: text"
            for slot, attribute in self.unsearched.items()
            if not self.slots[slot]
        ]
        if not lines and self.tuples and len(plan.query.slots) > 1:
            lines.append(f"every keyword matches some row, but {_why_unjoined(plan, self.relations)}")
            found = {plan.schema.relations[number].name for slot in self.relations for number in slot}
            lines += suggestions(plan.schema, found)
        return [*lines, *named(plan)]


_WAYS_ON: Final = ("did you mean", "; try ", ": try ", "skws schema join", "to the joins of", "give it type")
"""What a line on an empty search says if it says what to do."""


def to_try(plan: Plan, lines: Sequence[str]) -> list[str]:
    """``lines`` on a search without results; the last one then says what to do, if none does."""
    if any(way in line for line in lines for way in _WAYS_ON):
        return list(lines)
    missing = [
        slot.text for slot in plan.query.slots if any(f"matches {slot.text!r}" in line for line in lines)
    ]
    there = [slot.text for slot in plan.query.slots if slot.text not in missing]
    if missing and there:
        return [*lines, f"without {', '.join(map(repr, missing))}: skws search SOURCE {shlex.join(there)}"]
    return [*lines, "skws schema show SOURCE lists the columns that are searched"]


def suggestions(schema: Schema, found: Set[str] = frozenset()) -> list[str]:
    """The joins that the schema's draft only suggests, with how to add them.

    First those between relations that ``found`` names, which have keywords.
    """
    best = sorted(schema.possible, key=lambda one: -len(found & _between(one)))
    return [
        f"possible: {one.on} ({one.reason}); "
        + (
            f"add it with skws schema join {shlex.quote(from_here(one.file))} {one.on.replace(' ', '')}"
            if one.file
            else f"add '{one.on}' to the joins of the schema"
        )
        for one in best[:_SUGGESTED]
    ]


def named(plan: Plan) -> Iterator[str]:
    """A line on keywords that are also names in the schema, where these are not looked at."""
    if plan.query.match_names:
        return
    query = parse_query(plan.query.text, plan.schema, match_names=True)
    names = reduce(or_, Matcher(query, plan.schema).names)
    texts = [repr(slot.text) for number, slot in enumerate(query.slots) if names >> number & 1]
    if texts:
        are = "is a name" if len(texts) == 1 else "are names"
        yield f"{', '.join(texts)} {are} in the schema, too: try --match-names"


def _between(possible: Possible) -> set[str]:
    return {side.partition(".")[0] for side in possible.on.split(" = ")}


def why_nothing(plan: Plan, replay: Replay, records: int = SAMPLE_RECORDS) -> list[str]:
    """Lines for the user, from the first records of a replay; none if this process cannot read it.

    Files are read by size, so that what small ones leave of ``records`` is for large ones.
    """
    sample, words, whole = Sample(plan), Vocabulary(), True
    left = records
    try:
        for read, split in enumerate(sorted(replay.splits, key=attrgetter("size"))):
            items = iter(read_split(split, plan.schema))
            share = max(1, left // (len(replay.splits) - read))
            for record in insertions(islice(items, share)):
                sample.add(record.relation, record.row)
                note_words(words, plan.schema, record)
                left -= 1
            whole = whole and next(items, None) is None
    except SourceError:  # the files may be on the cluster only
        return []
    return sample.why_nothing(words, "" if whole else f" of the {sample.tuples:,} looked at")


def insertions(items: Iterable[Record | BadRecord]) -> Iterator[Record]:
    """The good records that are no deletions."""
    for item in items:
        if isinstance(item, Record) and not item.delete:
            yield item


def note_words(words: Vocabulary, schema: Schema, record: Record) -> None:
    """Add the words that are searched in a record."""
    relation = schema.relations[record.relation]
    for column in relation.search_columns:
        value = record.row[column]
        if value is not None:
            # Nobody mistypes one code for another, and each row has codes of its own.
            text = " ".join(word for word in str(value).split() if not _DIGIT.search(word))
            words.add(text, relation.attributes[column].analyzer)


def _why_unjoined(plan: Plan, relations: Sequence[set[int]]) -> str:
    """Why no result has a tuple for each slot, where all slots match tuples of ``relations``."""
    order = " in this order" if plan.query.sequence else ""
    if not plan.schema.joins:
        return (
            "no row has all of them, and the schema has no joins; add one with skws schema join SOURCE"
            f" {_example(plan.schema, relations)}"
        )
    apart = _apart(plan.schema, relations)
    if apart is not None:
        first, second = (plan.query.slots[slot].text for slot in apart)
        names = [_names(plan.schema, relations[slot]) for slot in apart]
        return f"no joins lead from {names[0]} ({first!r}) to {names[1]} ({second!r})"
    if isinstance(plan.window, Unbounded):
        return f"no {plan.max_size} joined rows have all{order}; try a larger --max-size"
    return (
        f"no {plan.max_size} joined rows of one window have all{order}; try a larger --max-size or --window"
    )


def _example(schema: Schema, relations: Sequence[set[int]]) -> str:
    """The form of a join between relations that have keywords."""
    names = [schema.relations[each].name for each in sorted(set().union(*relations))]
    return f"{names[0]}.ATTRIBUTE={names[-1]}.ATTRIBUTE"


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


def _holding(text: str, relation: Relation, row: Row) -> str | None:
    """An attribute that is not searched and has ``text`` in its value."""
    for attribute, value in zip(relation.attributes, row, strict=True):
        if (
            type(value) is str
            and attribute.name not in relation.search
            and text.casefold() in value.casefold()
        ):
            return f"{relation.name}.{attribute.name}"
    return None
