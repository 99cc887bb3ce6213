"""Conjunctive queries over streams: a parser, and the test for hierarchical ones (PCEA paper, Section 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final, TypeAlias, cast

from lark import Token, Tree

from skws_patterns.pattern_grammar import constant_value, parse, span
from skws_patterns.pcea import RootKey, coerce, root_key
from skws_schema.errors import PatternError, nearest
from skws_schema.model import Attribute, Relation, Schema, Value


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, which has the same value wherever it occurs."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ConstantTerm:
    """A constant that the tuple must have."""

    value: Value

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else str(self.value)


# None for an attribute written ``_``: a variable that occurs nowhere else.
Term: TypeAlias = Variable | ConstantTerm | None


@dataclass(frozen=True)
class RelationAtom:
    """R(terms): a tuple of a relation (its position in the schema), one term for each attribute."""

    relation: int
    terms: tuple[Term, ...]

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(term.name for term in self.terms if isinstance(term, Variable))

    def column(self, variable: str) -> int:
        """The first column in which a variable occurs."""
        return self.terms.index(Variable(variable))

    def text(self, relation_names: tuple[str, ...]) -> str:
        terms = ", ".join("_" if term is None else str(term) for term in self.terms)
        return f"{relation_names[self.relation]}({terms})"


@dataclass(frozen=True)
class ConjunctiveQuery:
    """Q(head) <- atoms: a bag of atoms, identified by their position (the identifiers I(Q) of the paper).

    Its results are t-homomorphisms: they map each atom to a position of the stream, possibly two atoms to the
    same one.
    """

    head: tuple[str, ...]
    atoms: tuple[RelationAtom, ...]

    def __post_init__(self) -> None:
        if not self.atoms:
            raise ValueError("a query has at least one atom")
        unknown = set(self.head) - set(self.variables)
        if unknown:
            raise ValueError(f"the head's {min(unknown)} is in no atom")

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables, in order of their first occurrence."""
        names = [t.name for atom in self.atoms for t in atom.terms if isinstance(t, Variable)]
        return tuple(dict.fromkeys(names))

    def atoms_of(self, variable: str) -> frozenset[int]:
        """The atoms that a variable occurs in: atoms(x) of the paper."""
        return self._atoms_of.get(variable, frozenset())

    @cached_property
    def _atoms_of(self) -> dict[str, frozenset[int]]:
        atoms_by_variable: defaultdict[str, list[int]] = defaultdict(list)
        for i, atom in enumerate(self.atoms):
            for variable in atom.variables:
                atoms_by_variable[variable].append(i)
        return {variable: frozenset(atoms) for variable, atoms in atoms_by_variable.items()}


def breaking_pair(query: ConjunctiveQuery) -> tuple[str, str] | None:
    """Two variables whose sets of atoms overlap, neither containing the other; None if there are none."""
    for first, second in combinations(query.variables, 2):
        a, b = query.atoms_of(first), query.atoms_of(second)
        if a & b and not (a <= b or b <= a):
            return first, second
    return None


def refuse_unless_hierarchical(query: ConjunctiveQuery, relation_names: tuple[str, ...]) -> None:
    """Raises a PatternError that names the variables at fault and the alternative."""
    missing = [v for v in query.variables if v not in query.head]
    if missing:
        raise PatternError(
            f"the query is not full: {', '.join(missing)} must be in the head "
            "(or be written _ where it occurs only once)"
        )
    pair = breaking_pair(query)
    if pair is None:
        return
    atom_texts = [_atoms_text(query, variable, relation_names) for variable in pair]
    raise PatternError(
        f"the query is not hierarchical because of {pair[0]} and {pair[1]}: {pair[0]} is in {atom_texts[0]}; "
        f"{pair[1]} is in {atom_texts[1]}; these overlap and neither contains the other. No automaton with "
        "equality predicates can evaluate it; a keyword search over the same joins can"
    )


def _atoms_text(query: ConjunctiveQuery, variable: str, relation_names: tuple[str, ...]) -> str:
    return ", ".join(query.atoms[i].text(relation_names) for i in sorted(query.atoms_of(variable)))


def root_of_query(query: ConjunctiveQuery) -> RootKey | None:
    """The root of a query: its variables that occur in every atom; None if there is none."""
    shared_variables = [v for v in query.variables if len(query.atoms_of(v)) == len(query.atoms)]
    candidates = [{(a.relation, a.column(v)) for a in query.atoms} for v in shared_variables]
    return root_key(list(zip(shared_variables, candidates, strict=True)))


def parse_conjunctive_query(text: str, schema: Schema) -> ConjunctiveQuery:
    """The conjunctive query of a text; ``_`` stands for any value.

    Raises PatternError with carets below the fault.
    """
    _, *parts = parse(text, "rule").children
    head = [part for part in parts if isinstance(part, Token)]
    body = [part for part in parts if isinstance(part, Tree)]
    atoms = tuple(_atom(text, tree, schema) for tree in body)
    _check_types(text, body, atoms, schema)
    body_variables = {name for atom in atoms for name in atom.variables}
    for token in head:
        if token not in body_variables:
            raise PatternError.at(
                text, *span(token), f"{token} is in the head, but in no atom{nearest(token, body_variables)}"
            )
    return ConjunctiveQuery(tuple(map(str, head)), atoms)


