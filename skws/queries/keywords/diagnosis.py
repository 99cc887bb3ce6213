"""The reason why a query has no results: keywords that no tuple contains, or that no result joins.

This runs only for queries without results. Searches over an index count all tuples, others a bounded number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import islice
from operator import or_
from typing import Final, NamedTuple

from skws.data.batch import BadRecord, Record
from skws.keywords.analysis import fold, tokens
from skws.keywords.keyword_query import KeywordQuery
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.keywords.scope import satisfied
from skws.keywords.suggest import Vocabulary, meant_for, why_missing
from skws.keywords.typed_values import TypedValue, typed_values
from skws.spec.query_spec import TypedSearch
from skws_mesh.cngen import TooManyKindsError, count_networks
from skws_schema.errors import QueryError, shown
from skws_schema.model import Attribute, AttributeType, Possible, Relation, Row, Schema, sourced
from skws_schema.paths import from_here
from skws_windows.window import Unbounded

SAMPLE_RECORDS: Final = 50_000
_MOST_SUGGESTIONS: Final = 3
_LARGER: Final = 3  # rows by which trees may be larger than --max-size to recommend that
_MOST_STEPS: Final = 10_000  # of counting them, which takes less than a tenth of a second
_MOST_TYPED: Final = 100  # conditions that a number or a date could mean
_DIGIT: Final = re.compile(r"\d")


_ADVICE_TEXTS: Final = (
    *("did you mean", "; try ", ": try ", "possible: "),
    *("give it type", "add it to", "put a line with "),
)
"""A line about an empty search that contains one of these texts says what to do."""


class EmptyResult(NamedTuple):
    """The reason why a query has no results, in lines for the user.

    ``missing``: the keywords that no tuple satisfies, each with similar words, the likeliest first.
    ``instead``: the query without them, empty if no keyword would be left; if they are in excluded tuples,
    without the exclusions; or, if all keywords occur but no larger tree can help, a weaker query.
    ``dropped``: what it leaves out. ``join``: the form of a join to
    add, if there are none.
    """

    reasons: tuple[str, ...]
    missing: Mapping[str, Sequence[str]] = {}
    instead: str = ""
    join: str = ""
    dropped: tuple[str, ...] = ()

    def lines(self, command: TypedSearch | None = None) -> tuple[str, ...]:
        """The reasons, and one thing to try if they name none, shown as a command if ``command`` is given."""
        advice = (
            ""
            if any(text in line for line in self.reasons for text in _ADVICE_TEXTS)
            else self._advice(command)
        )
        return (*self.reasons, advice) if advice else self.reasons

    def _advice(self, command: TypedSearch | None) -> str:
        if self.join:
            add = f"skws schema join {command.schema} {self.join.replace(' ', '')}" if command else self.join
            return f"add a join: {add}"
        if self.instead:
            search = f"skws search {command.data} {_as_words(self.instead)}" if command else self.instead
            weaker = "with any of them" if self.instead.startswith("(") else "in any order"
            change = f"without {', '.join(map(repr, self.dropped))}" if self.dropped else weaker
            return f"{change}: {search}"
        return f"skws schema show {command.schema} lists the columns that are searched" if command else ""


def _as_words(query: str) -> str:
    """A query in a command: unchanged if it has no special meaning for a shell, else quoted."""
    words = query.split()
    return query if shlex.join(words) == query and query.find(" -") < 0 else shlex.quote(query)


@dataclass(slots=True)
class KeywordCounts:
    """The number of tuples that satisfy each keyword of a plan, and their relations.

    ``unsearched``: for each keyword, a line on an attribute that contains its text but is not searched.
    ``typed``: for each keyword that is a number or a date, conditions on attributes of that type, and whether
    a tuple satisfies them. ``excludes``: True if the query excludes some tuples, which may satisfy keywords.
    ``excluded_slots``: the keywords, as bits, of the excluded tuples that were added.
    """

    plan: Plan
    slots: list[int] = field(init=False)
    relations: list[set[int]] = field(init=False)
    unsearched: dict[int, str] = field(default_factory=dict)
    typed: list[dict[TypedValue, bool]] = field(init=False)
    _typed_by_relation: dict[tuple[int, int | None], list[TypedValue]] = field(init=False)
    tuples: int = 0
    excludes: bool = False
    excluded_slots: int = 0

    def __post_init__(self) -> None:
        self.slots = [0] * len(self.plan.query.slots)
        self.relations = [set() for _ in self.slots]
        self.typed = [
            dict.fromkeys(islice(typed_values(slot.text, self.plan.schema), _MOST_TYPED), False)
            for slot in self.plan.query.slots
        ]
        self._typed_by_relation = {}
        for number, values in enumerate(self.typed):
            for value in values:
                self._typed_by_relation.setdefault((number, value.condition.relation), []).append(value)

    def add(self, number: int, row: Row) -> None:
        """Count a tuple of the relation ``number``."""
        self.tuples += 1
        plan = self.plan
        bitmap = plan.matcher.bitmap(number, row)
        self.excludes |= bitmap == EXCLUDED or number in plan.query.without
        if bitmap == EXCLUDED:
            self.excluded_slots |= plan.matcher.slots(number, row)
        for slot, keyword in enumerate(plan.query.slots):
            if bitmap != EXCLUDED and bitmap >> slot & 1:
                self.count(slot, number)
            elif not self.slots[slot]:
                for value in self._typed_by_relation.get((slot, number), ()):
                    if satisfied(value.condition, row):
                        self.typed[slot][value] = True
                if slot not in self.unsearched:
                    line = _unsearched(keyword.text, plan.schema.relations[number], row)
                    self.unsearched |= {slot: line} if line else {}

    def count(self, slot: int, relation: int, tuples: int = 1) -> None:
        """Count tuples of a relation that satisfy a keyword."""
        if tuples:
            self.slots[slot] += tuples
            self.relations[slot].add(relation)

    def why_nothing(self, words: Callable[[], Mapping[str, int]], where: str = "") -> EmptyResult:
        """The reason. ``words``: folded, with their numbers of tuples. ``where``: the tuples counted."""
        plan = self.plan
        is_searched = plan.query.match_names or any(each.search_columns for each in plan.schema.relations)
        if not is_searched and not self.unsearched:
            return EmptyResult(("no column is searched: --schema FILE can declare some as text",))
        where_text = where or (" of the stream" if sourced(plan.schema) else "")
        where_text += " that the query does not exclude" if self.excludes else ""
        word_counts = {} if all(self.slots) else words()
        missing = meant_for(plan.query.slots, self.slots, word_counts)
        lines = why_missing(missing, where_text)
        lines += [line for slot, line in self.unsearched.items() if not self.slots[slot]]
        for keyword, values, count in zip(plan.query.slots, self.typed, self.slots, strict=True):
            lines += [] if count else _typed_notes(keyword.text, values)
        join, instead, dropped = "", _without(plan.query, missing), tuple(missing)
        excluded = [
            slot for slot, count in enumerate(self.slots) if not count and self.excluded_slots >> slot & 1
        ]
        exclusions = _exclusions(plan.query)
        if excluded and exclusions and not plan.query.sequence:
            absent = missing.keys() - {plan.query.slots[slot].text for slot in excluded}
            instead = " ".join(slot.text for slot in plan.query.slots if slot.text not in absent)
            dropped = (*exclusions, *(text for text in missing if text in absent))
        is_unjoined = not lines and bool(self.tuples) and len(plan.query.slots) > 1
        if is_unjoined:
            is_larger = _has_larger_networks(plan, self.relations)
            reason = _why_unjoined(plan, self.relations, is_larger=is_larger)
            lines.append(f"every keyword matches some row, but {reason}")
            join = "" if plan.schema.joins else _example(plan.schema, self.relations)
            instead = "" if join or is_larger else _weaker(plan)
        lines += [*_name_notes(plan), *_in_headers(plan.schema, missing)]
        if is_unjoined:
            lines += _suggestions(plan.schema, partial(_helps, plan, self.relations))
        return EmptyResult(tuple(lines), missing, instead, join, dropped)


def _typed_notes(text: str, values: Mapping[TypedValue, bool]) -> Iterator[str]:
    """A line on conditions that a keyword could mean: those that a tuple satisfies, else the first ones."""
    chosen = [value for value, is_satisfied in values.items() if is_satisfied] or [*values]
    if chosen:
        conditions = " or ".join(repr(value.text) for value in chosen[:_MOST_SUGGESTIONS])
        yield f"{shown(text)} is {chosen[0].noun}, and keywords are searched in texts only: try {conditions}"


def _without(query: KeywordQuery, missing: Iterable[str]) -> str:
    """The query without the keywords that no tuple satisfies; empty if this removes none or all of them."""
    keywords = [slot.text for slot in query.slots if slot.text not in missing]
    if not keywords or len(keywords) == len(query.slots) or query.sequence:
        return ""
    return " ".join([*keywords, *_exclusions(query)])


def _weaker(plan: Plan) -> str:
    """The query for rows with any of the keywords, or for these in any order; empty if there is none."""
    keywords = [slot.text for slot in plan.query.slots]
    weaker = " ".join(keywords) if plan.query.sequence else f"({' OR '.join(keywords)})"
    text = " ".join([weaker, *_exclusions(plan.query)])
    try:
        parse_query(text, plan.schema, match_names=plan.query.match_names)
    except QueryError:  # alternatives of alternatives
        return ""
    return text


def _exclusions(query: KeywordQuery) -> list[str]:
    texts = [slot.text for slot in query.exclusions]
    return [text if text in query.restrictions else f"-{text}" for text in texts]


def _suggestions(schema: Schema, helps: Callable[[Possible], tuple[bool, int]]) -> list[str]:
    """The joins that the schema's draft only suggests, with the way to add them; the most helpful first."""
    joins = sorted(schema.possible, key=helps, reverse=True)
    return [
        f"possible: {join.on} ({join.reason}); "
        + (
            f"add it with skws schema join {shlex.quote(from_here(join.file))} {join.on.replace(' ', '')}"
            if join.file
            else f"add '{join.on}' to the joins of the schema"
        )
        for join in joins[:_MOST_SUGGESTIONS]
    ]


