"""Analyses queries over a schema: plans, keywords in values, matches.

Also checks a schema as it is edited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from rich.cells import cell_len

from skws.extras import installed
from skws.keywords.match import EXCLUDED, Matcher, Span, highlight
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.keywords.scope import completable
from skws.keywords.suggest import completions, similar
from skws.queries.kinds import plan_of
from skws.queries.operator import QueryPlan
from skws.queries.windowed.window_checks import expression_fault
from skws.sources import inferred_schemas as drafts
from skws.spec.job import Job
from skws_schema.budgets import TimeLimitError
from skws_schema.errors import Problem, SchemaError, SkwsError, UsageError
from skws_schema.evolution import SchemaChange
from skws_schema.model import Schema
from skws_schema.show import draw
from skws_schema.yaml.load import parse_schema, warnings
from skws_tui.services.cells import wrap_cells
from skws_tui.services.live_rows import LiveRows
from skws_tui.services.typed import Analysis, SlotAnalysis, as_query, parse_typed
from skws_windows.window import window_fault

_PLANS_KEPT: Final = 256
"""Texts without a fault: a query has usually been checked while it was typed, before Enter."""
_SPANS_KEPT: Final = 512
"""Values with their spans: each key draws the selected result again."""
_LONG: Final = 2_000  # characters of a value whose spans take a while to find


def plan_of_typed(job: Job, name: str, schema: Schema) -> QueryPlan:
    """The plan of a query, by its name, over ``schema``, the current one.

    Raises QueryError, PatternError, SchemaError, UsageError if the query cannot be added.
    """
    query = as_query(parse_typed(name), allow_unbounded_windows=job.allow_unbounded_windows)
    return plan_of(job.with_defaults(name, query), replace(job.stream, schema=schema))


class QueryAnalyzer:
    """Caches plans over one ``schema``. Any thread may call it."""

    def __init__(self, job: Job, schema: Schema) -> None:
        self._job = job
        self.schema = schema
        self._names = completable(schema)
        self._cached_plan = lru_cache(_PLANS_KEPT)(partial(plan_of_typed, job, schema=schema))
        self._cached_spans = lru_cache(_SPANS_KEPT)(self._spans)

    def plan(self, name: str) -> Plan:
        """The plan of a keyword query, by its name. Raises like ``plan_of_typed``."""
        plan = self._cached_plan(name).search
        if plan is None:
            raise UsageError(f"{name}: expected keywords")
        return plan

    def check(self, name: str) -> None:
        """Raises like ``plan_of_typed``."""
        self._cached_plan(name)

    def spans(self, name: str, relation: str, attribute: str, value: str) -> list[Span]:
        """The spans of a query's keywords in a value; those of the latest long values are remembered."""
        find = self._cached_spans if len(value) > _LONG else self._spans
        return find(name, relation, attribute, value)

    def _spans(self, name: str, relation: str, attribute: str, value: str) -> list[Span]:
        return highlight(self.plan(name).query, self.schema, relation, attribute, value)

    def analyse(self, name: str, rows: LiveRows | None) -> Analysis:
        """The analysis of a half-typed text.

        No tuples are counted if ``rows`` is None, or if the job is busy.
        """
        try:
            return self._analyse_text(name, rows)
        except TimeLimitError:
            return self._analyse_text(name, None)

    def _analyse_text(self, name: str, rows: LiveRows | None) -> Analysis:
        offers = () if rows is None else tuple(completions(name, rows.completions, self._names))
        typed_text = parse_typed(name)
        if not typed_text.text:
            return Analysis(name, completions=offers)
        try:
            if typed_text.prefix:
                self.check(name)
            if typed_text.pattern:
                return Analysis(name)
            as_query(typed_text)
            query = parse_query(typed_text.text, self.schema, match_names=self._job.match_names)
        except SkwsError as error:
            return Analysis(name, fault=str(error).splitlines()[0], completions=offers)
        counts = {} if rows is None else rows.node_counts(Matcher(query, self.schema))
        slot_counts = [
            sum(count for (_, bitmap), count in counts.items() if bitmap != EXCLUDED and bitmap >> slot & 1)
            for slot in range(len(query.slots))
        ]
        words = rows.words() if rows is not None and counts and not all(slot_counts) else {}
        return Analysis(
            name,
            tuple(
                SlotAnalysis(
                    slot.text, count, "" if count or not words else next(iter(similar(slot, words)), "")
                )
                for slot, count in zip(query.slots, slot_counts, strict=True)
            ),
            dropped=query.dropped,
            ignored=query.ignored,
            start=len(typed_text.prefix),
            tuples=sum(counts.values()),
            complete=rows is None or not rows.cut,
            completions=offers,
            restricting=query.restrictions,
        )

    def why_nothing(self, name: str, rows: LiveRows) -> list[str]:
        """Why the live tuples give a keyword query no results; empty for other queries.

        Raises QueryError, UsageError.
        """
        if parse_typed(name).pattern:
            return []
        return rows.why_nothing(self._cached_plan(name))


