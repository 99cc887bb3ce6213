"""Parses a pattern into its expression, conditions and window, with positions for error messages.

(login l AND transfer t) ; refund r where l.user = t.user = r.user and t:urgent within 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from lark import Token, Tree

from skws_patterns.language.expression import (
    Expression,
    OneTuple,
    TupleLetter,
    alternation,
    conjunction,
    letters,
    repetition,
    sequence,
    size,
)
from skws_patterns.pattern_grammar import constant_value, parse, span
from skws_schema.errors import PatternError, UsageError, nearest
from skws_schema.model import Op, Relation, Schema, Value
from skws_windows.language.window_grammar import unquote
from skws_windows.window import Window, parse_window

Span: TypeAlias = tuple[int, int]
_CONTAINS: Final = ("contains", "formerly_contains")


@dataclass(frozen=True, slots=True)
class Reference:
    """``variable.attribute``."""

    variable: str
    attribute: str
    span: Span

    def __str__(self) -> str:
        return f"{self.variable}.{self.attribute}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """All referenced attributes have the same value."""

    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """An attribute compared with a constant."""

    reference: Reference
    operator: Op
    value: Value
    span: Span


@dataclass(frozen=True, slots=True)
class ComparisonChain:
    """Attributes of one tuple, each compared with the next one."""

    references: tuple[Reference, ...]
    operators: tuple[Op, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Keyword:
    """A tuple contains a text, in any searched attribute or in a given one."""

    variable: str
    attribute: str | None
    text: str
    span: Span


Condition: TypeAlias = Agreement | Filter | ComparisonChain | Keyword


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern over a schema. ``window``: None if the pattern gives none."""

    text: str
    expression: Expression
    conditions: tuple[Condition, ...] = ()
    window: Window | None = None


def read_condition(text: str, tree: Tree[Token]) -> Condition:
    """One condition. Raises PatternError with carets below the fault."""
    return _contains(tree) if tree.data in _CONTAINS else _comparison(text, tree)


def former_spellings(text: str) -> tuple[str, ...]:
    """A note for each part of a pattern in an old spelling that is still accepted."""
    notes = []
    for tree in parse(text, "pattern").find_data(_CONTAINS[1]):
        start, end = span(tree)
        subject, keyword = (text[slice(*span(part))] for part in tree.children)
        notes.append(f"{text[start:end]} is now written {subject}:{keyword}; later versions accept only that")
    return tuple(dict.fromkeys(notes))


def read_window(text: str, tree: Tree[Token]) -> Window:
    """The window. Raises PatternError with carets below the fault."""
    start, end = span(tree)
    try:
        return parse_window(text[start:end])
    except UsageError as error:
        raise PatternError.at(text, start, end, str(error)) from None


def _contains(tree: Tree[Token]) -> Keyword:
    subject, keyword = tree.children
    text = unquote(str(keyword)) if cast("Token", keyword).type == "STRING" else str(keyword)
    if isinstance(subject, Token):
        return Keyword(str(subject), None, text, span(tree))
    reference = _reference(subject)
    return Keyword(reference.variable, reference.attribute, text, span(tree))


def _comparison(text: str, tree: Tree[Token]) -> Agreement | Filter | ComparisonChain:
    operators = [Op(str(child)) for child in tree.children[1::2]]
    operands = tree.children[::2]
    references = [_reference(o) for o in operands if isinstance(o, Tree)]
    if len(references) == len(operands):
        if all(operator is Op.EQUAL for operator in operators):
            return Agreement(tuple(references))
        if len({reference.variable for reference in references}) > 1:
            raise PatternError.at(
                text,
                *span(tree),
                "attributes of two tuples can only be equal: an automaton makes no other comparison",
            )
        return ComparisonChain(tuple(references), tuple(operators), span(tree))
    if len(operands) > 2 or not references:
        message = "a constant is compared with one attribute, as in t.amount > 5"
        raise PatternError.at(text, *span(tree), message)
    constant = next(o for o in operands if isinstance(o, Token))
    comparison = operators[0]
    if isinstance(operands[0], Token):
        comparison = comparison.converse
    return Filter(references[0], comparison, constant_value(constant), span(tree))


def _reference(tree: Tree[Token]) -> Reference:
    variable, attribute = tree.children
    return Reference(str(variable), str(attribute), span(tree))


# More than anyone writes; compiling takes time cubic in their number.
MOST_ATOMS: Final = 64
# A repetition doubles the expression below it.
MOST_READ: Final = 512