def _helps(plan: Plan, relations: Sequence[set[int]], possible: Possible) -> tuple[bool, int]:
    """True if a join leads from keyword to keyword, and the number of its relations with keywords."""
    ends = {plan.schema.index[name] for name in _relations_of(possible)}
    return _unconnected_slots(plan, relations, ends) is None, len(ends & set().union(*relations))


def _name_notes(plan: Plan) -> Iterator[str]:
    """A line on keywords that are also names in the schema, if the query does not search names."""
    if plan.query.match_names:
        return
    query = parse_query(plan.query.text, plan.schema, match_names=True)
    names = reduce(or_, Matcher(query, plan.schema).names)
    texts = [repr(slot.text) for number, slot in enumerate(query.slots) if names >> number & 1]
    if texts:
        verb = "is also a name" if len(texts) == 1 else "are also names"
        yield f"{', '.join(texts)} {verb} in the schema: try --match-names"


def _in_headers(schema: Schema, missing: Iterable[str]) -> Iterator[str]:
    """A line on keywords in the first line of a file, which may be a row and not the header."""
    for text in missing:
        for relation in schema.relations:
            for attribute in relation.attributes:
                heading = attribute.origin or ""
                if " " in heading and fold(text) in {token.word for token in tokens(heading)}:
                    yield (
                        f"{shown(text)} is in {shown(heading)}, which names a column of"
                        f" {relation.name}: if that is a row, put a line with the column names before it"
                    )
                    return


