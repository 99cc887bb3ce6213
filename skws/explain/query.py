"""The analysed query: what each keyword looks for, and where it can be found."""

from __future__ import annotations

from collections.abc import Iterator

from schema.model import Schema
from skws.explain.branch import Branch
from skws.keywords.query import Alternative, Phrase, Prefix, Slot
from skws.plan import Plan


def query_branch(plan: Plan) -> Branch:
    """Keywords with their stems and places, exclusions, and what is not searched."""
    query = plan.query
    below = [_slot(plan.schema, slot, f"keyword {n}: {slot.text}") for n, slot in enumerate(query.slots, 1)]
    below += [_slot(plan.schema, slot, f"excluded: tuples with {slot.text}") for slot in query.exclusions]
    if query.without:
        names = [plan.schema.relations[relation].name for relation in sorted(query.without)]
        below.append(Branch(f"left out, also as a connection: {', '.join(names)}"))
    if query.sequence:
        parts = [_carried(plan, group) for group in query.sequence.groups]
        below.append(Branch(f"order: tuples with {' before those with '.join(parts)}"))
    if query.match_names:
        below.append(Branch("keywords without a place of their own may also be names of relations"))
    below += map(Branch, query.notes)
    return Branch(f"query: {query.text}", tuple(below))


def carriers_branch(plan: Plan) -> Branch:
    """Which relations can carry which keywords; those that carry alike stand together."""
    alike: dict[int, list[str]] = {}
    for position, relation in enumerate(plan.schema.relations):
        name = f"{relation.name} (table)" if relation.table else relation.name
        alike.setdefault(plan.matcher.searchable(position), []).append(name)
    lines = [f"{_carried(plan, bitmap)}: {', '.join(names)}" for bitmap, names in sorted(alike.items())]
    return Branch("keywords that relations can carry", tuple(Branch(line) for line in reversed(lines)))


def _carried(plan: Plan, bitmap: int) -> str:
    return ", ".join(word for n, word in enumerate(plan.keywords) if bitmap >> n & 1) or "none"


def _slot(schema: Schema, slot: Slot, text: str) -> Branch:
    """Alternatives in different scopes that look for the same stand on one line."""
    places: dict[str, list[str]] = {}
    for alternative in slot.alternatives:
        places.setdefault(_meaning(alternative), []).extend(_places(schema, alternative))
    lines = (f"{meaning} in {', '.join(found) or 'no attribute'}" for meaning, found in places.items())
    return Branch(text, tuple(Branch(line) for line in lines))


def _meaning(alternative: Alternative) -> str:
    match alternative:
        case Phrase():
            return f"phrase of the stems {' '.join(alternative.stems)}"
        case Prefix():
            return f"words that begin with {alternative.start}"
        case _:
            return f"stem {alternative.stem}"


def _places(schema: Schema, alternative: Alternative) -> Iterator[str]:
    for position, relation in enumerate(schema.relations):
        for name, column in zip(relation.search, relation.search_columns, strict=True):
            if alternative.applies(position, column):
                yield f"{relation.name}.{name}"