def parse_pattern(text: str, schema: Schema) -> Pattern:
    """The pattern of a text. Raises PatternError with carets below the fault."""
    tree, *clauses = cast("list[Tree[Token]]", parse(text, "pattern").children)
    conditions = [read_condition(text, part) for part in clauses if part.data != "window"]
    windows = [read_window(text, part) for part in clauses if part.data == "window"]
    atoms = sum(1 for _ in tree.find_data("atom"))
    if atoms > MOST_ATOMS:
        raise PatternError(f"the pattern has {atoms} atoms; expected at most {MOST_ATOMS}")
    reader = _PatternReader(text, schema, conditions)
    try:
        expression = reader.expression(tree)
    except RecursionError:
        raise PatternError("the pattern is nested too deeply") from None
    _check_variables(text, expression, conditions)
    return Pattern(
        text, expression, (*conditions, *dict.fromkeys(reader.keywords)), windows[0] if windows else None
    )


class _PatternReader:
    """Reads expressions. ``keywords``: the conditions that quoted atoms abbreviate."""

    def __init__(self, text: str, schema: Schema, conditions: list[Condition]) -> None:
        self.keywords: list[Keyword] = []
        self._text = text
        self._schema = schema
        self._conditions = conditions

    def expression(self, tree: Tree[Token]) -> Expression:
        if tree.data == "atom":
            return self._atom(tree)
        parts = [self.expression(cast("Tree[Token]", child)) for child in tree.children]
        match tree.data:
            case "alternation":
                return alternation(*parts)
            case "conjunction":
                return conjunction(*parts)
            case "repetition":
                return self._repetition(tree, parts[0])
            case _:
                return sequence(*parts)

    def _repetition(self, tree: Tree[Token], body: Expression) -> Expression:
        expression = repetition(body)
        if size(expression) > MOST_READ:
            raise PatternError.at(
                self._text,
                *span(tree),
                "repetitions of repetitions are nested too deeply: each makes the automaton twice as large",
            )
        return expression

    def _atom(self, tree: Tree[Token]) -> Expression:
        name, *variables = cast("list[Token]", tree.children)
        variable = str(variables[0]) if variables else str(name)
        if name.type == "STRING":
            keyword = Keyword(
                str(variables[0]) if variables else unquote(name), None, unquote(name), span(name)
            )
            self.keywords.append(keyword)
            return self._any_stream(name, keyword.variable, searched=True)
        if name.type == "STAR":
            if not variables:
                raise self._fault(name, "a tuple of any relation needs a variable, as in '* t'")
            return self._any_stream(name, variable)
        relation = self._schema.index.get(name)
        if relation is None:
            raise self._fault(name, f"there is no relation {str(name)!r}{nearest(name, self._schema.index)}")
        if self._schema.relations[relation].table:
            raise self._fault(name, f"{name} is a static table: a pattern matches tuples of streams")
        return OneTuple(TupleLetter(relation, variable))

    def _any_stream(self, token: Token, variable: str, *, searched: bool = False) -> Expression:
        """A tuple of any stream that has the attributes in the conditions."""
        references = [r for c in self._conditions for r in _references(c) if r.variable == variable]
        searched |= any(
            isinstance(c, Keyword) and c.variable == variable and c.attribute is None
            for c in self._conditions
        )

        def fits(relation: Relation) -> bool:
            has_all = all(reference.attribute in relation.columns for reference in references)
            return not relation.table and has_all and (bool(relation.search) or not searched)

        streams = [i for i, relation in enumerate(self._schema.relations) if fits(relation)]
        if not streams:
            attributes = ", ".join(dict.fromkeys(r.attribute for r in references)) or "searched attributes"
            raise self._fault(token, f"no stream has what {variable} needs: {attributes}")
        return alternation(*(OneTuple(TupleLetter(i, variable)) for i in streams))

    def _fault(self, token: Token, message: str) -> PatternError:
        return PatternError.at(self._text, *span(token), message)


def _references(condition: Condition) -> Iterator[Reference]:
    """The attributes in a condition."""
    match condition:
        case Agreement(references) | ComparisonChain(references):
            yield from references
        case Filter(reference):
            yield reference
        case Keyword(variable, str(attribute), _, place):
            yield Reference(variable, attribute, place)


def _check_variables(text: str, expression: Expression, conditions: list[Condition]) -> None:
    """Raises PatternError for a variable that the pattern does not have."""
    variables = {letter.variable for letter in letters(expression)}
    for condition in conditions:
        uses = [(r.variable, r.span) for r in _references(condition)]
        if isinstance(condition, Filter | Keyword):
            variable = condition.variable if isinstance(condition, Keyword) else condition.reference.variable
            uses = [(variable, condition.span)]
        for variable, position in uses:
            if variable not in variables:
                raise PatternError.at(
                    text, *position, f"the pattern has no variable {variable!r}{nearest(variable, variables)}"
                )