def _relations_of(possible: Possible) -> set[str]:
    return {side.partition(".")[0] for side in possible.on.split(" = ")}


class RecordSample:
    """Counts the keywords and the words of some records. ``whole``: True if these are all records."""

    def __init__(self, plan: Plan) -> None:
        self.whole = True
        self._counts = KeywordCounts(plan)
        self._words = Vocabulary()

    def add(self, items: Iterable[Record | BadRecord], most: int) -> int:
        """Count the insertions among the first ``most`` items; returns the number of items."""
        tuples_before, remaining = self._counts.tuples, iter(items)
        for record in insertions(islice(remaining, most)):
            self._counts.add(record.relation, record.row)
            note_words(self._words, self._counts.plan.schema.relations[record.relation], record.row)
        self.whole = self.whole and next(remaining, None) is None
        return self._counts.tuples - tuples_before

    def why_nothing(self) -> EmptyResult:
        where = "" if self.whole else f" of the {self._counts.tuples:,} examined"
        return self._counts.why_nothing(lambda: self._words, where)


def why_rows_give_nothing(plan: Plan, rows: Iterable[tuple[int, Row]], where: str) -> EmptyResult:
    """The reason why rows give a plan no results.

    ``rows``: each with the number of its relation; ``where``: describes them.
    """
    counts, words, rows = KeywordCounts(plan), Vocabulary(), list(rows)
    for relation, row in rows:
        counts.add(relation, row)

    def vocabulary() -> Vocabulary:
        for relation, row in rows:
            note_words(words, plan.schema.relations[relation], row)
        return words

    return counts.why_nothing(vocabulary, where)


def insertions(items: Iterable[Record | BadRecord]) -> Iterator[Record]:
    """The good records that are not deletions."""
    for item in items:
        if isinstance(item, Record) and not item.delete:
            yield item


