"""Keyword search in texts: one analysis, the query language, matching, highlighting, suggestions.

Batch, stream, terminal UI and explain all match keywords by this package, and
nothing else touches Whoosh.
"""

from skws.keywords.analysis import Token, terms, tokens
from skws.keywords.highlight import highlight, occurrences
from skws.keywords.joint import JointMatcher
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.query import MAX_SLOTS, KeywordQuery, Phrase, Prefix, Slot, Term, parse_query
from skws.keywords.scope import Scope
from skws.keywords.suggest import Vocabulary, suggest

__all__ = [
    "EXCLUDED",
    "MAX_SLOTS",
    "JointMatcher",
    "KeywordQuery",
    "Matcher",
    "Phrase",
    "Prefix",
    "Scope",
    "Slot",
    "Term",
    "Token",
    "Vocabulary",
    "highlight",
    "occurrences",
    "parse_query",
    "suggest",
    "terms",
    "tokens",
]
