"""Operators of the paper's meshes: sources, left-deep joins above them, TreeGen (S-KWS paper, Section 3.3).

A join's left input is the output buffer of the operator below it, its right
input that of a source. Operators with equal prefixes share all operators below
them, except in a forest.

The paper probes by nested loops, since its buffers hold few tuples. Here each
buffer is indexed on the join values of the operators above it. Join values are
integers that may be equal for different values, so the caller compares the rows
of results.

Execution by demand (Section 4.1, Figure 4.1) gives an operator two flags: d, some operator above is
running; r, the right input is not empty. An operator runs while both are set. The output operator, which is
above every operator of a whole candidate network, always runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import Final, NamedTuple, TypeAlias

from skws_mesh.cngen import CNGen
from skws_mesh.columnar.columns import NULL
from skws_mesh.columnar.live import KeySets
from skws_mesh.sequence import FREE, KeywordSequence
from skws_mesh.tree import DEPTH, Tree
from skws_purging.composites import Members, MeshTuple, compatible
from skws_schema.graph import Edge
from skws_windows.window import FOREVER

Index: TypeAlias = dict[int, dict[Members, int]]
_NULL: Final = int(NULL)

Compatible: TypeAlias = Callable[[Members, MeshTuple], bool]
"""True if a tuple can join the members."""

_NONE: Final[dict[Members, int]] = {}  # no index has an entry for NULL
_order = count()  # a tie-breaker for composite tuples with equal ends


def compatibility(sequence: KeywordSequence) -> Compatible:
    """The test of lifespans and, if the keywords have an order, of this order."""

    def agree(left: MeshTuple, right: MeshTuple) -> bool:
        first, second = sequence.rank(left.keywords), sequence.rank(right.keywords)
        if FREE in (first, second) or first == second:
            return True
        return (first < second) == ((left.start, left.place) < (right.start, right.place))

    def in_order(members: Members, new: MeshTuple) -> bool:
        return compatible(members, new) and all(agree(member, new) for member in members)

    return in_order if sequence else compatible


class Buffer:
    """Composite tuples, each with the number of the arrival that made it."""

    __slots__ = ("_ends", "_indexes", "entries")

    def __init__(self) -> None:
        self.entries: dict[Members, int] = {}
        self._indexes: dict[tuple[int, int], Index] = {}
        self._ends: list[tuple[int, int, Members]] = []

    def index(self, node: int, key_set: int) -> Index:
        """Entries by the join value of member ``node`` in a key set of its relation, without NULLs."""
        if (node, key_set) not in self._indexes:
            index = self._indexes[node, key_set] = Index()
            for members, arrival in self.entries.items():
                _add_entry(index, members[node].values[key_set], members, arrival)
        return self._indexes[node, key_set]

    def add(self, members: Members, arrival: int, end: int) -> None:
        """Add an entry. ``end``: the tick at which it is dead; FOREVER if its owner removes it."""
        self.entries[members] = arrival
        if end < FOREVER:
            heappush(self._ends, (end, next(_order), members))
        for (node, key_set), index in self._indexes.items():
            _add_entry(index, members[node].values[key_set], members, arrival)

    def discard(self, members: Members) -> None:
        if self.entries.pop(members, None) is None:
            return
        for (node, key_set), index in self._indexes.items():
            value = members[node].values[key_set]
            if value != _NULL:
                # The bucket must remain the same object: a probe may be reading it.
                del index[value][members]
                if not index[value]:
                    del index[value]

    def drop_dead(self, horizon: int) -> bool:
        """Remove entries that ended at or before ``horizon``; True if there were any."""
        dropped = False
        while self._ends and self._ends[0][0] <= horizon:
            members = heappop(self._ends)[2]
            if members in self.entries:  # otherwise it was expunged before
                self.discard(members)
                dropped = True
        return dropped

    def expunge(self, dead_tuple: MeshTuple) -> bool:
        """Remove all entries that contain a tuple; True if there were any."""
        dead_entries = [members for members in self.entries if dead_tuple in members]
        for members in dead_entries:
            self.discard(members)
        return bool(dead_entries)

    def entries_since(self, arrival: int) -> list[tuple[Members, int]]:
        """The entries made by arrivals later than ``arrival``."""
        return [entry for entry in self.entries.items() if entry[1] > arrival]

    def latest_entries(self, arrival: int) -> list[tuple[Members, int]]:
        """Like ``entries_since``, for entries in order of arrival, as in sources; reads no other entries."""
        return list(takewhile(lambda entry: entry[1] > arrival, reversed(self.entries.items())))

    def clear(self) -> None:
        self.entries.clear()
        self._ends.clear()
        for index in self._indexes.values():
            index.clear()


def _add_entry(index: Index, value: int, members: Members, arrival: int) -> None:
    if value != _NULL:
        index.setdefault(value, {})[members] = arrival


class JoinSlot(NamedTuple):
    """The node that a join adds: one with ``keywords``, reached by ``edge`` from member ``node``.

    ``branch`` numbers the trees of a forest; it is 0 in a mesh.
    """

    node: int
    edge: int
    keywords: int
    branch: int = 0


class Producer:
    """A source or a join. ``awake``: the running joins above it, by slot.

    ``complete``: its outputs are results of the candidate network ``network``
    (set with the first result).
    """

    __slots__ = ("awake", "complete", "network", "out", "parents")

    def __init__(self, complete: bool) -> None:
        self.complete = complete
        self.out = Buffer()
        self.parents: dict[JoinSlot, JoinOperator] = {}
        self.awake: dict[JoinSlot, JoinOperator] = {}
        self.network: Tree | None = None

    @property
    def linked(self) -> bool:
        """False once the operator has been removed from the mesh."""
        return True

    def consumers(self) -> tuple[JoinOperator, ...]:
        """The joins that read its output."""
        return tuple(self.parents.values())

    def above(self) -> Iterator[JoinOperator]:
        """All joins that have this operator, or one above it, on their left; lower ones first."""
        for parent in tuple(self.parents.values()):
            yield parent
            yield from parent.above()


class TupleSource(Producer):
    """The live tuples of one node of the expanded schema.

    ``fed_joins``: the joins that have it as right input; ``probing_joins``: the running ones among them.
    """

    __slots__ = ("fed_joins", "keywords", "probing_joins", "relation")

    def __init__(self, relation: int, keywords: int, complete: bool) -> None:
        super().__init__(complete)
        self.relation = relation
        self.keywords = keywords
        self.fed_joins: dict[JoinOperator, None] = {}
        self.probing_joins: dict[JoinOperator, None] = {}

    def consumers(self) -> tuple[JoinOperator, ...]:
        return (*self.parents.values(), *self.fed_joins)


class JoinOperator(Producer):
    """Joins the output of ``left`` with tuples of ``right``. ``last_arrival``: the last before sleep."""

    __slots__ = ("_key_sets", "_side_indexes", "demand", "edge", "last_arrival", "left", "right", "slot")

    def __init__(
        self,
        left: Producer,
        right: TupleSource,
        slot: JoinSlot,
        edge: Edge,
        key_sets: KeySets,
        complete: bool,
    ) -> None:
        super().__init__(complete)
        self.left = left
        self.right = right
        self.slot = slot
        self.edge = edge
        self.demand = Demand(wanted=complete)
        self.last_arrival = 0
        near, far = int(key_sets.source[edge.id]), int(key_sets.target[edge.id])
        self._key_sets = near, far
        self._side_indexes = left.out.index(slot.node, near), right.out.index(0, far)

    def matches_of_left(self, members: Members) -> dict[Members, int]:
        """The right tuples that join a composite tuple of the left input, with their arrivals."""
        return self._side_indexes[1].get(members[self.slot.node].values[self._key_sets[0]], _NONE)

    def matches_of_right(self, members: Members) -> dict[Members, int]:
        """The composite tuples of the left input that join a right tuple, with their arrivals."""
        return self._side_indexes[0].get(members[0].values[self._key_sets[1]], _NONE)

    def link(self) -> None:
        """Register this join with the operators below it."""
        self.left.parents[self.slot] = self
        self.right.fed_joins[self] = None

    def unlink(self) -> None:
        self.left.parents.pop(self.slot, None)
        self.right.fed_joins.pop(self, None)
        self.stop()

    def run(self) -> None:
        """Start processing arrivals."""
        self.left.awake[self.slot] = self
        self.right.probing_joins[self] = None

    def stop(self) -> None:
        self.left.awake.pop(self.slot, None)
        self.right.probing_joins.pop(self, None)

    @property
    def running(self) -> bool:
        return self in self.right.probing_joins

    @property
    def linked(self) -> bool:
        return self in self.right.fed_joins


def tree_gen(operator: Producer, generator: CNGen) -> Tree:
    """TreeGen: an operator's prefix of candidate networks, from the operators below it (Figure 4.3).

    Operators do not store their trees.
    """
    if isinstance(operator, TupleSource):
        return Tree.single(operator.relation, operator.keywords)
    assert isinstance(operator, JoinOperator)  # noqa: S101 - there are no other operators
    return tree_of(tree_gen(operator.left, generator), operator, generator)


def tree_of(tree: Tree, join: JoinOperator, generator: CNGen) -> Tree:
    """The tree of a join, given that of the operator on its left."""
    edge, keywords = join.edge, join.slot.keywords
    depth = tree.path.index(join.slot.node)
    element = (depth + 1) * DEPTH + generator.order.label(edge.id, keywords)
    return tree.grow(depth, edge.id, edge.target, keywords, element)


class State(Enum):
    """The states of Figure 4.1, as (d, r)."""

    RUNNING = (True, True)
    STARVED = (True, False)
    UNWANTED = (False, True)
    IDLE = (False, False)


class DemandEvent(Enum):
    """``PSTART``, ``PSTOP``: an operator above has started or stopped.

    ``FILLED``, ``EMPTIED``: the right source got its first tuple, or lost its last.
    """

    PSTART = "Pstart"
    PSTOP = "Pstop"
    FILLED = "filled"
    EMPTIED = "emptied"


class Demand:
    """The state of one join operator, and the number of running operators above it.

    Figure 4.1 has the transitions; its text names numbers 1, 2, 3, 9 and 10, the
    others are numbered in the order of the states:
    1. running: an operator above starts, or stops and is not the last
    2. running -> starved: the right input has dried up; *halts*
    3. running -> unwanted: the last operator above has stopped; *halts*
    4. starved: an operator above starts, or stops and is not the last
    5. starved -> idle: the last operator above has stopped
    6. unwanted -> idle: the right input has dried up
    7. idle -> unwanted: the right input has its first tuple
    8. idle -> starved: an operator above starts
    9. starved -> running: the right input has its first tuple; *wakes up*
    10. unwanted -> running: an operator above starts; *wakes up*
    """

    __slots__ = ("running_parents", "state")

    def __init__(self, wanted: bool) -> None:
        """``wanted``: the output operator is above it."""
        self.running_parents = int(wanted)
        self.state = State.STARVED if wanted else State.IDLE

    def follow(self, event: DemandEvent) -> int:
        """Make a transition; returns its number. Raises KeyError for an event that the state excludes."""
        self.running_parents += (event is DemandEvent.PSTART) - (event is DemandEvent.PSTOP)
        number, self.state = _NEXT[self.state, event, self.running_parents > 0]
        return number


HALTS = (2, 3)
WAKES = (9, 10)

# By state, event, and whether an operator above runs after the event.
_NEXT: dict[tuple[State, DemandEvent, bool], tuple[int, State]] = {
    (State.RUNNING, DemandEvent.PSTART, True): (1, State.RUNNING),
    (State.RUNNING, DemandEvent.PSTOP, True): (1, State.RUNNING),
    (State.RUNNING, DemandEvent.EMPTIED, True): (2, State.STARVED),
    (State.RUNNING, DemandEvent.PSTOP, False): (3, State.UNWANTED),
    (State.STARVED, DemandEvent.PSTART, True): (4, State.STARVED),
    (State.STARVED, DemandEvent.PSTOP, True): (4, State.STARVED),
    (State.STARVED, DemandEvent.PSTOP, False): (5, State.IDLE),
    (State.UNWANTED, DemandEvent.EMPTIED, False): (6, State.IDLE),
    (State.IDLE, DemandEvent.FILLED, False): (7, State.UNWANTED),
    (State.IDLE, DemandEvent.PSTART, True): (8, State.STARVED),
    (State.STARVED, DemandEvent.FILLED, True): (9, State.RUNNING),
    (State.UNWANTED, DemandEvent.PSTART, True): (10, State.RUNNING),
}
