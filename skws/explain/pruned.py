"""What keys spare: networks in which a tuple would meet two tuples with one key, which cannot be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from mesh.generate import CNGen
from mesh.tree import Tree, neighbours
from schema.graph import Edge, edges

MOST_NETWORKS: Final = 150_000


@dataclass(frozen=True, slots=True)
class Impossible:
    """A network without results: ``node`` would meet two tuples through ``edge``, at whose end is a key."""

    tree: Tree
    node: int
    edge: Edge


@dataclass(frozen=True, slots=True)
class KeyPruning:
    """``networks`` were pruned by keys, such as ``example``. ``whole``: all are counted."""

    networks: int
    example: Impossible | None
    whole: bool


def pruned_by_keys(generator: CNGen, most: int = MOST_NETWORKS) -> KeyPruning:
    """Compare with the networks that there would be without keys; looks at ``most`` of them."""
    known = edges(generator.schema)
    if not any(edge.at_most_one for edge in known):
        return KeyPruning(0, None, True)
    networks = _without_keys(generator).networks()
    found = [clash for tree in islice(networks, most) if (clash := _clash(tree, known)) is not None]
    example = min(found, key=lambda clash: len(clash.tree.relations), default=None)
    return KeyPruning(len(found), example, next(networks, None) is None)


def _without_keys(generator: CNGen) -> CNGen:
    schema = generator.schema
    keyless = replace(schema, relations=tuple(replace(r, key=()) for r in schema.relations))
    return CNGen(
        keyless,
        generator.slots,
        generator.max_size,
        generator.searchable,
        generator.order,
        generator.sequence,
        generator.without,
    )


def _clash(tree: Tree, known: tuple[Edge, ...]) -> Impossible | None:
    for node, around in enumerate(neighbours(tree)):
        walked = [edge for edge, _ in around]
        for edge in walked:
            if known[edge].at_most_one and walked.count(edge) > 1:
                return Impossible(tree, node, known[edge])
    return None
