"""The running example of the PCEA paper: its schema, its stream S_0, its queries and automata."""

from __future__ import annotations

from typing import Final

from skws_patterns.pcea import PCEA, Equality, RunSource, Transition, Unary
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema

R, S, T = 0, 1, 2


def _relation(name: str, *attributes: str) -> Relation:
    return Relation(name, tuple(Attribute(a, AttributeType.INTEGER) for a in attributes))


SCHEMA: Final = Schema(
    "sigma0", (_relation("R", "a", "b"), _relation("S", "a", "b"), _relation("T", "a")), ()
)
STREAM: Final[list[tuple[int, Row]]] = [
    (S, (2, 11)),
    (T, (2,)),
    (R, (1, 10)),
    (S, (2, 11)),
    (T, (1,)),
    (R, (2, 11)),
    (S, (4, 13)),
    (T, (1,)),
]
Q0: Final = "Q(x, y) <- T(x), S(x, y), R(x, y)"
Q1: Final = "Q(x, y) <- T(x), R(x, y), S(2, y), T(x)"

DOT: Final = frozenset({"•"})
T_BEFORE_S: Final = Equality(((T, (0,)),), (0,))
S_BEFORE_R: Final = Equality(((S, (0, 1)),), (0, 1))
T_BEFORE_R: Final = Equality(((T, (0,)),), (0,))

# A chain complex event automaton: every transition has at most one source.
C0: Final = PCEA(
    (
        Transition((), Unary(T), DOT, "q0"),
        Transition((RunSource("q0", T_BEFORE_S),), Unary(S), DOT, "q1"),
        Transition((RunSource("q1", S_BEFORE_R),), Unary(R), DOT, "q2"),
    ),
    frozenset({"q2"}),
)
P0: Final = PCEA(
    (
        Transition((), Unary(T), DOT, "q0"),
        Transition((), Unary(S), DOT, "q1"),
        Transition((RunSource("q0", T_BEFORE_R), RunSource("q1", S_BEFORE_R)), Unary(R), DOT, "q2"),
    ),
    frozenset({"q2"}),
)