def _atom(text: str, tree: Tree[Token], schema: Schema) -> RelationAtom:
    name, *terms = cast("list[Token]", tree.children)
    relation = schema.index.get(name)
    if relation is None:
        raise PatternError.at(
            text, *span(name), f"there is no relation {str(name)!r}{nearest(name, schema.index)}"
        )
    schema_relation = schema.relations[relation]
    if len(terms) != len(schema_relation.attributes):
        names = ", ".join(a.name for a in schema_relation.attributes)
        raise PatternError.at(
            text,
            *span(tree),
            f"{name} has {len(schema_relation.attributes)} attributes ({names}), not {len(terms)}",
        )
    return RelationAtom(relation, tuple(_term(text, t, schema_relation, i) for i, t in enumerate(terms)))


def _check_types(text: str, body: list[Tree[Token]], atoms: tuple[RelationAtom, ...], schema: Schema) -> None:
    """Raises PatternError for a variable in attributes that are never equal."""
    first: dict[str, tuple[str, Attribute]] = {}
    for tree, atom in zip(body, atoms, strict=True):
        relation = schema.relations[atom.relation]
        for token, attribute in zip(tree.children[1:], relation.attributes, strict=True):
            if not isinstance(token, Token) or token.type != "NAME" or str(token) == "_":
                continue
            first_name, earlier = first.setdefault(str(token), (relation.name, attribute))
            if earlier.type.family is not attribute.type.family:
                raise PatternError.at(
                    text,
                    *span(token),
                    f"{token} is {first_name}.{earlier.name} of type {earlier.type}, and here "
                    f"{relation.name}.{attribute.name} of type {attribute.type}: they are never equal",
                )


def _term(text: str, token: Token, relation: Relation, column: int) -> Term:
    if token.type == "NAME":
        return None if str(token) == "_" else Variable(str(token))
    try:
        return ConstantTerm(coerce(constant_value(token), relation.attributes[column]))
    except ValueError as error:
        raise PatternError.at(text, *span(token), str(error)) from None


# The variable that connects a disconnected query; it is in no attribute.
FRESH: Final = "*"

Node: TypeAlias = "Inner | int"


@dataclass(frozen=True, slots=True)
class Inner:
    """A variable and its subtrees; atoms are given by their position in the query."""

    variable: str
    children: tuple[Node, ...]

    def atoms(self) -> frozenset[int]:
        atom_sets = [frozenset({c}) if isinstance(c, int) else c.atoms() for c in self.children]
        return frozenset().union(*atom_sets)

    def inner_nodes(self) -> Iterator[Inner]:
        """The node itself and the variables below it, in preorder."""
        yield self
        for child in self.children:
            if isinstance(child, Inner):
                yield from child.inner_nodes()


def qtree(query: ConjunctiveQuery) -> Inner:
    """The q-tree of a hierarchical query, with variables of equal atoms in order of their first occurrence.

    A disconnected query gets FRESH as its root. Raises ValueError if the
    query is not hierarchical.
    """
    all_atoms = frozenset(range(len(query.atoms)))
    trees = _trees(query, all_atoms, frozenset())
    if len(trees) == 1 and isinstance(trees[0], Inner):
        return trees[0]
    return Inner(FRESH, trees)


def _trees(query: ConjunctiveQuery, atoms: frozenset[int], ancestors: frozenset[str]) -> tuple[Node, ...]:
    """The trees over some atoms below the variables ``ancestors``, one for each connected part."""
    trees: list[Node] = []
    remaining = sorted(atoms)
    while remaining:
        component = _connected(query, remaining[0], atoms, ancestors)
        remaining = [atom for atom in remaining if atom not in component]
        trees.append(_tree(query, component, ancestors))
    return tuple(trees)


def _connected(
    query: ConjunctiveQuery, start: int, atoms: frozenset[int], ancestors: frozenset[str]
) -> frozenset[int]:
    component, is_growing = frozenset({start}), True
    while is_growing:
        variables = frozenset().union(*(query.atoms[i].variables for i in component)) - ancestors
        larger = component | {i for i in atoms if query.atoms[i].variables & variables}
        component, is_growing = larger, larger != component
    return component


def _tree(query: ConjunctiveQuery, component: frozenset[int], ancestors: frozenset[str]) -> Node:
    variables = [v for v in query.variables if v not in ancestors and query.atoms_of(v) & component]
    if not variables:
        (atom,) = component
        return atom
    root = next((v for v in variables if query.atoms_of(v) >= component), None)
    if root is None:
        raise ValueError(f"the query is not hierarchical: no variable is in all of atoms {sorted(component)}")
    return Inner(root, _trees(query, component, ancestors | {root}))


def compact(tree: Inner) -> Inner:
    """The tree without inner nodes that have one child; a tree of one atom keeps its lowest variable."""
    children = tuple(_compact(child) for child in tree.children)
    if len(children) == 1 and isinstance(children[0], Inner):
        return children[0]
    return Inner(tree.variable, children)


def _compact(node: Node) -> Node:
    if isinstance(node, int):
        return node
    inner = compact(node)
    return inner.children[0] if len(inner.children) == 1 else inner


def drawing(query: ConjunctiveQuery, tree: Inner, relation_names: tuple[str, ...]) -> str:
    """The tree as indented lines: variables, and atoms with their positions."""
    lines: list[str] = []

    def draw(node: Node, depth: int) -> None:
        if isinstance(node, int):
            lines.append(f"{'  ' * depth}{node}: {query.atoms[node].text(relation_names)}")
            return
        lines.append(f"{'  ' * depth}{node.variable}")
        for child in node.children:
            draw(child, depth + 1)

    draw(tree, 0)
    return "\n".join(lines)
