"""TreeGen: the tree of an operator, reconstructed from the operators below it (S-KWS paper, Figure 4.3)."""

from __future__ import annotations

from mesh.generate import CNGen
from mesh.paper.operator import JoinOperator, Producer, Source
from mesh.tree import DEPTH, Tree


def tree_gen(operator: Producer, generator: CNGen) -> Tree:
    """The prefix of candidate networks that a source or a join stands for; no operator stores it."""
    if isinstance(operator, Source):
        return Tree.single(operator.relation, operator.keywords)
    assert isinstance(operator, JoinOperator)  # noqa: S101 - there are no other operators
    old = tree_gen(operator.left, generator)
    edge, keywords = operator.edge, operator.slot.keywords
    depth = old.path.index(operator.slot.node)
    element = (depth + 1) * DEPTH + generator.order.label(edge.id, keywords)
    return old.grow(depth, edge.id, edge.target, keywords, element)
