"""Pattern queries over a replay: from a text to results, in this process."""

from skws.pattern_search.request import PatternRequest, ReplayRun
from skws.pattern_search.result import PatternResult, PatternTuple
from skws.pattern_search.run import PatternSearch
from skws.pattern_search.stream import PatternStream
from skws.pattern_search.text import PatternQuery, read_query, text_match

__all__ = [
    "PatternQuery",
    "PatternRequest",
    "PatternResult",
    "PatternSearch",
    "PatternStream",
    "PatternTuple",
    "ReplayRun",
    "read_query",
    "text_match",
]
