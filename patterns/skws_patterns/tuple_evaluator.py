"""Algorithm 1 of the PCEA paper: tuples in, valuations out, under a sliding window.

An update tests the tuple for every transition of its relation and adds the new runs; its time does not depend
on the number of results. The automaton is compiled into a program for each relation.

The paper's H is divided into tables, one for each state and left key function, so transitions that compare a
state's tuples by the same columns share their entries. A table has two generations of entries. Once all of
the older generation has left the window it is dropped and the younger replaces it, so expired entries are
reclaimed at no cost per tuple.

Bags of runs are persistent heaps, ordered by the start of the window that runs fit in (DS_w, Section 5). A
node represents a tuple with its mark, combined with every choice of one run from each of its products; a heap
represents the union of its nodes. The root starts latest, so if a root has left the window, so has everything
below it.

The paper balances heaps by a direction bit, which leads to long paths where starts rise and fall in turn.
These heaps are leftist: a right spine is never longer than the logarithm of the size, and the node that
starts latest is put on top in one step. Path copying keeps them persistent.

``valuations`` enumerates (Theorem 5.2): every visited node is in the window and has a run, so the delay
between two valuations is linear in the valuation. ``count`` counts each shared node once: its time is linear
in the number of nodes, while the count may have hundreds of digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from skws_patterns.pcea import PCEA, Columns, State, Transition, Unary
from skws_schema.model import Key, Row, key_getter
from skws_windows.window import FOREVER, CountWindow, TimeWindow, Window, by_position

# (start, left, right, rank, mark, products). ``start``: max-start of the paper, the latest possible start of
# a run of this node. ``rank``: nodes on the right spine. ``products``: for each source the heaps from which
# to choose a run; a list, so that it can be emptied when all of its runs have expired.
Mark: TypeAlias = tuple[int, frozenset[str]]
Heaps: TypeAlias = "tuple[Node, ...]"
Node: TypeAlias = "tuple[int, Node | None, Node | None, int, Mark, list[Heaps] | None]"


def insert(heap: Node, node: Node, low: int) -> Node:
    """The union of a heap and a single node that starts before its root, without expired nodes.

    ``low``: the first tick in the window. Time logarithmic in the heap.
    """
    start, *_, mark, products = node
    path = []
    tail: Node | None = heap
    while tail is not None and tail[0] > start:
        path.append(tail)
        tail = tail[2]
    union = (start, tail, None, 1, mark, products) if tail is not None and tail[0] >= low else node
    for parent in reversed(path):
        union = _with_right(parent, union, low)
    return union


def _with_right(parent: Node, child: Node, low: int) -> Node:
    """A copy of ``parent`` with ``child`` in place of its right side; the shorter side goes to the right."""
    start, left, _, _, mark, products = parent
    if left is None or left[0] < low:
        return (start, child, None, 1, mark, products)
    if left[3] >= child[3]:
        return (start, left, child, child[3] + 1, mark, products)
    return (start, child, left, left[3] + 1, mark, products)


Valuation: TypeAlias = tuple[Mark, ...]

# Lists that share their tails: the marks of the runs chosen so far, and the remaining choices.
_Marks: TypeAlias = "tuple[Mark, _Marks | None]"
_Choices: TypeAlias = "tuple[Heaps, _Choices | None]"


def valuations(node: Node, low: int) -> Iterator[Valuation]:
    """The valuations of a node, without the heap below it, from tick ``low`` on.

    A valuation is the marked positions with their labels, in no particular order. Untried choices wait on a
    stack, without recursion, as a run may be as long as the window. Each entry of the stack has nodes to try,
    so every entry leads to a valuation at once.
    """
    choices = _push_choices(node[5], None)
    if choices is None:
        yield (node[4],)
        return
    # Nodes to try for one choice, the marks chosen before it, and the choices after it.
    stack: list[tuple[list[Node], _Marks, _Choices | None]] = []
    marks: _Marks = (node[4], None)
    while True:
        heaps, remaining = choices
        stack.append(([heap for heap in heaps if heap[0] >= low], marks, remaining))
        choices = None
        while choices is None:  # until a chosen node leaves further choices
            if not stack:
                return
            nodes, marks, remaining = stack.pop()
            valuation = None if remaining else _to_tuple(marks)
            while nodes:
                _, left, right, _, mark, products = nodes.pop()
                if left is not None and left[0] >= low:
                    nodes.append(left)
                if right is not None and right[0] >= low:
                    nodes.append(right)
                if valuation is None or products:
                    if nodes:
                        stack.append((nodes, marks, remaining))
                    marks = (mark, marks)
                    choices = _push_choices(products, remaining)
                    break
                yield (mark, *valuation)


def _push_choices(products: list[Heaps] | None, remaining: _Choices | None) -> _Choices | None:
    for heaps in products or ():
        remaining = (heaps, remaining)
    return remaining


def _to_tuple(chain: _Marks) -> Valuation:
    marks = []
    cell: _Marks | None = chain
    while cell is not None:
        mark, cell = cell
        marks.append(mark)
    return tuple(marks)


def count(node: Node, low: int) -> int:
    """The number of valuations of a node, without the heap below it, from tick ``low`` on."""
    counts: dict[int, int] = {}
    total = 1
    for heaps in node[5] or ():
        total *= sum(_runs(heap, low, counts) for heap in _alive(heaps, low))
    return total


def _runs(heap: Node, low: int, counts: dict[int, int]) -> int:
    """The number of runs in a heap. ``counts``: by the identity of nodes, which the caller keeps alive."""
    stack = [heap]
    while stack:
        node = stack[-1]
        sides = [side for side in (node[1], node[2]) if side is not None and side[0] >= low]
        products = [_alive(heaps, low) for heaps in node[5] or ()]
        missing = [n for n in sides if id(n) not in counts]
        missing += [n for heaps in products for n in heaps if id(n) not in counts]
        if missing:
            stack += missing
            continue
        runs = 1
        for heaps in products:
            runs *= sum(counts[id(n)] for n in heaps)
        counts[id(node)] = runs + sum(counts[id(side)] for side in sides)
        stack.pop()
    return counts[id(heap)]


def _alive(heaps: Heaps, low: int) -> list[Node]:
    return [heap for heap in heaps if heap[0] >= low]


Table: TypeAlias = list[dict[Key, Node]]
# A table, and the number of the key by which a tuple is looked up or added.
TableKey: TypeAlias = tuple[Table, int]
# (sources, labels, the tables that the target's runs are added to, whether it is final)
Step: TypeAlias = tuple[tuple[TableKey, ...], frozenset[str], tuple[TableKey, ...], bool]
Holds: TypeAlias = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class RelationProgram:
    """The effect of a tuple of one relation: its keys, then the steps of each predicate it satisfies."""

    keys: tuple[Callable[[Row], Key], ...]
    steps: tuple[tuple[Holds | None, tuple[Step, ...]], ...]


class PceaProgram:
    """The programs of a PCEA by relation, and the tables they share."""

    def __init__(self, pcea: PCEA, relations: int) -> None:
        sources = {(s.state, s.equality.left): None for t in pcea.transitions for s in t.sources}
        self._tables: dict[tuple[State, Any], Table] = {slot: [{}, {}] for slot in sources}
        self.tables = tuple(self._tables.values())
        self.relations = tuple(self._relation_program(pcea, number) for number in range(relations))

    def _relation_program(self, pcea: PCEA, relation: int) -> RelationProgram | None:
        transitions = [t for t in pcea.transitions if t.unary.relation == relation]
        keys: dict[Columns, int] = {}
        by_unary: dict[Unary, list[Step]] = {}
        for transition in transitions:
            step = self._step(transition, keys, transition.target in pcea.final)
            by_unary.setdefault(transition.unary, []).append(step)
        if not transitions:
            return None
        steps = tuple((holds_function(unary), tuple(unary_steps)) for unary, unary_steps in by_unary.items())
        return RelationProgram(tuple(map(key_getter, keys)), steps)

    def _step(self, transition: Transition, keys: dict[Columns, int], final: bool) -> Step:
        def key_number(columns: Columns) -> int:
            return keys.setdefault(columns, len(keys))

        sources = [
            (self._tables[s.state, s.equality.left], key_number(s.equality.right)) for s in transition.sources
        ]
        targets = []
        for (state, left), table in self._tables.items():
            columns = dict(left).get(transition.unary.relation) if state == transition.target else None
            if columns is not None:
                targets.append((table, key_number(columns)))
        return tuple(sources), transition.labels, tuple(targets), final


def holds_function(unary: Unary) -> Holds | None:
    """The tests of a predicate as one function; None if there are none."""
    tests = [test.holds for test in unary.tests]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda row: all(test(row) for test in tests)


_ALWAYS: Final = -4 * FOREVER


class TupleEvaluator:
    """Evaluates an unambiguous PCEA with equality predicates over one stream.

    ``relations``: the number of relations in the schema. Results are the valuations whose tuples are in one
    window: for a count window of w |i - min| <= w as in the paper, for a time window of w all starts less
    than w apart. An ambiguous automaton gives a result once for each of its runs.
    """

    def __init__(self, pcea: PCEA, relations: int, window: Window) -> None:
        self._program = PceaProgram(pcea, relations)
        # The greatest distance of a result's first tuple from the next tuple, in ticks; it never grows.
        self._reach = reach_of(window)
        self._by_count = by_position(window)
        self._generation_start = _ALWAYS  # when the younger generation began
        self._tick = self._low = _ALWAYS
        self._final_nodes: list[Node] = []
        self._products: list[list[list[Heaps]]] = [[], []]
        # The position of the last tuple. A caller may skip tuples that no transition reads by setting it.
        self.position = -1

    def feed(self, relation: int, row: Row, tick: int = 0) -> Iterator[Valuation]:
        """The results that a tuple completes; read them before feeding the next tuple.

        ``tick``: its time in microseconds, not before the previous tuple's;
        ignored where positions are the ticks.
        """
        self.update(relation, row, tick)
        return self.results()

    def results(self) -> Iterator[Valuation]:
        """The results of the last update, with output-linear delay."""
        for node in self._final_nodes:
            yield from valuations(node, self._low)

    def count(self) -> int:
        """The number of results of the last update, counted without forming them."""
        return sum(count(node, self._low) for node in self._final_nodes)

    def entries(self) -> int:
        """The number of entries in the tables, at most the tuples of two windows."""
        return sum(len(generation) for table in self._program.tables for generation in table)

    def update(self, relation: int, row: Row, tick: int = 0) -> bool:
        """Read the next tuple; True if it completes results. Raises ValueError if its tick is smaller."""
        self.position = position = self.position + 1
        if self._by_count:
            tick = position
        low = tick - self._reach
        if low < self._low:
            raise ValueError(f"the tuple at position {position} has an earlier time than the one before")
        self._low = low
        if low > self._generation_start:
            self._turn_over(tick)
        self._tick = tick
        program = self._program.relations[relation]
        if program is None:
            self._final_nodes = []
            return False
        return self._fire(program, row, position, tick, low)

    def _fire(self, program: RelationProgram, row: Row, position: int, tick: int, low: int) -> bool:
        """Fire transitions on the entries of the tables, then add the new runs, for later tuples only."""
        keys = [key_of(row) for key_of in program.keys]
        final_nodes: list[Node] = []
        new_runs: list[tuple[tuple[TableKey, ...], Node]] = []
        for holds, steps in program.steps:
            if holds is not None and not holds(row):
                continue
            for step in steps:
                sources, labels, table_keys, final = step
                if sources:
                    node = self._gather(step, keys, (position, labels), tick, low)
                    if node is None:
                        continue
                else:
                    node = (tick, None, None, 1, (position, labels), None)
                if final:
                    final_nodes.append(node)
                if table_keys:
                    new_runs.append((table_keys, node))
        for table_keys, node in new_runs:
            _add_run(table_keys, node, keys, low)
        self._final_nodes = final_nodes
        return bool(final_nodes)

    def _gather(self, step: Step, keys: list, mark: Mark, start: int, low: int) -> Node | None:  # type: ignore[type-arg]
        """The node that gathers a run from each source (extend of the paper); None if one has none."""
        products: list[Heaps] = []
        for (young, old), number in step[0]:
            key = keys[number]
            first = young.get(key)
            second = old.get(key)
            latest_start = _ALWAYS
            if first is not None and first[0] >= low:
                latest_start = first[0]
                if second is not None and second[0] >= low:
                    if second[0] > latest_start:
                        latest_start = second[0]
                    products.append((first, second))
                else:
                    products.append((first,))
            elif second is not None and second[0] >= low:
                latest_start = second[0]
                products.append((second,))
            else:
                return None
            if latest_start < start:
                start = latest_start
        if step[2]:
            self._products[0].append(products)
        return (start, None, None, 1, mark, products)

    def _turn_over(self, tick: int) -> None:
        """Drop the older generation, all of which began before the window.

        Live runs may still refer to its nodes; emptying their products releases the past.
        """
        for products in self._products[1]:
            products.clear()
        if self._low > self._tick:  # the younger one has left the window as well
            for products in self._products[0]:
                products.clear()
            self._products[0] = []
            for table in self._program.tables:
                table[0] = {}
        self._products = [[], self._products[0]]
        for table in self._program.tables:
            table[1], table[0] = table[0], {}
        self._generation_start = tick


def _add_run(table_keys: tuple[TableKey, ...], node: Node, keys: list, low: int) -> None:  # type: ignore[type-arg]
    """Add a run to the tables of its state (union of the paper), except where its key is undefined."""
    start = node[0]
    for (young, _), number in table_keys:
        key = keys[number]
        if key is None:
            continue
        heap = young.get(key)
        if heap is None or heap[0] < low:
            young[key] = node
        elif heap[0] <= start:
            young[key] = (start, heap, None, 1, node[4], node[5])
        else:
            young[key] = insert(heap, node, low)


def reach_of(window: Window) -> int:
    """The greatest distance between the first and the last tuple of a result, in ticks."""
    if isinstance(window, CountWindow):
        return window.size
    if isinstance(window, TimeWindow):
        return window.length - 1
    return 2 * FOREVER
