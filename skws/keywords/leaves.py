"""The terms of a query as alternatives: words, phrases and parts of words."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final, NamedTuple, TypeAlias, TypeVar

from whoosh.support.levenshtein import damerau_levenshtein

from skws.keywords import syntax
from skws.keywords.analysis import MEMORABLE, PIECE, UNSPACED, Token, fold, spelled, tokens
from skws.keywords.keyword_query import (
    Alternative,
    Fuzzy,
    Phrase,
    Prefix,
    Scope,
    Term,
    Wildcard,
    WordAlternative,
)
from skws.keywords.syntax import fault
from skws_schema.errors import shown
from skws_schema.model import Analyzer, Groups, Schema

WILD: Final = "*?"


def within(word: str, other: str, most: int) -> bool:
    """True if two words are at most ``most`` typing errors apart; exchanged neighbours are one error."""
    if abs(len(word) - len(other)) > most:
        return False
    if word == other:
        return True
    errors: int = damerau_levenshtein(word, other, most)  # type: ignore[no-untyped-call]  # as all of Whoosh
    return errors <= most


def shortened(word: str, most: int) -> frozenset[str]:
    """All words that result from leaving out up to ``most`` letters of the word.

    Two words within that distance share one of these, since leaving out at most one letter of each undoes an
    error.
    """
    shortenings = {word}
    for count in range(1, min(most, len(word)) + 1):
        for omitted in combinations(range(len(word)), count):
            shortenings.add(
                "".join(letter for position, letter in enumerate(word) if position not in omitted)
            )
    return frozenset(shortenings)


def parts(word: str, most: int) -> tuple[str, ...]:
    """Parts of a word; every word at most ``most`` typing errors apart contains one of them.

    An error affects at most two parts: it exchanges the last letter of one and the first of the next.
    """
    count = min(2 * most + 1, len(word))
    bounds = [len(word) * number // count for number in range(count + 1)]
    return tuple(word[first:end] for first, end in pairwise(bounds))


def literals(form: str) -> list[str]:
    """The parts of a form between wildcards, all of which are in every word of the form."""
    return [part for part in re.split(r"[*?]+", form) if part]


@lru_cache(maxsize=10_000)
def _pattern(form: str) -> re.Pattern[str]:
    """A pattern that takes the first match of each run between stars; trying all could take very long."""
    first, *later_runs = (
        "".join("." if char == "?" else re.escape(char) for char in run) for run in form.split("*")
    )
    middle = "".join(f"(?>.*?{run})" for run in later_runs[:-1])
    return re.compile(first + middle + "".join(f".*{run}" for run in later_runs[-1:]), re.DOTALL)


def has_form(word: str, form: str) -> bool:
    """True if a word has the form; ``*`` is any number of characters, ``?`` is one."""
    return _pattern(form).fullmatch(word) is not None


class WordPredicates:
    """Predicates on words, by number, in the order in which they were added."""

    def __init__(self) -> None:
        self._stems: defaultdict[str, list[int]] = defaultdict(list)
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        self._start_lengths: Counter[int] = Counter()
        # By the words without one or two letters: a look-up then takes the same time for any number of words.
        self._shortenings: defaultdict[str, list[tuple[Fuzzy, int]]] = defaultdict(list)
        self._lengths: Counter[tuple[int, int]] = Counter()  # (length, distance) of fuzzy words
        self._forms: list[tuple[str, int]] = []

    def add(self, alternative: WordAlternative, predicate: int) -> None:
        match alternative:
            case Term(stem=stem):
                self._stems[stem].append(predicate)
            case Prefix(start=start):
                self._starts[start].append(predicate)
                self._start_lengths[len(start)] += 1
            case Wildcard(form=form):
                self._forms.append((form, predicate))
            case Fuzzy(word=word, distance=distance):
                self._lengths[len(word), distance] += 1
                for shortening in shortened(word, distance):
                    self._shortenings[shortening].append((alternative, predicate))

    def remove(self, alternative: WordAlternative, predicate: int) -> None:
        match alternative:
            case Term(stem=stem):
                withdraw(self._stems, stem, predicate)
            case Prefix(start=start):
                withdraw(self._starts, start, predicate)
                self._start_lengths[len(start)] -= 1
                self._start_lengths = +self._start_lengths
            case Wildcard(form=form):
                self._forms.remove((form, predicate))
            case Fuzzy(word=word, distance=distance):
                self._lengths[len(word), distance] -= 1
                self._lengths = +self._lengths
                for shortening in shortened(word, distance):
                    withdraw(self._shortenings, shortening, (alternative, predicate))

    def of(self, token: Token) -> Iterator[int]:
        """The predicates that a word satisfies, possibly repeated."""
        if not token.searchable:
            return
        yield from self._stems.get(token.stem, ())
        word = token.word
        for length in self._start_lengths:  # not each length of the word, which may be very long
            if length <= len(word):
                yield from self._starts.get(word[:length], ())
        yield from (predicate for form, predicate in self._forms if has_form(word, form))
        distance = self._farthest(len(word))
        for shortening in shortened(word, distance) if distance else ():
            for fuzzy, predicate in self._shortenings.get(shortening, ()):
                if within(fuzzy.word, word, fuzzy.distance):
                    yield predicate

    def _farthest(self, length: int) -> int:
        """The greatest distance at which words of a length can match; 0 if they are too long or too short."""
        return max((d for (size, d) in self._lengths if abs(size - length) <= d), default=0)


_Of = TypeVar("_Of")


def withdraw(items_by_key: dict[str, list[_Of]], key: str, item: _Of) -> None:
    """Remove an item from the list of a key, and the key once its list is empty."""
    items_by_key[key].remove(item)
    if not items_by_key[key]:
        del items_by_key[key]


def satisfies(token: Token, alternative: WordAlternative) -> bool:
    """True if a word of a text satisfies an alternative."""
    if not token.searchable:
        return False
    match alternative:
        case Term(stem=stem):
            return token.stem == stem
        case Prefix(start=start):
            return token.word.startswith(start)
        case Fuzzy(word=word, distance=distance):
            return within(word, token.word, distance)
        case Wildcard(form=form):
            return has_form(token.word, form)


Pairs: TypeAlias = Mapping[tuple[str, ...], Sequence[int]]
"""The positions of each pair of consecutive stems of a text."""


def pairs_of(words: Sequence[str]) -> Pairs:
    """Index a text by pairs, to search it for very many phrases. ``words``: the stems of its pieces."""
    positions_by_pair: dict[tuple[str, ...], list[int]] = {}
    for position, pair in enumerate(pairwise(words)):
        positions_by_pair.setdefault(pair, []).append(position)
    return positions_by_pair


def contains(words: Sequence[str], phrase: Phrase, text: str, pairs: Pairs | None = None) -> bool:
    """True if a text contains a phrase.

    ``words``: the stems of the text's pieces; ``pairs``: the ``pairs_of`` these words.
    """
    stems, size = phrase.stems, len(phrase.stems)
    if pairs is None or size == 1:
        starts: Iterable[int] = (i for i in range(len(words) - size + 1) if words[i] == stems[0])
    else:
        starts = pairs.get(stems[:2], ())
    if not any(words[i : i + size] == stems for i in starts):
        return False
    return (
        not phrase.spelled or next(runs(list(tokens(text, phrase.analyzer)), phrase, text), None) is not None
    )


def runs(words: Sequence[Token], phrase: Phrase, text: str) -> Iterator[tuple[int, int]]:
    """The offsets of every occurrence of a phrase in a text, in characters.

    ``words``: the tokens of the text.
    """
    pieces = [word for word in words if not word.whole]
    size = len(phrase.stems)
    dot = phrase.spelled.startswith(".")
    for i in range(len(pieces) - size + 1):
        run = pieces[i : i + size]
        if tuple(piece.stem for piece in run) != phrase.stems:
            continue
        if not phrase.spelled or spelled(text, run) == phrase.spelled:
            yield run[0].start - dot, run[-1].end


LEAST: Final = {1: 3, 2: 5}
"""The fewest letters of a word, by its number of typing errors; shorter words resemble too many others."""
_LEAST_LITERAL: Final = 2  # letters of a word with wildcards
_PARTS: Final = re.compile(r"([*?])")
_VERSION: Final = re.compile(r"\d+\.\d+")


class TermScope(NamedTuple):
    """The scope of a term, and the columns in it that have this analyzer; None for all columns."""

    scope: Scope | None
    analyzer: Analyzer = Analyzer.ENGLISH
    columns: frozenset[tuple[int, int]] | None = None


def places_of(scopes: Sequence[Scope | None], schema: Schema, *, names: bool) -> tuple[TermScope, ...]:
    """A scope for each of ``scopes`` and each analyzer. ``names``: names of relations are also searched."""
    by_analyzer: dict[Analyzer, set[tuple[int, int]]] = {}
    for relation, relation_schema in enumerate(schema.relations):
        for column in relation_schema.search_columns:
            by_analyzer.setdefault(relation_schema.attributes[column].analyzer, set()).add((relation, column))
    if by_analyzer.keys() <= {Analyzer.ENGLISH}:
        return tuple(map(TermScope, scopes))
    if names:  # names are in English
        by_analyzer.setdefault(Analyzer.ENGLISH, set())
    scopes_of = []
    for scope in scopes:
        for analyzer, columns in by_analyzer.items():
            scope_columns = frozenset(
                (r, c) for r, c in columns if scope is None or scope in {(r, None), (r, c)}
            )
            if scope_columns or (scope is None and names and analyzer is Analyzer.ENGLISH):
                scopes_of.append(TermScope(scope, analyzer, scope_columns))
    return tuple(scopes_of)


def alternatives_of(
    node: syntax.Node, text: str, places: Sequence[TermScope], synonyms: Groups = ()
) -> Iterator[Alternative]:
    """The alternatives of a word or phrase in some places; none if no word is left after analysis.

    A single word without quotes also stands for its ``synonyms``. Raises QueryError, which shows the
    query ``text``, for a part of a word that cannot be searched.
    """
    for analyzer in dict.fromkeys(place.analyzer for place in places):
        analyzer_places = [place for place in places if place.analyzer is analyzer]
        for each in _meanings(node, text, analyzer, synonyms):
            for place in analyzer_places:
                yield replace(each, scope=place.scope, analyzer=analyzer, columns=place.columns)


_Meaning = Term | Phrase | Prefix | Fuzzy | Wildcard


def synonyms_of(word: str, groups: Groups, analyzer: Analyzer = Analyzer.ENGLISH) -> tuple[str, ...]:
    """The other words and phrases of the groups to which a word belongs, by its stem."""
    stem_of_word = _stem_of(word, analyzer) if groups else None
    if stem_of_word is None:
        return ()
    synonyms = [
        other for number in _by_stem(groups, analyzer).get(stem_of_word, ()) for other in groups[number]
    ]
    return tuple(dict.fromkeys(other for other in synonyms if _stem_of(other, analyzer) != stem_of_word))


@lru_cache(maxsize=64)
def _by_stem(groups: Groups, analyzer: Analyzer) -> Mapping[str, list[int]]:
    """The numbers of the groups to which words belong, by their stems."""
    groups_of_stem: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        for stem in dict.fromkeys(_stem_of(each, analyzer) for each in group):
            if stem is not None:
                groups_of_stem.setdefault(stem, []).append(number)
    return groups_of_stem


def _stem_of(text: str, analyzer: Analyzer) -> str | None:
    """The stem of a single word; None for several words, and for texts that are compared unchanged."""
    if analyzer is Analyzer.NONE or len(text.split()) != 1:
        return None
    first = next(iter(_word(text, analyzer)), None)
    return first.stem if isinstance(first, Term) else None


def _meanings(node: syntax.Node, text: str, analyzer: Analyzer, synonyms: Groups) -> list[_Meaning]:
    match node:
        case syntax.Phrase():
            return _phrase(node.text, analyzer)
        case syntax.PrefixNode():
            return _prefix(node, text, analyzer)
        case syntax.FuzzyNode():
            return _fuzzy(node, text, analyzer)
        case syntax.WildcardNode():
            return _wildcard(node, text, analyzer)
        case _:
            others = synonyms_of(node.text, synonyms, analyzer)
            return [each for one in (node.text, *others) for each in _words(one, analyzer)]


def _words(text: str, analyzer: Analyzer) -> list[_Meaning]:
    """A typed word, or a synonym of several words, which is a phrase."""
    return _phrase(text, analyzer) if len(text.split()) > 1 else _word(text, analyzer)


def _word(text: str, analyzer: Analyzer) -> list[_Meaning]:
    """A typed word; a version such as ``2.31.0`` also with the letter before it, ``v2.31.0``."""
    if analyzer is Analyzer.NONE or not _VERSION.match(text):
        return _as_typed(text, analyzer)
    return [*_as_typed(text, analyzer), *_as_typed(f"v{text}", analyzer)]


def _as_typed(text: str, analyzer: Analyzer) -> list[_Meaning]:
    """A word as itself; ``spider-man`` also as the phrase of its pieces; ``ac/dc`` only as that phrase.

    If the signs between the pieces of a compound matter (AT&T is not "at t"), it may be part of a longer one.
    """
    word_tokens = list(tokens(text, analyzer))
    pieces = [token for token in word_tokens if not token.whole]
    wholes = [token for token in word_tokens if token.whole]
    meanings: list[_Meaning] = []
    if len(wholes) == 1 and wholes[0].width == len(pieces):
        meanings.append(Term(wholes[0].stem))
        if wholes[0].word != "".join(piece.word for piece in pieces):
            return [*meanings, *_within_compounds(text, pieces)]
    elif len(pieces) == 1 and pieces[0].searchable:
        meanings.append(Term(pieces[0].stem))
    if len(pieces) > 1 and any(piece.searchable for piece in pieces):
        meanings += _consecutive(pieces)
    return meanings


def _phrase(text: str, analyzer: Analyzer) -> list[_Meaning]:
    """A quoted phrase. In quotes stop words count, so that films called "It" can be found."""
    pieces = [token for token in tokens(text, analyzer) if not token.whole]
    if len(pieces) == 1 and pieces[0].searchable:
        return [Term(pieces[0].stem)]
    return _consecutive(pieces)


def _within_compounds(text: str, pieces: list[Token]) -> list[_Meaning]:
    """A compound as part of longer ones; none if a character such as U+FDFA stands for several words."""
    if not all(len(PIECE.findall(piece.word)) == 1 for piece in pieces):
        return []
    return [Phrase(tuple(piece.stem for piece in pieces), spelled(text, pieces))]


def _consecutive(pieces: list[Token]) -> list[_Meaning]:
    return [Phrase(tuple(piece.stem for piece in pieces))] if pieces else []


def _prefix(node: syntax.PrefixNode, text: str, analyzer: Analyzer) -> list[_Meaning]:
    word_tokens = list(tokens(node.text, analyzer))
    pieces = [token for token in word_tokens if not token.whole]
    if not pieces:
        raise fault("'*' needs at least one letter or digit before it", text, node.startchar)
    if word_tokens[-1].width == len(pieces):
        return [Prefix(word_tokens[-1].word)]
    if pieces[-1].end - pieces[0].start == sum(piece.end - piece.start for piece in pieces):
        return _phrase(node.text, analyzer)  # unspaced script: the phrase matches whatever follows it
    raise fault("a prefix is one word; put quotes around several", text, node.startchar)


def _fuzzy(node: syntax.FuzzyNode, text: str, analyzer: Analyzer) -> list[_Meaning]:
    """The matches of the word itself, and words with typing errors."""
    distance = int(node.distance or "1")
    if distance not in LEAST:
        message = f"'~{node.distance}': expected '~' or '~1' for one typing error, '~2' for two"
        raise fault(message, text, node.startchar)
    word_tokens = list(tokens(node.text, analyzer))
    pieces = sum(not token.whole for token in word_tokens)
    if not word_tokens or word_tokens[-1].width != pieces:
        raise fault("'~' applies to one word", text, node.startchar)
    word = word_tokens[-1].word
    if UNSPACED.search(word):
        message = "'~' needs a script with blanks between words, whose words have letters to mistype"
        raise fault(message, text, node.startchar)
    if not LEAST[distance] <= len(word) <= MEMORABLE:
        message = (
            f"'~{node.distance}' needs a word of {LEAST[distance]} to {MEMORABLE} letters, as shorter words"
            f" resemble too many others; {shown(word)} has {len(word)}"
        )
        raise fault(message, text, node.startchar)
    terms = [each for each in _word(node.text, analyzer) if isinstance(each, Term)]
    return [*terms, Fuzzy(word, distance)]


def _wildcard(node: syntax.WildcardNode, text: str, analyzer: Analyzer) -> list[_Meaning]:
    is_exact = analyzer is Analyzer.NONE
    typed_parts = _PARTS.split(node.text)
    form = "".join(part if part in WILD or is_exact else fold(part) for part in typed_parts)
    form = re.sub(r"\*+", "*", form)
    for part in literals(form):
        words = [token.word for token in tokens(part, analyzer)]
        if words[:1] != [part] or UNSPACED.search(part):
            message = (
                "wildcards stand for characters of one word: only letters and digits may be next to them,"
                " of a script with blanks between words"
            )
            raise fault(message, text, node.startchar)
    if sum(map(len, literals(form))) < _LEAST_LITERAL:
        message = f"a word with wildcards needs at least {_LEAST_LITERAL} letters or digits"
        raise fault(message, text, node.startchar)
    return [Wildcard(form)]