_CONTINUED: Final = {"├": "│", "│": "│"}
"""Lines of a tree that continue in the line below."""
_LEAST: Final = 12
"""The minimum width for the joins of a folded line, in cells."""


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A checked text; ``schema`` is None while it has errors."""

    text: str
    schema: Schema | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    graph: tuple[str, ...] = ()


def read_draft(text: str, path: Path) -> CheckedText:
    """Check a text as if it were the file at ``path``.

    Raises SourceError if a package is missing that checks window expressions.
    """
    try:
        with installed():
            schema = parse_schema(
                text,
                str(path),
                check_window=window_fault,
                check_expression=expression_fault,
                default_name=path.stem,
                folder=path.parent,
            )
    except SchemaError as error:
        problems = error.problems or (Problem(str(path), 1, 1, str(error)),)
        return CheckedText(text, None, problems)
    return CheckedText(text, schema, (), tuple(warnings(schema)), tuple(draw(schema)))


def change_text(before: Schema, after: Schema) -> str:
    """The effect of applying a schema to the running job, in one line."""
    change = SchemaChange.between(before, after)
    effects = []
    for word, (relations, joins), schema in (
        ("adds", change.added, change.after),
        ("removes", change.removed, before),
    ):
        names = [schema.relations[r].name for r in sorted(relations)]
        names += [schema.joins[j].name for j in sorted(joins)]
        if names:
            effects.append(f"{word} {', '.join(names)}")
    return "; ".join(effects) or "changes nothing that is running"


def infer_yaml(source: str, name: str, window: str) -> str:
    """The YAML of a schema inferred from a source. Raises UsageError, SourceError."""
    if not source:
        raise UsageError("nothing to infer from: the UI was opened without a source")
    return drafts.inferred([source], name, window).to_yaml()


def fold_line(line: str, width: int) -> str:
    """A line of a graph, folded to ``width`` cells: its joins, in brackets, continue below one another.

    They begin below the relation's name if there is no room beside it.
    """
    bracket = line.find("(") + 1
    if not bracket or cell_len(line) <= width:
        return line
    if width - cell_len(line[:bracket]) < _LEAST:
        return _below_the_name(line[: bracket - 1].rstrip(), line[bracket - 1 :], width)
    below = _lines_below(line[:bracket])
    return line[:bracket] + f"\n{below}".join(wrap_cells(line[bracket:], width - len(below)))


def _below_the_name(line: str, joins: str, width: int) -> str:
    tree = len(line) - len(line.lstrip("│├└─ "))
    below = _lines_below(line[:tree])
    room = width - len(below)
    return f"\n{below}".join([line, *wrap_cells(joins, room)]) if room >= _LEAST else f"{line}  {joins}"


def _lines_below(start: str) -> str:
    """The lines of a tree that continue below the start of a line, as wide as it."""
    return "".join(_CONTINUED.get(sign, " " * cell_len(sign)) for sign in start)
