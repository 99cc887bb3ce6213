"""Pattern queries: texts, evaluation over streams, results."""

from skws.queries.patterns.result import PatternResult, PatternTuple
from skws.queries.patterns.stream import PatternStream
from skws.queries.patterns.text import PatternQuery, read_query, text_match

__all__ = [
    "PatternQuery",
    "PatternResult",
    "PatternStream",
    "PatternTuple",
    "read_query",
    "text_match",
]
