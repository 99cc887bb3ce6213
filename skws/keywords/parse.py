"""Reads keyword queries: ``syntax`` parses their text, and this module interprets the tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from skws.keywords import syntax
from skws.keywords.analysis import APOSTROPHES, tokens
from skws.keywords.keyword_query import Alternative, Condition, KeywordQuery, Scope, Slot
from skws.keywords.leaves import TermScope, alternatives_of, places_of, synonyms_of
from skws.keywords.scope import (
    ComparedAttribute,
    compare,
    compared,
    in_range,
    is_near_name,
    left_out,
    other_attribute,
    resolve,
    type_of_text,
    versus,
)
from skws.keywords.syntax import fault
from skws_mesh.sequence import KeywordSequence
from skws_schema.errors import QueryError, shown
from skws_schema.evolution import nameable
from skws_schema.model import Analyzer, Op, Schema

MAX_SLOTS: Final = 8
"""The expanded schema doubles with every slot."""
MAX_CHARACTERS: Final = 10_000
"""Parsing a text of this length takes a second or two; the time is quadratic."""
_SIGNS: Final = re.compile(r"[:~\\]")
"""Every term that ``syntax.pasted`` finds contains one of these signs."""
_NUMBER: Final = re.compile(r"[+-]?\d[\d.,]*")
"""Also with separators of thousands, and with decimal commas."""
_POSSESSIVE: Final = re.compile(f"^[{APOSTROPHES}]s(?!\\w)", re.IGNORECASE)


def parse_query(text: str, schema: Schema, *, match_names: bool = False) -> KeywordQuery:
    """The query of a text over a schema.

    Semicolons separate groups of keywords in order of time. ``match_names``: a tuple also has the keywords
    that match the name of its relation, or of an attribute with a fact. Raises ``QueryError``, with a caret
    below the fault, if the text is malformed, names something that is not in the schema, or has no keyword.
    """
    if len(text) > MAX_CHARACTERS:
        raise QueryError(
            f"a query may have at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}"
        )
    schema = nameable(schema)
    reader = _Reader(text, schema, match_names=match_names)
    groups = [_read_part(reader, schema, part) for part in parts(text)]
    _check(reader, text)
    without = frozenset(reader.without)
    _check_left_out(reader, schema)
    return KeywordQuery(
        text,
        _outside(reader.slots, without),
        _outside(reader.exclusions, without),
        tuple(dict.fromkeys(reader.dropped)),
        match_names,
        KeywordSequence(tuple(groups) if len(groups) > 1 else ()),
        tuple(dict.fromkeys(reader.ignored)),
        without,
        frozenset(reader.without_joins),
        tuple((word, *others) for word, others in reader.synonyms.items()),
        tuple(dict.fromkeys(reader.repeated)),
        tuple(dict.fromkeys(reader.numbers)),
    )


def _outside(slots: list[Slot], relations: frozenset[int]) -> tuple[Slot, ...]:
    return tuple(slot.outside(relations) for slot in slots) if relations else tuple(slots)


def _read_part(reader: _Reader, schema: Schema, part: KeywordGroup) -> int:
    """Read the keywords of one group; returns their bits."""
    text, first, dropped = reader.text, len(reader.slots), len(reader.dropped)
    part_text = part.with_blanks(text)
    plain_ranges = (
        list(syntax.pasted(part_text, partial(is_near_name, schema=schema)))
        if _SIGNS.search(part_text)
        else ()
    )
    tree, places = syntax.parse(part_text, text, plain_ranges)
    reader.scopes = {name: _resolve(name, schema, text, at) for name, at in places.items()}
    for node in _conjuncts(tree):
        if isinstance(node, syntax.Without):
            reader.leave_out(node)
        else:
            reader.read(node, first)
    if len(reader.slots) == first and part.semicolon >= 0:
        raise missing(part, text, _reason(reader.dropped[dropped:]))
    return (1 << len(reader.slots)) - (1 << first)


def _resolve(name: str, schema: Schema, text: str, position: int) -> tuple[Scope, ...] | ComparedAttribute:
    is_required = name.startswith("!")
    try:
        target = resolve(name.removeprefix("!") if is_required else name, schema)
    except QueryError as error:
        raise fault(str(error), text, position) from None
    if is_required and not isinstance(target, ComparedAttribute):
        message = (
            "'!' must precede a condition on an attribute that is not searched; an exclusion begins with '-'"
        )
        raise fault(message, text, position)
    return target


def _conjuncts(node: syntax.Node) -> Iterator[syntax.Node]:
    if isinstance(node, syntax.All):
        for child in node:
            yield from _conjuncts(child)
    else:
        yield node


def _unwrap(node: syntax.Node) -> syntax.Node:
    """The node inside any parentheses that enclose a single node."""
    while isinstance(node, syntax.All) and len(node) == 1:
        node = node[0]
    return node


class _Leaf(NamedTuple):
    """A term. ``restricts``: True for a condition without '!', which is not a keyword."""

    text: str
    alternatives: tuple[Alternative, ...]
    restricts: bool = False


class _Reader:
    """Collects the slots and exclusions of a tree."""

    def __init__(self, text: str, schema: Schema, *, match_names: bool) -> None:
        self.text = text
        self.schema = schema
        self.match_names = match_names
        self.scopes: dict[str, tuple[Scope, ...] | ComparedAttribute] = {}
        self.slots: list[Slot] = []
        self.exclusions: list[Slot] = []
        self.dropped: list[str] = []
        self.ignored: list[str] = []
        self.repeated: list[str] = []
        self.numbers: list[tuple[str, str]] = []
        self.synonyms: dict[str, dict[str, None]] = {}
        self.without: dict[int, int] = {}  # relations left out, with their positions in the text
        self.without_joins: set[int] = set()
        self.restricted: dict[int, str] = {}  # restricted relations, each with a condition on it
        self._typed_word = _words(schema, match_names)

    def leave_out(self, node: syntax.Without) -> None:
        """Leave out the relation or the joins named by a node."""
        try:
            relation, joins = left_out(node.text, self.schema)
        except QueryError as error:
            raise fault(str(error), self.text, node.startchar) from None
        if relation in self.without or (joins and joins <= self.without_joins):
            self.repeated.append(f"-{node.text}:")
        if relation is not None:
            self.without[relation] = node.startchar
        self.without_joins |= joins

    def read(self, node: syntax.Node, first: int = 0) -> None:
        """Add the predicates of one conjunct, without duplicates.

        Keywords before the slot ``first`` precede it in time.
        """
        if isinstance(node, syntax.Word) and not node.fieldname:  # most terms of very many queries
            self._read_word(node, first)
            return
        negated = isinstance(node, syntax.Not)
        all_leaves = [
            self._leaf(leaf) for leaf in self._leaves(_unwrap(node[0] if negated else node), negated=negated)
        ]
        self.dropped += [leaf.text for leaf in all_leaves if not leaf.alternatives]
        leaves = [leaf for leaf in all_leaves if leaf.alternatives]
        if not leaves:
            return
        if negated:
            self._exclude(node, leaves)
        elif any(leaf.restricts for leaf in leaves):
            self._restrict(node, leaves)
        else:
            self._look_for(node, _slot(leaves), first)

    def _read_word(self, node: syntax.Node, first: int) -> None:
        word = self._word(node, (None,))
        if word.slot.alternatives:
            self._look_for(node, word.slot, first)
        else:
            self.dropped.append(word.slot.text)

    def _word(self, node: syntax.Node, scopes: tuple[Scope | None, ...]) -> _TypedWord:
        word = self._typed_word(node.text, scopes)
        self.ignored += word.ignored
        if word.synonyms:
            word_synonyms = self.synonyms.setdefault(node.text.lower(), {})
            word_synonyms.update(dict.fromkeys(word.synonyms))
        return word

    def _look_for(self, node: syntax.Node, slot: Slot, first: int) -> None:
        if any(slot.same(other) for other in self.slots[:first]):
            message = f"{shown(slot.text)} is also before ';', but no tuple precedes itself"
            raise fault(message, self.text, node.startchar)
        self._add(slot, self.slots)

    def _add(self, slot: Slot, present_slots: list[Slot]) -> None:
        if any(slot.same(other) for other in present_slots):
            self.repeated.append(slot.text)
        else:
            present_slots.append(slot)

    def _exclude(self, node: syntax.Node, leaves: list[_Leaf]) -> None:
        if any(leaf.text.startswith("!") for leaf in leaves if isinstance(leaf.alternatives[0], Condition)):
            raise fault(
                "'!' requires a tuple that '-' excludes; use only one of them", self.text, node.startchar
            )
        self._add(_slot(leaves), self.exclusions)

    def _restrict(self, node: syntax.Node, leaves: list[_Leaf]) -> None:
        """Exclude the tuples of a relation that satisfy none of some conditions."""
        if not all(leaf.restricts for leaf in leaves):
            message = (
                "a condition that is an alternative to keywords begins with '!', as in (sale OR !price<500)"
            )
            raise fault(message, self.text, node.startchar)
        conditions = [each for leaf in leaves for each in leaf.alternatives if isinstance(each, Condition)]
        relations = {each.scope.relation for each in conditions if each.scope is not None}
        if len(relations) > 1:
            names = ", ".join(sorted(self.schema.relations[relation].name for relation in relations))
            message = f"conditions joined by OR must restrict one relation; these restrict {names}"
            raise fault(message, self.text, node.startchar)
        (relation,) = relations
        tests = tuple(dict.fromkeys(test for each in conditions for test in each.tests))
        restriction = Condition(tests, failing=True, scope=Scope(relation, None))
        slot = Slot(_slot(leaves).text, (restriction,))
        self.restricted.setdefault(relation, slot.text)
        self._add(slot, self.exclusions)

    def _leaves(self, node: syntax.Node, *, negated: bool) -> Iterator[syntax.Node]:
        """The terms of a disjunction."""
        node = _unwrap(node)
        if isinstance(node, syntax.Either):
            for child in node:
                yield from self._leaves(child, negated=negated)
        elif isinstance(node, syntax.Without):
            message = f"'-{node.text}:' applies to the whole query; write it outside of OR, NOT and -"
            raise fault(message, self.text, node.startchar)
        elif isinstance(node, syntax.Not):
            message = (
                "an exclusion cannot be an alternative or be excluded; write it outside of OR, NOT and -"
            )
            raise fault(message, self.text, node.startchar)
        elif isinstance(node, syntax.All):
            message = (
                "write '-a -b' or '-(a OR b)' to exclude each term; a combination of terms cannot be excluded"
            )
            if not negated:
                message = (
                    "OR joins single words, phrases and conditions; put parentheses around the alternatives"
                )
            raise fault(message, self.text, node.startchar)
        else:
            yield node

    def _leaf(self, node: syntax.Node) -> _Leaf:
        name = node.name if isinstance(node, syntax.Range) else node.fieldname or ""
        scope = self.scopes[name] if name else (None,)
        if isinstance(node, syntax.ComparisonNode) or isinstance(scope, ComparedAttribute):
            return self._condition(node, name, scope)
        if isinstance(node, syntax.Range) and any(quote in node.text for quote in syntax.QUOTES):
            message = f"{name} is searched for words, which have no ranges; write {name}>=... {name}<=..."
            raise fault(message, self.text, node.startchar)
        prefix = f"{name.lower()}:" if name else ""
        if isinstance(node, syntax.Word):
            slot = self._word(node, scope).slot
            return _Leaf(prefix + slot.text, slot.alternatives)
        places = places_of(scope, self.schema, names=self.match_names)
        alternatives = tuple(alternatives_of(node, self.text, places, self.schema.synonyms))
        spelling = self.text[node.startchar : node.endchar] if _exact(places) else self._spelled(node)
        return _Leaf(prefix + spelling, alternatives)

    def _spelled(self, node: syntax.Node) -> str:
        match node:
            case syntax.Phrase():
                return f'"{" ".join(node.text.lower().split())}"'
            case syntax.WildcardNode():
                return str(node.text).lower()
        spelling, ignored = _typed(node.text)
        self.ignored += ignored
        return f"{spelling}~{node.distance}" if isinstance(node, syntax.FuzzyNode) else f"{spelling}*"

    def _condition(self, node: syntax.Node, name: str, attribute: object) -> _Leaf:
        spelling = self.text[node.startchar : node.endchar]
        try:
            condition = self._comparison(node, name.removeprefix("!"), attribute)
        except QueryError as error:
            raise fault(str(error), self.text, node.startchar) from None
        if _compares_number(node) and (text_type := type_of_text(condition, self.schema)):
            self.numbers.append((spelling, text_type))
        if isinstance(node, syntax.ComparisonNode):
            return _Leaf(spelling, (condition,), restricts=not node.must)
        condition_text = spelling if isinstance(node, syntax.Range) else f"{name}:{spelling}"
        return _Leaf(condition_text, (condition,), restricts=not name.startswith("!"))

    def _comparison(self, node: syntax.Node, name: str, attribute: object) -> Condition:
        if isinstance(node, syntax.ComparisonNode):
            attribute = compared(node.name, self.schema)
            other = None if node.quoted else other_attribute(attribute, node.text, self.schema)
            if other is not None:
                return versus(attribute, node.sign, other, self.schema)
            return compare(attribute, node.sign, node.text, self.schema)
        assert isinstance(attribute, ComparedAttribute)  # noqa: S101 - checked by the caller
        if isinstance(node, syntax.Range):
            return in_range(attribute, node.low, node.high, self.schema)
        if not isinstance(node, syntax.Word | syntax.Phrase):
            raise QueryError(f"{name} is compared as a whole, without '*', '?' or '~'")
        other = other_attribute(attribute, node.text, self.schema) if isinstance(node, syntax.Word) else None
        if other is not None:
            return versus(attribute, Op.EQUAL, other, self.schema)
        return compare(attribute, Op.EQUAL, node.text, self.schema)


def _compares_number(node: syntax.Node) -> bool:
    """True for an order against a number, such as ``<9``; a value in quotes is a text."""
    return (
        isinstance(node, syntax.ComparisonNode)
        and not node.quoted
        and node.sign not in {Op.EQUAL, Op.DIFFERENT}
        and _NUMBER.fullmatch(node.text) is not None
    )


class _TypedWord(NamedTuple):
    """The slot of a single word in some places, its synonyms, and the punctuation that is ignored."""

    slot: Slot
    synonyms: tuple[str, ...]
    ignored: tuple[str, ...]


@lru_cache(maxsize=8)
def _words(schema: Schema, names: bool) -> Callable[[str, tuple[Scope | None, ...]], _TypedWord]:
    """A cached reader of words over a schema, since many queries share words."""
    return lru_cache(maxsize=1 << 16)(partial(_word, schema=schema, names=names))


def _word(text: str, scopes: tuple[Scope | None, ...], *, schema: Schema, names: bool) -> _TypedWord:
    places = places_of(scopes, schema, names=names)
    analyzers = dict.fromkeys(place.analyzer for place in places)
    synonyms = (other for each in analyzers for other in synonyms_of(text, schema.synonyms, each))
    spelling, ignored = (text, ()) if _exact(places) else _typed(text)
    alternatives = alternatives_of(syntax.Word(text), text, places, schema.synonyms)
    slot = Slot(spelling, tuple(dict.fromkeys(alternatives)))
    return _TypedWord(slot, tuple(dict.fromkeys(synonyms)), ignored)


def _exact(places: Sequence[TermScope]) -> bool:
    """True if every character of a term matters."""
    return bool(places) and all(place.analyzer is Analyzer.NONE for place in places)


def _typed(text: str) -> tuple[str, tuple[str, ...]]:
    """A word as typed, in lower case, without the punctuation around it; and the punctuation."""
    word_tokens = list(tokens(text))
    if not word_tokens:
        return text.lower(), ()
    start, end = min(token.start for token in word_tokens), max(token.end for token in word_tokens)
    punctuation = text[:start], _POSSESSIVE.sub("", text[end:])
    return text[start:end].lower(), tuple(part for part in punctuation if part)


def _slot(leaves: list[_Leaf]) -> Slot:
    alternatives = dict.fromkeys(alternative for leaf in leaves for alternative in leaf.alternatives)
    return Slot("|".join(dict.fromkeys(leaf.text for leaf in leaves)), tuple(alternatives))


def _reason(dropped: list[str]) -> str:
    """The text of ``_stop_words`` after a semicolon; empty if no term was dropped."""
    if not dropped:
        return ""
    return f"; {_stop_words(dropped)}"


def _nothing_left(text: str, dropped: list[str]) -> str:
    if any(map(_is_word, dropped)):
        return f"no keyword is left: {_stop_words(dropped)}"
    return f"the query {shown(text)} contains no word"


def _stop_words(dropped: list[str]) -> str:
    """The reason why the dropped terms do not count, and how to search for them."""
    words = list(dict.fromkeys(filter(_is_word, dropped)))
    if not words:
        return f"{' '.join(dict.fromkeys(dropped))} is not a word"
    word_list = ", ".join(map(repr, words))
    is_single = len(words) == 1
    return (
        f"{word_list} {'is a stop word' if is_single else 'are stop words'};"
        f" to search for {'it' if is_single else 'one'},"
        f' put it in quotes: "{words[0]}"'
    )


def _is_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _check_left_out(reader: _Reader, schema: Schema) -> None:
    """Raises QueryError if a keyword can only be in relations that are left out."""
    removed_relations = schema.evolution.removed_relations
    for relation, position in reader.without.items():
        name = schema.relations[relation].name
        for slot in reader.slots:
            if all(
                each.scope is not None and each.scope.relation in reader.without for each in slot.alternatives
            ):
                message = f"nothing can match: {shown(slot.text)} can only be in relations that are left out"
                raise fault(message, reader.text, position)
        if relation in reader.restricted:
            message = f"{shown(reader.restricted[relation])} restricts {shown(name)}, which is left out"
            raise fault(message, reader.text, position)
        if len(reader.without) + len(removed_relations - reader.without.keys()) == len(schema.relations):
            raise fault(
                f"nothing can match: with {shown(name)} every relation is left out", reader.text, position
            )


def _check(reader: _Reader, text: str) -> None:
    """Raises QueryError for no keywords, too many keywords, or a keyword that is also excluded."""
    slots, exclusions, dropped = reader.slots, reader.exclusions, reader.dropped
    if not slots:
        if reader.restricted:
            raise QueryError(
                f"the query {shown(text)} only restricts results; add a keyword, or '!' before a"
                " condition that a"
                f" tuple of the result must satisfy{_reason(dropped)}"
            )
        if exclusions or reader.without:
            raise QueryError(f"the query {shown(text)} only excludes; add a keyword{_reason(dropped)}")
        if dropped:
            raise QueryError(_nothing_left(text, dropped))
        raise QueryError("the query is empty; type at least one keyword")
    if len(slots) > MAX_SLOTS:
        raise QueryError(f"a query may have at most {MAX_SLOTS} keywords; this one has {len(slots)}")
    for slot in slots:
        if any(slot.same(exclusion) for exclusion in exclusions):
            raise QueryError(f"nothing can match: {shown(slot.text)} is both a keyword and excluded")


class KeywordGroup(NamedTuple):
    """One group of keywords in the text of a query, and the position of the semicolon next to it."""

    start: int
    end: int
    semicolon: int

    def with_blanks(self, text: str) -> str:
        """The text with blanks in place of the other groups, so that offsets do not change."""
        return " " * self.start + text[self.start : self.end] + " " * (len(text) - self.end)


def parts(text: str) -> list[KeywordGroup]:
    """The groups between semicolons; one if there is no semicolon. Raises QueryError for an empty group."""
    cuts = list(_semicolons(text)) if ";" in text else []
    if not cuts:
        return [KeywordGroup(0, len(text), -1)]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(text)]
    groups = [KeywordGroup(*position) for position in zip(starts, ends, [cuts[0], *cuts], strict=True)]
    for part in groups:
        if not text[part.start : part.end].strip():
            raise missing(part, text)
    return groups


def missing(part: KeywordGroup, text: str, reason: str = "") -> QueryError:
    """The error for a part without keywords."""
    side = "after" if part.semicolon < part.start else "before"
    return fault(f"there is no keyword {side} this ';'{reason}", text, part.semicolon)


def _semicolons(text: str) -> Iterator[int]:
    is_quoted, depth = False, 0
    for position, character in enumerate(text):
        if character in syntax.QUOTES:
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == ";":
            if depth > 0:
                message = "';' orders all keywords before it and after it; it cannot be inside parentheses"
                raise fault(message, text, position)
            yield position
