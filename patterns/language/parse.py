"""From the text of a pattern to its expression and conditions.

(login l AND transfer t) ; refund r where l.user = t.user = r.user and t ~ "urgent" within 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from lark import Token, Tree

from patterns.grammar import parse, span, string_value
from patterns.language.conditions import read_condition, read_window
from patterns.language.expression import (
    Expression,
    Letter,
    Read,
    alternation,
    conjunction,
    letters,
    repeated,
    sequence,
    size,
)
from patterns.language.syntax import Agreement, Condition, Filter, Keyword, Pattern, Reference
from schema.errors import PatternError, nearest
from schema.model import Relation, Schema

# Nobody writes as many, and compiling takes time with the cube of them.
MOST_ATOMS: Final = 64
# A repetition doubles what is below it.
MOST_READ: Final = 512


def parse_pattern(text: str, schema: Schema) -> Pattern:
    """The pattern of a text. Raises PatternError with carets at the place."""
    tree, *rest = cast("list[Tree[Token]]", parse(text, "pattern").children)
    conditions = [read_condition(text, part) for part in rest if part.data != "window"]
    windows = [read_window(text, part) for part in rest if part.data == "window"]
    atoms = sum(1 for _ in tree.find_data("atom"))
    if atoms > MOST_ATOMS:
        raise PatternError(f"the pattern has {atoms} atoms; expected at most {MOST_ATOMS}")
    reader = _Reader(text, schema, conditions)
    try:
        expression = reader.expression(tree)
    except RecursionError:
        raise PatternError("the pattern is nested too deeply") from None
    _check_variables(text, expression, conditions)
    return Pattern(
        text, expression, (*conditions, *dict.fromkeys(reader.keywords)), windows[0] if windows else None
    )


class _Reader:
    """Reads expressions; ``keywords`` are the conditions that quoted atoms stand for."""

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
                return self._repeated(tree, parts[0])
            case _:
                return sequence(*parts)

    def _repeated(self, tree: Tree[Token], body: Expression) -> Expression:
        expression = repeated(body)
        if size(expression) > MOST_READ:
            raise PatternError.at(
                self._text,
                *span(tree),
                "repetitions of repetitions are nested too deeply: each makes the automaton twice as large",
            )
        return expression

    def _atom(self, tree: Tree[Token]) -> Expression:
        name, *rest = cast("list[Token]", tree.children)
        variable = str(rest[0]) if rest else str(name)
        if name.type == "STRING":
            keyword = Keyword(
                str(rest[0]) if rest else string_value(name), None, string_value(name), span(name)
            )
            self.keywords.append(keyword)
            return self._any(name, keyword.variable, searched=True)
        if name.type == "STAR":
            if not rest:
                raise self._fault(name, "a tuple of any relation needs a variable, as in '* t'")
            return self._any(name, variable)
        relation = self._schema.index.get(name)
        if relation is None:
            raise self._fault(name, f"there is no relation {str(name)!r}{nearest(name, self._schema.index)}")
        if self._schema.relations[relation].table:
            raise self._fault(name, f"{name} is a static table: a pattern is over streams")
        return Read(Letter(relation, variable))

    def _any(self, token: Token, variable: str, *, searched: bool = False) -> Expression:
        """A tuple of any stream that has what the conditions ask of it."""
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
            asked = ", ".join(dict.fromkeys(r.attribute for r in references)) or "searched attributes"
            raise self._fault(token, f"no stream has what {variable} needs: {asked}")
        return alternation(*(Read(Letter(i, variable)) for i in streams))

    def _fault(self, token: Token, message: str) -> PatternError:
        return PatternError.at(self._text, *span(token), message)


def _references(condition: Condition) -> Iterator[Reference]:
    """The attributes that a condition speaks of."""
    match condition:
        case Agreement(references):
            yield from references
        case Filter(reference):
            yield reference
        case Keyword(variable, str(attribute), _, place):
            yield Reference(variable, attribute, place)


def _check_variables(text: str, expression: Expression, conditions: list[Condition]) -> None:
    """Raises PatternError for a variable that the pattern does not have."""
    variables = {letter.variable for letter in letters(expression)}
    for condition in conditions:
        used = [(r.variable, r.span) for r in _references(condition)]
        if isinstance(condition, Filter | Keyword):
            variable = condition.variable if isinstance(condition, Keyword) else condition.reference.variable
            used = [(variable, condition.span)]
        for variable, place in used:
            if variable not in variables:
                raise PatternError.at(
                    text, *place, f"the pattern has no variable {variable!r}{nearest(variable, variables)}"
                )
