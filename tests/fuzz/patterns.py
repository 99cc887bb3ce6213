"""The pattern language, and conjunctive queries."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from hypothesis import strategies as st

from skws_patterns.hcq import ConjunctiveQuery, parse_conjunctive_query, refuse_unless_hierarchical
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.pattern_parser import former_spellings, parse_pattern
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_schema.errors import PatternError
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import CountWindow
from tests.fuzz.fuzzing import ODD_TEXTS, Language, check_rejection, words_and_signs
from tests.oracles.run_trees import by_label
from tests.patterns import hierarchical_queries as hierarchical
from tests.patterns.pattern_matches import COLUMNS, contains, matches

SCHEMA: Final = Schema(
    "patterns",
    tuple(
        Relation(
            name,
            tuple(
                Attribute(c, AttributeType.TEXT if c == "memo" else AttributeType.INTEGER) for c in COLUMNS
            ),
            search=("memo",),
        )
        for name in "ABC"
    ),
    (),
)
_KEYWORDS: Final = ("red", "blue", "red blue")
_DURATIONS: Final = ("10 minutes", "1h 30m", "1000 tuples", "5 tuples")


class _Writer:
    """Writes the text of a pattern; ``variables`` are the variables so far."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.variables: list[str] = []

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def pattern(self) -> str:
        text = self._one_of("", "", "", "pattern: ") + self._expression(self._draw(st.integers(1, 4)))
        conditions = [self._condition() for _ in range(self._draw(st.integers(0, 2)))]
        if len(self.variables) > 1 and self._draw(st.booleans()):
            conditions.append(" = ".join(f"{v}.{self._one_of('x', 'x', 'y')}" for v in self.variables))
        text += f" {self._one_of('where', 'WHERE')} {' and '.join(conditions)}" if conditions else ""
        return text + self._one_of("", "", *(f" within {window}" for window in _DURATIONS))

    def _expression(self, atoms: int) -> str:
        if atoms == 1:
            text = self._atom()
        else:
            left_atoms = self._draw(st.integers(1, atoms - 1))
            operator = self._one_of(" ; ", " ; ", ";\n", " AND ", " and ", " OR ")
            text = f"({self._expression(left_atoms)}{operator}{self._expression(atoms - left_atoms)})"
        return f"{text}+" if self._draw(st.integers(0, 6)) == 0 else text

    def _atom(self) -> str:
        variable = "abcd"[len(self.variables)]
        self.variables.append(variable)
        if self._draw(st.integers(0, 9)) == 0:
            return f"{self._one_of('*', *(repr(word) for word in _KEYWORDS))} {variable}"
        return f"{self._one_of('A', 'B', 'C')} {variable}"

    def _condition(self) -> str:
        variable = self._one_of(*self.variables)
        operator = self._one_of("=", "=", "!=", "<", "<=", ">", ">=")
        word = self._one_of(*_KEYWORDS)
        return self._one_of(
            f"{variable}.x {operator} {self._one_of('0', '1')}",
            f"{self._one_of('0', '1')} {operator} {variable}.y",
            f"{variable}.memo {self._one_of('=', '!=')} '{word}'",
            f'{variable}:"{word}"',
            f"{variable}.memo:red",
            f"{variable} ~ '{word}'",
        )


@st.composite
def _patterns(draw: st.DrawFn) -> str:
    return _Writer(draw).pattern()


# Errors of the whole pattern, which have no position.
_PATTERN_ERRORS: Final = (
    "no automaton with equality predicates|more than 20,000|expected at most 64|nested too deeply|"
    "not full|not hierarchical"
)


def check_pattern(text: str, random: Random) -> bool:
    """Matches follow the definition; the notes name each deprecated spelling."""
    try:
        pattern = parse_pattern(text, SCHEMA)
        pcea = compile_pattern(pattern, SCHEMA, contains).pcea
    except PatternError as error:
        return check_rejection(str(error), rf"\n *\^+\Z|{_PATTERN_ERRORS}")
    assert len(former_spellings(text)) <= text.count("~")
    evaluator = TupleEvaluator(pcea, len(SCHEMA.relations), CountWindow(4))
    stream: list[tuple[int, Row]] = []
    for relation, row in _tuples(random, 5):
        stream.append((relation, row))
        found_matches = [
            frozenset((p, label) for p, labels in v for label in labels)
            for v in evaluator.feed(relation, row)
        ]
        assert len(set(found_matches)) == len(found_matches)
        assert set(found_matches) == matches(pattern, stream, len(stream) - 1 - 4), (text, stream)
    return True


def _tuples(random: Random, number: int) -> Iterator[tuple[int, Row]]:
    for _ in range(number):
        memo = random.choice(["red", "red blue", "", None])
        yield random.randrange(3), (random.choice([0, 0, 1, None]), random.choice([0, 1]), memo)


def query_text(query: ConjunctiveQuery) -> str:
    names = tuple(relation.name for relation in hierarchical.SCHEMA.relations)
    return f"Q({', '.join(query.head)}) <- {', '.join(atom.text(names) for atom in query.atoms)}"


def check_conjunctive_query(text: str, random: Random) -> bool:
    """Parsed queries print as written, and their results are the homomorphisms."""
    schema = hierarchical.SCHEMA
    names = tuple(relation.name for relation in schema.relations)
    try:
        query = parse_conjunctive_query(text, schema)
        refuse_unless_hierarchical(query, names)
    except PatternError as error:
        return check_rejection(str(error), rf"\n *\^+\Z|{_PATTERN_ERRORS}")
    assert parse_conjunctive_query(query_text(query), schema) == query
    if len(query.atoms) > 6:
        return True
    evaluator = TupleEvaluator(automaton_of(query), len(schema.relations), CountWindow(3))
    stream: list[tuple[int, Row]] = []
    for _ in range(4):
        row = tuple(random.choice([0, 1, 1, None]) for _ in range(hierarchical.ARITY))
        stream.append((random.randrange(3), row))
        matches_by_label = [by_label(valuation) for valuation in evaluator.feed(*stream[-1])]
        positions = sorted(
            tuple(min(match[str(i)]) for i in range(len(query.atoms))) for match in matches_by_label
        )
        assert positions == hierarchical.homomorphisms(query, stream, len(stream) - 1 - 3), (text, stream)
    return True


PATTERNS: Final = Language("patterns", _patterns(), check_pattern, words_and_signs, ODD_TEXTS)
CONJUNCTIVE: Final = Language(
    "conjunctive",
    hierarchical.hierarchical_queries().map(query_text),
    check_conjunctive_query,
    words_and_signs,
    ODD_TEXTS,
)
