"""Pattern queries over a replay: from a text to results, in this process."""

from skws.pattern_search.result import PatternResult, PatternTuple
from skws.pattern_search.run import PatternCounts, PatternRequest, PatternSearch
from skws.pattern_search.text import read_query, text_match

__all__ = [
    "PatternCounts",
    "PatternRequest",
    "PatternResult",
    "PatternSearch",
    "PatternTuple",
    "read_query",
    "text_match",
]
