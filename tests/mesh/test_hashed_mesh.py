"""The tuple-at-a-time mesh of our own: dead partials are swept, and at a cost that stays constant."""

from __future__ import annotations

from mesh.generate import CNGen
from mesh.mesh import Mesh
from purging.sweep import LEAST, Sweep
from schema.model import Attribute, AttributeType, Join, Relation, Schema
from windows.tuples import StreamTuple

LENGTH = 10
_KIND = (Attribute("x", AttributeType.INTEGER),)
PAIR = Schema("pair", (Relation("a", _KIND), Relation("b", _KIND)), (Join("ab", "a", "b", (("x", "x"),)),))


def tuple_of(relation: int, keywords: int, start: int, value: int) -> StreamTuple:
    return StreamTuple(relation, (value,), start, start + LENGTH, keywords)


def test_partials_that_nobody_probes_are_swept() -> None:
    mesh, most = Mesh(CNGen(PAIR, 2, 3)), 0
    for now in range(2 * LEAST):
        mesh.purge(now)
        mesh.insert(tuple_of(0, 1, now, value=now))
        mesh.insert(tuple_of(1, 0, now, value=now))
        most = max(most, mesh.partials)
    assert 4 * LENGTH < most <= LEAST + 8 * LENGTH
    assert len(mesh.insert(tuple_of(0, 2, now, value=now))) == 1
    mesh.purge(now + LENGTH)
    assert (mesh.live_tuples, mesh.partials) == (0, 0)


def test_a_sweep_waits_for_as_many_entries_as_the_last_one_left() -> None:
    sweep = Sweep()
    assert not sweep.due(1, LEAST)
    assert sweep.due(1, LEAST + 1)
    sweep.done(1, 500)
    assert not sweep.due(1, 10 * LEAST)  # nothing has expired since
    assert not sweep.due(2, 1000 + LEAST)
    assert sweep.due(2, 1000 + LEAST + 1)
