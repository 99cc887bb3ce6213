"""Algorithm 1 of the PCEA paper: tuples in, valuations out, under a sliding window.

The update reads the tuple once for every transition of its relation and
enters the new runs; its time does not depend on how many results there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from patterns.automata.pcea import PCEA
from patterns.evaluation.counting import count
from patterns.evaluation.heap import Heaps, Mark, Node, insert
from patterns.evaluation.program import Place, Program, RelationProgram, Step
from patterns.evaluation.valuations import Valuation, valuations
from schema.model import Row
from windows.window import FOREVER, CountWindow, TimeWindow, Window, by_position

_ALWAYS: Final = -4 * FOREVER


class Evaluator:
    """Evaluates an unambiguous PCEA with equality predicates over one stream.

    ``relations``: how many the schema has. Results are the valuations whose
    tuples lie in one window: for a count window of w |i - min| <= w as in the
    paper, for a time window of w all starts less than w apart. Where windows
    are of an expression, ``reach`` is set before each tuple.
    An ambiguous automaton gives a result once for each of its runs.
    """

    def __init__(self, pcea: PCEA, relations: int, window: Window) -> None:
        self._program = Program(pcea, relations)
        # How far before the next tuple the first of a result may be, in ticks; what is out stays out.
        self.reach = reach_of(window)
        self._by_count = by_position(window)
        self._turned = _ALWAYS  # when the younger generation began
        self._tick = self._low = _ALWAYS
        self._fired: list[Node] = []
        self._products: list[list[list[Heaps]]] = [[], []]
        # That of the last tuple. Tuples that no transition reads may be left out by setting it.
        self.position = -1

    def feed(self, relation: int, row: Row, tick: int = 0) -> Iterator[Valuation]:
        """The results that a tuple completes; to be read before the next tuple is fed.

        ``tick``: its time in microseconds, never before that of an earlier
        tuple; not read where positions are time.
        """
        self.update(relation, row, tick)
        return self.results()

    def run(self, stream: Iterable[tuple[int, Row, int]]) -> Iterator[Valuation]:
        """The results of a whole stream of (relation, row, tick)."""
        for relation, row, tick in stream:
            if self.update(relation, row, tick):
                yield from self.results()

    def results(self) -> Iterator[Valuation]:
        """The results of the last update, with output-linear delay."""
        for node in self._fired:
            yield from valuations(node, self._low)

    def count(self) -> int:
        """How many results the last update has, counted without forming them."""
        return sum(count(node, self._low) for node in self._fired)

    def entries(self) -> int:
        """How many entries the tables hold: bounded by the tuples of two windows."""
        return sum(len(generation) for table in self._program.tables for generation in table)

    def update(self, relation: int, row: Row, tick: int = 0) -> bool:
        """Read the next tuple; true if it completes results. Raises ValueError if time goes back."""
        self.position = position = self.position + 1
        if self._by_count:
            tick = position
        low = tick - self.reach
        if low < self._low:
            raise ValueError(f"the tuple at position {position} comes before an earlier one in time")
        self._low = low
        if low > self._turned:
            self._turn_over(tick)
        self._tick = tick
        program = self._program.relations[relation]
        if program is None:
            self._fired = []
            return False
        return self._fire(program, row, position, tick, low)

    def _fire(self, program: RelationProgram, row: Row, position: int, tick: int, low: int) -> bool:
        """Fire transitions on what the tables hold, then enter the new runs: only later tuples meet them."""
        keys = [take(row) for take in program.keys]
        fired: list[Node] = []
        entering: list[tuple[tuple[Place, ...], Node]] = []
        for holds, steps in program.steps:
            if holds is not None and not holds(row):
                continue
            for step in steps:
                sources, labels, places, final = step
                if sources:
                    node = self._gather(step, keys, (position, labels), tick, low)
                    if node is None:
                        continue
                else:
                    node = (tick, None, None, 1, (position, labels), None)
                if final:
                    fired.append(node)
                if places:
                    entering.append((places, node))
        for places, node in entering:
            _enter(places, node, keys, low)
        self._fired = fired
        return bool(fired)

    def _gather(self, step: Step, keys: list, mark: Mark, start: int, low: int) -> Node | None:  # type: ignore[type-arg]
        """The node that gathers a run from each source (extend of the paper); None if one has none."""
        products: list[Heaps] = []
        for (young, old), number in step[0]:
            key = keys[number]
            first = young.get(key)
            second = old.get(key)
            latest = _ALWAYS
            if first is not None and first[0] >= low:
                latest = first[0]
                if second is not None and second[0] >= low:
                    if second[0] > latest:
                        latest = second[0]
                    products.append((first, second))
                else:
                    products.append((first,))
            elif second is not None and second[0] >= low:
                latest = second[0]
                products.append((second,))
            else:
                return None
            if latest < start:
                start = latest
        if step[2]:
            self._products[0].append(products)
        return (start, None, None, 1, mark, products)

    def _turn_over(self, tick: int) -> None:
        """Let the older generation go: everything in it began before the window.

        Runs that are still alive may refer to it; emptying its products keeps
        them from holding the whole past.
        """
        for products in self._products[1]:
            products.clear()
        if self._low > self._tick:  # the younger one is out as well
            for products in self._products[0]:
                products.clear()
            self._products[0] = []
            for table in self._program.tables:
                table[0] = {}
        self._products = [[], self._products[0]]
        for table in self._program.tables:
            table[1], table[0] = table[0], {}
        self._turned = tick


def _enter(places: tuple[Place, ...], node: Node, keys: list, low: int) -> None:  # type: ignore[type-arg]
    """Add a run to the entries of its state (union of the paper); not where its key is undefined."""
    start = node[0]
    for (young, _), number in places:
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
    """How far before the last tuple the first may be, in ticks."""
    if isinstance(window, CountWindow):
        return window.size
    if isinstance(window, TimeWindow):
        return window.length - 1
    return 2 * FOREVER
