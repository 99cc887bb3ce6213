"""Keyword queries: predicates on single tuples.

A query is a conjunction of slots; each is one bit of the keyword bitmaps in the expanded schema (S-KWS paper,
Section 4). A slot is a disjunction of words, phrases, prefixes, similar words, wildcards and conditions, each
perhaps limited to a relation or attribute.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from skws_mesh.sequence import KeywordSequence
from skws_schema.errors import printable
from skws_schema.model import Analyzer, Op, Value, VersionOrder

if TYPE_CHECKING:  # modules that read data import this one
    from skws.data.versions import VersionKey


class Scope(NamedTuple):
    """A relation (by position in the schema), and one of its columns (by position in a row) or all."""

    relation: int
    column: int | None


@dataclass(frozen=True, slots=True)
class _Scoped:
    """The scope of a predicate. ``without``: the relations, by position, that the query leaves out.

    ``analyzer``: the analyzer of the texts that it is compared with. ``columns``: the searched columns with
    this analyzer, as (relation, column); None if all searched columns have it.
    """

    scope: Scope | None = field(default=None, kw_only=True)
    analyzer: Analyzer = field(default=Analyzer.ENGLISH, kw_only=True)
    columns: frozenset[tuple[int, int]] | None = field(default=None, kw_only=True)
    without: frozenset[int] = field(default=frozenset(), kw_only=True)

    def applies(self, relation: int, column: int) -> bool:
        """True if values of this column of this relation (both by position) can satisfy it."""
        if relation in self.without:
            return False
        if self.columns is not None and (relation, column) not in self.columns:
            return False
        scope = self.scope
        return scope is None or (scope.relation == relation and scope.column in {None, column})

    @property
    def everywhere(self) -> bool:
        """True if values of all columns can satisfy it."""
        return self.scope is None and self.columns is None and not self.without


@dataclass(frozen=True, slots=True)
class Term(_Scoped):
    """A word, compared by its stem."""

    stem: str


@dataclass(frozen=True, slots=True)
class Phrase(_Scoped):
    """Consecutive pieces of one attribute's text, compared by their stems; stop words count.

    ``spelled``: the signs that join them (``analysis.spelled``); empty if anything may be between them.
    """

    stems: tuple[str, ...]
    spelled: str = ""


@dataclass(frozen=True, slots=True)
class Prefix(_Scoped):
    """Any searchable word with this beginning, before stemming."""

    start: str


@dataclass(frozen=True, slots=True)
class Fuzzy(_Scoped):
    """Any searchable word at most ``distance`` typing errors away (``leaves.within``), before stemming."""

    word: str
    distance: int


@dataclass(frozen=True, slots=True)
class Wildcard(_Scoped):
    """Any searchable word of this form, before stemming: ``*`` is any number of characters, ``?`` is one."""

    form: str


class Interval(NamedTuple):
    """Values between two ends, None for no end; with ``outside``, all other values. Never includes NULL.

    ``order``: if given, the values are versions, and the ends are their keys (``skws.data.versions``).
    """

    low: Value | VersionKey
    high: Value | VersionKey
    low_open: bool = False
    high_open: bool = False
    outside: bool = False
    order: VersionOrder | None = None


class Versus(NamedTuple):
    """A comparison with the value of another column of the same row. NULL never satisfies it."""

    sign: Op
    column: int
    order: VersionOrder | None = None


Test: TypeAlias = Interval | Versus


@dataclass(frozen=True, slots=True)
class Condition(_Scoped):
    """Selects the tuples of the scope's relation in which a column passes its test.

    With ``failing``, it selects the other tuples of the relation instead, including those with NULL.
    """

    tests: tuple[tuple[int, Test], ...]
    failing: bool = False

    def __post_init__(self) -> None:
        if self.scope is None:
            raise ValueError("a condition is on one relation")

    def applies(self, relation: int, column: int) -> bool:  # noqa: ARG002 - same signature as its siblings
        """Always False: no text satisfies a condition."""
        return False

    @property
    def everywhere(self) -> bool:
        return False

    @property
    def relation(self) -> int | None:
        """The relation whose tuples can satisfy it; None if the query leaves this relation out."""
        assert self.scope is not None  # noqa: S101 - see __post_init__
        return None if self.scope.relation in self.without else self.scope.relation


WordAlternative: TypeAlias = Term | Prefix | Fuzzy | Wildcard
"""Predicates that a single word can satisfy."""
Alternative: TypeAlias = WordAlternative | Phrase | Condition


@dataclass(frozen=True, slots=True)
class Slot:
    """One predicate on one tuple: any of the alternatives.

    ``text``: the user's text, in lower case except for conditions.
    """

    text: str
    alternatives: tuple[Alternative, ...]

    def same(self, other: Slot) -> bool:
        """True if both are the same predicate, however typed."""
        if len(self.alternatives) == 1:  # the usual case; sets take several times as long
            return self.alternatives == other.alternatives
        return set(self.alternatives) == set(other.alternatives)

    def outside(self, relations: frozenset[int]) -> Slot:
        """The same predicate without the tuples of some relations."""
        return replace(self, alternatives=tuple(replace(a, without=relations) for a in self.alternatives))


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A parsed query. Tuples that satisfy one of the ``exclusions`` are in no result.

    A condition that restricts a relation excludes the tuples that fail it.

    ``dropped``: the terms without any searchable word. ``ignored``: the punctuation around the others, for
    display. ``sequence``: the order in time that the query demands of its keywords. ``without``: the
    relations, by position, whose tuples are in no result. ``without_joins``: the joins, by position, that are
    in no result. ``synonyms``: typed words with their synonyms. ``repeated``: terms that occur twice.
    ``numbers``: the conditions that compare texts with a number, each with the type.
    """

    text: str
    slots: tuple[Slot, ...]
    exclusions: tuple[Slot, ...] = ()
    dropped: tuple[str, ...] = ()
    match_names: bool = False
    sequence: KeywordSequence = field(default_factory=KeywordSequence)
    ignored: tuple[str, ...] = ()
    without: frozenset[int] = frozenset()
    without_joins: frozenset[int] = frozenset()
    synonyms: tuple[tuple[str, ...], ...] = ()
    repeated: tuple[str, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        """The hash of the text, which is fast: equal queries have equal texts."""
        return hash(self.text)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """The conditions that restrict a relation, as typed."""
        return tuple(
            slot.text
            for slot in self.exclusions
            if any(isinstance(each, Condition) and each.failing for each in slot.alternatives)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on parts of the text that are not searched, or not compared as typed, one line per reason."""
        notes = []
        if self.dropped:
            words = ", ".join(map(printable, self.dropped))
            notes.append(f"not searched (too common, or not a word): {words}")
        if self.ignored:
            notes.append(f"ignored (not part of a word): {' '.join(map(repr, self.ignored))}")
        if self.repeated:
            notes.append(f"repeated, counted once: {', '.join(map(printable, self.repeated))}")
        notes += [
            f"compared as text, not as a number: {condition} ({reason})" for condition, reason in self.numbers
        ]
        return tuple(notes)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The text of each slot, in the order of the bits."""
        return tuple(slot.text for slot in self.slots)
