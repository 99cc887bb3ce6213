"""Keyword bitmaps from loops over the analysed words of each value, and the edits of misspelled words."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

from skws.data.versions import known_key
from skws.keywords.analysis import Token, tokens
from skws.keywords.keyword_query import (
    Condition,
    Fuzzy,
    KeywordQuery,
    Phrase,
    Prefix,
    Slot,
    Term,
    Versus,
    Wildcard,
)
from skws.keywords.match import EXCLUDED
from skws_schema.model import COMPARED, Row, Schema


def satisfies(slot: Slot, schema: Schema, relation: int, row: Row) -> bool:
    """True if a row satisfies a slot, by the definition of words, prefixes and phrases."""
    if any(
        compares(condition, relation, row)
        for condition in slot.alternatives
        if isinstance(condition, Condition)
    ):
        return True
    for column in schema.relations[relation].search_columns:
        value = row[column]
        if value is None:
            continue
        analyzer = schema.relations[relation].attributes[column].analyzer
        all_tokens = list(tokens(str(value), analyzer))
        pieces = [token for token in all_tokens if not token.whole]
        for alternative in slot.alternatives:
            if alternative.analyzer is not analyzer or relation in alternative.without:
                continue
            scope = alternative.scope
            if scope and (scope.relation != relation or scope.column not in (None, column)):
                continue
            match alternative:
                case Term():
                    hit = any(t.searchable and t.stem == alternative.stem for t in all_tokens)
                case Prefix():
                    hit = any(t.searchable and t.word.startswith(alternative.start) for t in all_tokens)
                case Fuzzy():
                    variants = edits(alternative.word, alternative.distance)
                    hit = any(t.searchable and is_near(t.word, alternative, variants) for t in all_tokens)
                case Wildcard():
                    pattern = re.escape(alternative.form).replace(r"\*", ".*").replace(r"\?", ".")
                    hit = any(t.searchable and re.fullmatch(pattern, t.word, re.DOTALL) for t in all_tokens)
                case Condition():
                    hit = False
                case Phrase():
                    size = len(alternative.stems)
                    hit = any(
                        [piece.stem for piece in pieces[i : i + size]] == list(alternative.stems)
                        and (
                            not alternative.spelled
                            or is_compound(str(value), pieces[i : i + size], alternative)
                        )
                        for i in range(len(pieces))
                    )
            if hit:
                return True
    return False


def is_compound(text: str, run: list[Token], phrase: Phrase) -> bool:
    """True if the pieces of a text are the compound that a phrase spells, including its signs."""
    is_acronym = all(len(piece.word) == 1 and piece.word.isalpha() for piece in run)
    expected = phrase.spelled
    if expected.startswith("."):
        before = text[: run[0].start].rstrip("_")
        if not before.endswith(".") or before.endswith(".."):
            return False
        expected = expected[1:]
    for number, piece in enumerate(run):
        if not expected.startswith(piece.word):
            return False
        expected = expected[len(piece.word) :]
        if number + 1 < len(run):
            after = run[number + 1]
            sign = _sign(text[piece.end : after.start], piece.word[-1], after.word[0], acronym=is_acronym)
            if expected[:1] != sign:
                return False
            expected = expected[1:]
    return not expected


def _sign(between: str, left: str, right: str, *, acronym: bool) -> str:
    """The sign that joins two pieces of a compound; a blank if there is none that counts."""
    signs = between.replace("_", "")
    single = len(signs) == 1 or all(one == "_" or other == "_" for one, other in pairwise(between))
    if not between or not single or any(sign not in "-\u2010\u2011'\u2019&." for sign in signs):
        return " "
    if "&" in signs:
        return "&"
    if left.isdigit() and right.isdigit():
        return "-" if between[0] in "-\u2010\u2011" else between[0]
    return "." if "." in signs and not acronym else " "


GAP = "\0"
"""Any one letter, in the words of ``edits``."""


@cache
def edits(word: str, errors: int) -> frozenset[str]:
    """The results of up to ``errors`` typing errors in different letters of a word; GAP is any letter."""
    if not errors or not word:
        return frozenset({word, *(["".join(GAP * n) for n in range(1, errors + 1)] if not word else [])})
    tail = word[1:]
    words = {word[0] + after for after in edits(tail, errors)}
    words |= {GAP + after for after in edits(tail, errors - 1)}
    words |= edits(tail, errors - 1)
    words |= {GAP + after for after in edits(word, errors - 1)}
    if len(word) > 1:
        words |= {word[1] + word[0] + after for after in edits(word[2:], errors - 1)}
    return frozenset(words)


def is_near(word: str, fuzzy: Fuzzy, variants: frozenset[str]) -> bool:
    if abs(len(word) - len(fuzzy.word)) > fuzzy.distance:
        return False
    return any(
        len(variant) == len(word) and all(b in (a, GAP) for a, b in zip(word, variant, strict=True))
        for variant in variants
    )


def compares(condition: Condition, relation: int, row: Row) -> bool:
    """True if a row satisfies a condition, value by value."""
    if condition.relation != relation:
        return False
    satisfied = False
    for column, interval in condition.tests:
        value: Any = row[column]
        if interval.order is not None and value is not None:
            value = known_key(interval.order, value)
        if isinstance(interval, Versus):
            other: Any = row[interval.column]
            if interval.order is not None and other is not None:
                other = known_key(interval.order, other)
            if value is not None and other is not None:
                satisfied = satisfied or COMPARED[interval.sign](value, other)
            continue
        if value is None:
            continue
        low: Any = interval.low
        high: Any = interval.high
        inside = not (
            (low is not None and (value < low or (interval.low_open and value == low)))
            or (high is not None and (value > high or (interval.high_open and value == high)))
        )
        satisfied = satisfied or inside != interval.outside
    return satisfied != condition.failing


def bitmap(query: KeywordQuery, schema: Schema, relation: int, row: Row) -> int:
    """The slots that a row satisfies; -1 if it is excluded."""
    if any(satisfies(slot, schema, relation, row) for slot in query.exclusions):
        return EXCLUDED
    return sum(satisfies(slot, schema, relation, row) << i for i, slot in enumerate(query.slots))
