"""Why a search found nothing: keywords that no tuple contains, or that no result joins.

This runs only after a search without results, on a bounded part of the replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from skws.data.record import BadRecord, Record
from skws.formats import Replay, read_split
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.query import Slot
from skws.keywords.suggest import Vocabulary, similar
from skws_schema.errors import SourceError

SAMPLE_RECORDS: Final = 50_000


@dataclass(slots=True)
class Sample:
    """Counts over a part of a replay: the tuples that satisfy each slot, and all words."""

    slots: list[int]
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
    lines = why_apart(plan, seen.slots, seen.words, where)
    if not lines and seen.tuples and len(plan.query.slots) > 1:
        lines.append(
            f"every keyword matches some tuple, but no {plan.max_size} joined tuples of one window have all"
            f"{' in this order' if plan.query.sequence else ''}; try a larger --max-size or --window"
        )
    return lines


def why_apart(plan: Plan, counts: Sequence[int], words: Mapping[str, int], where: str = "") -> list[str]:
    """A line for each slot that no tuple satisfies, with a similar one of ``words`` (folded)."""
    return [
        f"0 tuples{where} match {slot.text!r}{_hint(slot, words)}"
        for slot, count in zip(plan.query.slots, counts, strict=True)
        if not count
    ]


def _sample(plan: Plan, replay: Replay, records: int) -> Sample:
    seen = Sample([0] * len(plan.query.slots))
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
    for slot in range(len(seen.slots)):
        seen.slots[slot] += found != EXCLUDED and found >> slot & 1
    relation = plan.schema.relations[record.relation]
    for column in relation.search_columns:
        value = record.row[column]
        if value is not None:
            seen.words.add(str(value), relation.attributes[column].analyzer)


def _hint(slot: Slot, words: Mapping[str, int]) -> str:
    near = similar(slot, words)
    return f"; did you mean {near!r}?" if near else ""
