"""Window expressions read over a schema, and whether their windows can pile up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from json import loads
from typing import Final

from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.queries.windowed.writers import witness_text
from skws.spec.query_spec import AGGREGATES, FORMULA, LOOKBACK, PAIRS, PER, SELECT, Query
from skws_schema.errors import QueryError, SchemaError, SkwsError, UsageError, nearest, shown
from skws_schema.evolution import nameable
from skws_schema.model import Analyzer, Attribute, AttributeType, Relation, Schema
from skws_windows.automata.regular import Selection, WindowExpression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import TIME, Alphabet
from skws_windows.guards.satisfiability import Satisfiability
from skws_windows.language.window_parser import (
    former_spellings,
    formula_expression,
    parse_expression,
    parse_pairs,
)
from skws_windows.overlap_verdict import Bound, OverlapVerdict, check, compile_expression
from skws_windows.processor.panes import PREFIXED, Aggregate, monoid
from skws_windows.processor.panes import names as monoid_names
from skws_windows.processor.stream_processor import Processor
from skws_windows.window import ExpressionWindow, Window, parse_window

FLAG: Final = "--force-unbounded-windows"
_AGGREGATE: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*([\w.]+)\s*\))?\s*")
_ALIASES: Final = {"avg": "mean", "average": "mean", "minimum": "min", "maximum": "max"}


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window expression read over the streams of a schema.

    ``aggregates``: to compute for each window, as texts that ``read_aggregate`` accepts.
    """

    alphabet: Alphabet
    expression: WindowExpression
    aggregates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_keywords(self.expression.guards, self.alphabet)

    @classmethod
    def of_text(cls, schema: Schema, text: str, aggregates: tuple[str, ...] = ()) -> WindowPlan:
        """An expression in words. Raises UsageError if it cannot be read."""
        alphabet = Alphabet(schema, contains_keyword)
        return cls(alphabet, parse_expression(text, alphabet), aggregates)

    @classmethod
    def of(cls, query: Query, schema: Schema) -> WindowPlan:
        """A query for windows in any of its forms. Raises UsageError if it cannot be read."""
        alphabet = Alphabet(schema, contains_keyword)
        return cls(alphabet, _expression(query, alphabet), _json_list(query, AGGREGATES))

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings: keywords that are not searched."""
        matcher_lists = _matchers(self.expression.guards, self.alphabet).values()
        all_matchers = (each for matchers in matcher_lists for each in matchers if isinstance(each, Matcher))
        return tuple(dict.fromkeys(note for matcher in all_matchers for note in matcher.query.notes))

    def verdict(self) -> OverlapVerdict:
        """The verdict on whether windows can pile up."""
        return _verdict(self.expression, self.alphabet)

    def processor(self) -> Processor:
        """A processor that finds the windows. Raises UsageError for an unknown aggregate."""
        aggregates = [read_aggregate(text, self.alphabet) for text in self.aggregates]
        return Processor(self.compiled(), self.alphabet, aggregates)

    @property
    def reads_clock(self) -> bool:
        """True if a condition or the key contains the event time."""
        atoms = (atom for guard in self.expression.guards for atom in g.atoms(guard))
        names = {field.name for atom in atoms for field in g.fields(atom)}
        return self.alphabet.clock and TIME in names | set(self.expression.per)

    def compiled(self) -> WindowExpression:
        """The expression without transitions that cannot occur."""
        return _compiled(self.expression, self.alphabet)


# Admission, checks and searches of a window would ask z3 the same questions, each for milliseconds.
@lru_cache(maxsize=64)
def _compiled(expression: WindowExpression, alphabet: Alphabet) -> WindowExpression:
    return compile_expression(expression, Satisfiability(alphabet))


@lru_cache(maxsize=64)
def _verdict(expression: WindowExpression, alphabet: Alphabet) -> OverlapVerdict:
    return check(expression, alphabet, _compiled(expression, alphabet))


def _expression(query: Query, alphabet: Alphabet) -> WindowExpression:
    per = _json_list(query, PER)
    for name in per:
        _known_field(name, alphabet)
    if query.text:
        return parse_expression(query.text, alphabet)
    lookback = int(query.options.get(LOOKBACK, 0))
    selection = Selection(query.options.get(SELECT, Selection.EVERY))
    formula = query.options.get(FORMULA)
    if formula is not None:
        return formula_expression(formula, alphabet, lookback=lookback, selection=selection, per=per)
    pairs = [(before, window) for before, window in loads(query.options[PAIRS])]
    return parse_pairs(pairs, alphabet, lookback=lookback, selection=selection, per=per)


def _json_list(query: Query, option: str) -> tuple[str, ...]:
    return tuple(loads(query.options.get(option, "[]")))


def read_aggregate(text: str, alphabet: Alphabet) -> Aggregate:
    """The aggregate of a text, such as ``mean(temp)`` or ``count``. Raises UsageError."""
    match = _AGGREGATE.fullmatch(text)
    if match is None:
        raise UsageError(f"--aggregate {shown(text)}: expected a name and a field, such as mean(temp)")
    name = _ALIASES.get(match[1].lower(), match[1].lower())
    if name not in monoid_names():
        names = [*monoid_names(), *_ALIASES]
        name_list = ", ".join(monoid_names())
        raise UsageError(f"--aggregate {shown(text)}: expected one of {name_list}{nearest(name, names)}")
    if match[2] is None:
        if name != "count":
            raise UsageError(
                f"--aggregate {shown(text)}: expected the field to aggregate, such as {name}(temp)"
            )
        return Aggregate(name)
    _check_sort(text, name, alphabet.fields[_known_field(match[2], alphabet)].sort)
    return Aggregate(name, match[2])


def _check_sort(text: str, name: str, sort: AttributeType) -> None:
    is_number = sort in (AttributeType.INTEGER, AttributeType.NUMBER)
    needs_number = name == "sum" or (name not in (*PREFIXED, "min", "max") and monoid(name).numeric)
    if needs_number and not is_number:
        raise UsageError(f"--aggregate {shown(text)}: expected a number; the field is of type {sort}")
    if name == "mean" and not sort.numeric:
        raise UsageError(f"--aggregate {shown(text)}: expected a number or time; the field is of type {sort}")
    if name in ("min", "max") and sort is AttributeType.BOOLEAN:
        raise UsageError(f"--aggregate {shown(text)}: booleans have no order")


def _known_field(name: str, alphabet: Alphabet) -> str:
    if name not in alphabet.fields:
        owners = [field for field in alphabet.fields if field.endswith(f".{name}")]
        if owners:
            message = "has different types or analyzers in different relations"
            raise UsageError(f"{shown(name)} {message}; write {' or '.join(owners)}")
        raise UsageError(f"no field {shown(name)}{nearest(name, alphabet.fields)}")
    return name


_UNTYPED: Final = "\0"
"""A name that no scope or condition can have, even by mistyping."""


def contains_keyword(keyword: str, text: str, analyzer: Analyzer = Analyzer.ENGLISH) -> bool:
    """True if a text satisfies a keyword query by itself; False if the analyzer removes all of its words."""
    matcher = _matcher(keyword, analyzer)
    return not isinstance(matcher, str) and matcher.bitmap(0, (text,)) == matcher.excluding - 1


@lru_cache(maxsize=1024)
def _matcher(keyword: str, analyzer: Analyzer) -> Matcher | str:
    """The matcher of a keyword, or the error if it cannot be searched for."""
    text = Attribute(_UNTYPED, AttributeType.TEXT, analyzer=analyzer)
    schema = Schema(_UNTYPED, (Relation(_UNTYPED, (text,), search=(_UNTYPED,)),), ())
    try:
        query = parse_query(keyword, schema)
    except QueryError as error:
        return str(error)
    if query.sequence:
        return f"one text must contain {shown(keyword)}: to order several records, use ';' with 'match'"
    return Matcher(query, schema)


def _matchers(guards: Sequence[g.Guard], alphabet: Alphabet) -> dict[str, list[Matcher | str]]:
    """The matchers of the keywords of guards, one for each field, or the error if there is none."""
    by_guard: dict[str, list[Matcher | str]] = {}
    for guard in guards:
        for atom in g.atoms(guard):
            if isinstance(atom, g.Contains):
                analyzer = alphabet.fields[atom.field.name].analyzer
                by_guard.setdefault(atom.keyword, []).append(_matcher(atom.keyword, analyzer))
    return by_guard


def _check_keywords(guards: Sequence[g.Guard], alphabet: Alphabet) -> None:
    """Raises UsageError for a keyword that cannot be searched for in any of its fields."""
    for matchers in _matchers(guards, alphabet).values():
        faults = [each for each in matchers if isinstance(each, str)]
        if len(faults) == len(matchers):
            raise UsageError(faults[0])


def query_notes(query: Query, plan: WindowPlan) -> tuple[str, ...]:
    """Warnings: deprecated parts of a query for windows, and keywords that are not searched."""
    return (*_former_notes(query), *plan.notes)


def _former_notes(query: Query) -> tuple[str, ...]:
    if query.text:
        return former_spellings(query.text)
    if FORMULA in query.options:
        return former_spellings(query.options[FORMULA], "formula")
    pairs = [text for pair in loads(query.options[PAIRS]) for text in pair]
    return tuple(dict.fromkeys(note for text in pairs for note in former_spellings(text, "regular")))


def window_notes(schema: Schema, window: Window) -> tuple[str, ...]:
    """Warnings for a window expression: deprecated parts, and keywords that are not searched."""
    if not isinstance(window, ExpressionWindow):
        return ()
    return (*former_spellings(window.text), *WindowPlan.of_text(schema, window.text).notes)


def admit(schema: Schema, window: Window, *, allowed: bool) -> str:
    """A warning about windows that may pile up; empty if none can, or if that is ``allowed``.

    Raises UsageError for an expression that cannot be read or whose windows
    can pile up; SchemaError if it is the schema's own window.
    """
    if not isinstance(window, ExpressionWindow):
        return ""
    try:
        plan = WindowPlan.of_text(schema, window.text)
        return "" if allowed else check_overlap(plan)
    except UsageError as error:
        raise _with_origin(error, schema, window) from None


def _with_origin(error: UsageError, schema: Schema, window: ExpressionWindow) -> SkwsError:
    is_own = parse_window(schema.window) == window
    return (
        SchemaError(f"window of schema {schema.name}: {error}") if is_own else UsageError(f"window: {error}")
    )


_MOST_NAMES: Final = 4


def check_overlap(plan: WindowPlan) -> str:
    """A warning if windows may pile up or never occur; else empty. Raises UsageError if they can pile up."""
    verdict = plan.verdict()
    relations = plan.alphabet.schema.relations
    if verdict.never and all(relation.table for relation in relations):
        names = ", ".join(relation.name for relation in relations[:_MOST_NAMES])
        more = ", ..." if len(relations) > _MOST_NAMES else ""
        return (
            f"warning: no record can be in a window: the schema has only static tables ({names}{more});"
            " write 'time: ATTRIBUTE' in place of 'table: true' if a relation has times"
        )
    if verdict.never:
        return f"warning: {verdict.reason}"
    bounds = (verdict.open_starts, verdict.windows_per_position)
    if plan.expression.limits.bounding or all(bound is Bound.BOUNDED for bound in bounds):
        return ""
    if Bound.UNBOUNDED in bounds:
        witness = verdict.witness
        stream_text = (
            "" if witness is None else f", as on this stream:\n{witness_text(witness, plan.alphabet)}"
        )
        raise UsageError(
            f"windows can pile up without bound: {verdict.reason}{stream_text}\n"
            "Choose 'first' or 'longest', give a limit such as 'at most 1000 records' or "
            f"'within 10 minutes', or allow it with {FLAG}"
        )
    return f"warning: windows may pile up without bound: {verdict.reason}"


def check_same_windows(before: Schema, after: Schema, window: ExpressionWindow) -> None:
    """Raises UsageError if a changed schema leads to other automata: the state would be lost."""
    former, present = (WindowPlan.of_text(nameable(schema), window.text) for schema in (before, after))
    if former.compiled() != present.compiled() or former.reads_clock != present.reads_clock:
        raise UsageError("with the new relations its windows would begin and end by other conditions")


def lines_of_verdict(schema: Schema, window: ExpressionWindow) -> list[str]:
    """The result of the static check of a window, in lines for the user."""
    plan = WindowPlan.of_text(schema, window.text)
    verdict = plan.verdict()
    lines = [
        f"windows open at one time: {verdict.open_starts}, because {verdict.reason}",
        f"windows that end with one record: {verdict.windows_per_position}",
    ]
    if plan.expression.limits.bounding and verdict.open_starts is not Bound.BOUNDED:
        lines.append("but no window outlasts its limit")
    elif verdict.open_starts is not Bound.BOUNDED and verdict.witness is not None:
        lines.append("as on this stream:")
        lines += witness_text(verdict.witness, plan.alphabet).splitlines()
    return lines
