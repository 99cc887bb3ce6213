"""Why a search of a database found nothing: it is all counted in its index."""

from __future__ import annotations

from skws.database.carriers import Carriers
from skws.database.store import Store
from skws.diagnosis import why_apart
from skws.plan import Plan

_WORDS = 200_000


def why_nothing(plan: Plan, carriers: Carriers, store: Store) -> list[str]:
    """Lines for the user."""
    if not any(relation.search_columns for relation in plan.schema.relations) and not plan.query.match_names:
        return ["no column is searched for words: --schema FILE can say which are (type: text)"]
    counts = [carriers.count(slot) for slot in range(len(plan.query.slots))]
    words = store.words(_WORDS) if not all(counts) else {}
    return why_apart(plan, counts, words) or [
        f"every keyword matches some row, but no {plan.max_size} joined rows have all: try --max-size"
    ]