def note_words(words: Vocabulary, relation: Relation, row: Row) -> None:
    """Add the words that are searched in a row."""
    for column in relation.search_columns:
        value = row[column]
        if value is not None:
            # Codes are left out: most are unique to a row, and suggestions for them would be useless.
            text = " ".join(word for word in str(value).split() if not _DIGIT.search(word))
            words.add(text, relation.attributes[column].analyzer)


def _has_larger_networks(plan: Plan, relations: Sequence[set[int]]) -> bool:
    """True if larger trees than the plan's could join tuples of ``relations``, or if that is not known."""
    searchable = [
        sum(1 << slot for slot, slot_relations in enumerate(relations) if number in slot_relations)
        for number in range(len(plan.schema.relations))
    ]
    generator = plan.generator(searchable, plan.max_size + _LARGER)
    try:
        return any(count_networks(generator, _MOST_STEPS)[plan.max_size :])
    except TooManyKindsError:
        return True


def _why_unjoined(plan: Plan, relations: Sequence[set[int]], *, is_larger: bool) -> str:
    """The reason why no result has a tuple for each slot, if all slots match tuples of ``relations``.

    ``is_larger``: larger trees could have them.
    """
    order = " in this order" if plan.query.sequence else ""
    if not plan.schema.joins:
        return "no row has all of them, and the schema has no joins"
    slots = _unconnected_slots(plan, relations)
    if slots is not None:
        first, second = (plan.query.slots[slot].text for slot in slots)
        names = [_names(plan.schema, relations[slot]) for slot in slots]
        leaves_out = plan.query.without_joins or plan.query.without
        clause = ", apart from those left out" if leaves_out else ""
        return f"no joins lead from {names[0]} ({shown(first)}) to {names[1]} ({shown(second)}){clause}"
    rows = "row" if plan.max_size == 1 else f"tree of up to {plan.max_size} joined rows"
    size = "--max-size" if is_larger else ""
    if isinstance(plan.window, Unbounded):
        return f"no {rows} contains all of them{order}" + (f"; try a larger {size}" if size else "")
    options = " or ".join(filter(None, (size, "--window")))
    return f"no {rows} within a window contains all of them{order}; try a larger {options}"


def _example(schema: Schema, relations: Sequence[set[int]]) -> str:
    """The form of a join between relations that have keywords; empty for one relation."""
    if len(schema.relations) == 1:
        return ""
    names = [schema.relations[each].name for each in sorted(set().union(*relations))]
    return f"{names[0]}.ATTRIBUTE = {names[-1]}.ATTRIBUTE"


def _unconnected_slots(
    plan: Plan, relations: Sequence[set[int]], joined_relations: Set[int] = frozenset()
) -> tuple[int, int] | None:
    """Two slots whose relations no path of joins connects; None if there are none.

    ``joined_relations``: relations that one more join would connect.
    """
    schema, neighbours = plan.schema, dict[int, set[int]]()
    for relation in joined_relations:
        neighbours.setdefault(relation, set()).update(joined_relations)
    excluded = schema.evolution.removed_joins | plan.query.without_joins
    for position, join in enumerate(schema.joins):
        ends = {schema.index[join.left], schema.index[join.right]}
        if position not in excluded and ends.isdisjoint(plan.query.without):
            for end in ends:
                neighbours.setdefault(end, set()).update(ends)
    reachable, frontier = set(relations[0]), set(relations[0])
    while frontier:
        frontier = {
            neighbour for relation in frontier for neighbour in neighbours.get(relation, ())
        } - reachable
        reachable |= frontier
    return next(
        ((0, slot) for slot, slot_relations in enumerate(relations) if reachable.isdisjoint(slot_relations)),
        None,
    )


def _names(schema: Schema, relations: set[int]) -> str:
    return ", ".join(schema.relations[relation].name for relation in sorted(relations))


def _unsearched(text: str, relation: Relation, row: Row) -> str:
    """A line on an attribute that is not searched and whose value contains the words of ``text``, or ""."""
    words = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)", re.IGNORECASE)
    for attribute, value in zip(relation.attributes, row, strict=True):
        if type(value) is str and attribute.name not in relation.search and words.search(value):
            return (
                f"{relation.name}.{attribute.name} contains {shown(text)}, but is not searched:"
                f" {_remedy(relation, attribute)}"
            )
    return ""


def _remedy(relation: Relation, attribute: Attribute) -> str:
    """The change of a schema by which an attribute is searched."""
    text_names = [each.name for each in relation.attributes if each.type is AttributeType.TEXT]
    steps = [] if attribute.name in text_names else ["give it type: text"]
    # Without ``search:`` in the schema, all text attributes are searched.
    return " and ".join(steps if text_names == [*relation.search] else [*steps, "add it to the search: list"])
