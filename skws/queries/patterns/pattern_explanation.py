"""Explains a pattern: its window, the q-tree of a conjunctive query, and its automaton."""

from __future__ import annotations

from skws.queries.patterns.pattern_text import read_query
from skws_patterns.hcq import ConjunctiveQuery, compact, drawing, qtree
from skws_patterns.pcea import (
    PCEA,
    ComparedColumns,
    ConstantTest,
    Equality,
    RunSource,
    State,
    Test,
    TextTest,
    Transition,
)
from skws_schema.drawing import DotEdge, DotNode, to_dot
from skws_schema.model import Relation, Schema
from skws_windows.window import Window, parse_window, window_text


class AutomatonDrawing:
    """Draws one automaton. States without a short name are numbered in order of appearance."""

    def __init__(self, pcea: PCEA, schema: Schema) -> None:
        self._pcea = pcea
        self._schema = schema
        self._names: dict[State, str] = {}
        for transition in pcea.transitions:
            for state in (*(source.state for source in transition.sources), transition.target):
                self._names.setdefault(state, self._name(state))

    def text(self) -> str:
        """One line for each transition: sources and comparisons, the tuple read and its labels, the target.

        A bar separates the comparisons of different relations.
        """
        final = ", ".join(sorted(self._names[state] for state in self._pcea.final))
        lines = [f"{len(self._names)} states, {len(self._pcea.transitions)} transitions, final: {final}"]
        for transition in self._pcea.transitions:
            sources = " + ".join(self._source(source, transition) for source in transition.sources)
            lines.append(
                f"  {f'{sources} ' if sources else ''}--{self._read(transition)}--> "
                f"{self._names[transition.target]}"
            )
        return "\n".join(lines)

    def dot(self) -> str:
        """A digraph; a point for each transition joins the states that it gathers."""
        members: list[DotNode | DotEdge] = []
        numbers = {state: number for number, state in enumerate(self._names)}
        for state, name in self._names.items():
            shape = "doublecircle" if state in self._pcea.final else "circle"
            members.append(DotNode(f"s{numbers[state]}", name, f"shape={shape}"))
        for number, transition in enumerate(self._pcea.transitions):
            members.append(DotNode(f"t{number}", style="shape=point"))
            for source in transition.sources:
                label = self._equality(source.equality, transition)
                members.append(DotEdge(f"s{numbers[source.state]}", f"t{number}", label, "arrowhead=none"))
            members.append(DotEdge(f"t{number}", f"s{numbers[transition.target]}", self._read(transition)))
        return to_dot("automaton", members)

    def _name(self, state: State) -> str:
        text = str(state)
        return text if text.isprintable() and len(text) <= 20 else f"q{len(self._names)}"

    def _source(self, source: RunSource, transition: Transition) -> str:
        equality = self._equality(source.equality, transition)
        return f"{self._names[source.state]}{f' [{equality}]' if equality else ''}"

    def _equality(self, equality: Equality, transition: Transition) -> str:
        relation_read = self._relation(transition)
        sides = []
        for relation, columns in equality.left:
            relation_before = self._schema.relations[relation]
            comparisons = [
                f"{_attribute(relation_before, left)} = {_attribute(relation_read, right)}"
                for left, right in zip(columns, equality.right, strict=True)
            ]
            sides.append(", ".join(comparisons))
        return " | ".join(side for side in sides if side)

    def _read(self, transition: Transition) -> str:
        relation = self._relation(transition)
        tests = "".join(f" {_test(test, relation)}" for test in transition.unary.tests)
        return f"{relation.name}{tests} / {', '.join(sorted(transition.labels))}"

    def _relation(self, transition: Transition) -> Relation:
        return self._schema.relations[transition.unary.relation]


def _attribute(relation: Relation, column: int) -> str:
    return f"{relation.name}.{relation.attributes[column].name}"


def _test(test: Test, relation: Relation) -> str:
    if isinstance(test, ConstantTest):
        return f"[{relation.attributes[test.column].name} {test.operator} {test.value!r}]"
    if isinstance(test, ComparedColumns):
        left, right = (relation.attributes[column].name for column in (test.column, test.other))
        return f"[{left} {test.operator} {right}]"
    if isinstance(test, TextTest):
        return f"[:{test.text!r}]"
    names = " = ".join(relation.attributes[column].name for column in test.columns)
    return f"[{names}]" if len(test.columns) > 1 else f"[{names} not NULL]"


def pattern_text(text: str, schema: Schema, window: Window | None, default: Window | None = None) -> str:
    """The explanation as text. ``window``: if None, the window of the pattern, or else ``default``.

    ``default``: if None, the schema's window. Raises PatternError, QueryError.
    """
    query = read_query(text, schema)
    used_window = window or query.window or default or parse_window(schema.window)
    parts = [f"pattern: {text}", f"window: {window_text(used_window)}"]
    if isinstance(query.source, ConjunctiveQuery):
        names = tuple(relation.name for relation in schema.relations)
        tree = drawing(query.source, compact(qtree(query.source)), names)
        parts.append("compact q-tree:\n" + "\n".join(f"  {line}" for line in tree.splitlines()))
    division = f"the value of {query.root.name}" if query.root else "time: not all tuples share a value"
    parts.append(f"divided by {division}")
    parts.append(f"automaton: {AutomatonDrawing(query.pcea, schema).text()}")
    return "\n".join(parts) + "\n"


def pattern_dot(text: str, schema: Schema) -> str:
    """The automaton in the DOT language. Raises PatternError, QueryError."""
    return AutomatonDrawing(read_query(text, schema).pcea, schema).dot()
