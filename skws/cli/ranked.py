"""Standing queries with the scores that the command line asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from schema.errors import UsageError
from skws.live.ranked import TOP, ranking_options, top_options
from skws.live.standing import KEYWORDS, Query
from skws.ranking.choice import RankingChoice
from skws.ranking.top import TopChoice


def ranked_queries(
    queries: Mapping[str, str | Query], ranking: RankingChoice | None, top: TopChoice | None
) -> dict[str, Query]:
    """The queries, those of keywords with scores. Raises UsageError if no query can have one."""
    asked = {name: Query(each) if isinstance(each, str) else each for name, each in queries.items()}
    if ranking is None:
        return asked
    if asked and all(each.kind != KEYWORDS for each in asked.values()):
        raise UsageError("--rank and --top are for queries of keywords")
    kind, more = (KEYWORDS, {}) if top is None else (TOP, top_options(top))
    options = ranking_options(ranking) | more
    return {
        name: replace(each, kind=kind, options={**options, **each.options}) if each.kind == KEYWORDS else each
        for name, each in asked.items()
    }
