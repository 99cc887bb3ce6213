"""Records on which windows pile up: found for a pattern, and confirmed by the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from skws_schema.model import AttributeType, Value
from skws_windows.check.overlap import Pattern
from skws_windows.check.types import Edge, TypeGraph
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet, StreamRecord
from skws_windows.guards.satisfiability import Satisfiability
from skws_windows.language.expression import Limits, Pair, WindowExpression
from skws_windows.processor.processor import Processor

REPETITIONS: Final = 3
_MORE: Final = 2
_LONGEST: Final = 400
_DEFAULTS: Final[dict[AttributeType, Value]] = {
    AttributeType.TEXT: "",
    AttributeType.STRING: "",
    AttributeType.INTEGER: 0,
    AttributeType.NUMBER: 0.0,
    AttributeType.BOOLEAN: False,
    AttributeType.TIMESTAMP: 0,
}


@dataclass(frozen=True, slots=True)
class Witness:
    """A stream u v^n x: ``prefix``, ``loop`` and ``suffix`` count the records of u, v and x.

    After u v^n ``open_starts`` starts are open; at the last record ``ending``
    windows of the whole expression end. More repetitions make more starts, and
    more windows of the pair to blame if ``output_grows``.
    """

    records: tuple[StreamRecord, ...]
    prefix: int
    loop: int
    suffix: int
    repetitions: int
    open_starts: int
    ending: int
    output_grows: bool = False


def realised(
    expression: WindowExpression, pair: Pair, graph: TypeGraph, pattern: Pattern, theory: Satisfiability
) -> Witness | None:
    """Records for a pattern; None if there are none. Confirmed by runs with fewer and more repetitions.

    The runs are of the one pair whose windows pile up. The numbers of the
    witness are those of the whole expression, as a replay shows them.
    """
    watched = WindowExpression((pair,), limits=Limits(within=expression.limits.within), per=expression.per)
    found = []
    for repetitions in (REPETITIONS, REPETITIONS + _MORE):
        records = _records(watched, graph, pattern, repetitions, theory)
        if records is None:
            return None
        found.append(_watched(watched, records, pattern, repetitions, theory.alphabet))
    few, more = found
    if more.open_starts < few.open_starts + _MORE:
        return None
    witness = _watched(expression, few.records, pattern, REPETITIONS, theory.alphabet)
    return replace(witness, output_grows=more.ending >= few.ending + _MORE)


def _watched(
    expression: WindowExpression,
    records: tuple[StreamRecord, ...],
    pattern: Pattern,
    repetitions: int,
    alphabet: Alphabet,
) -> Witness:
    processor = Processor(expression, alphabet)
    until = len(records) - len(pattern.suffix)
    for _ in processor.process(records[:until]):
        pass
    starts = processor.open_starts
    ending = sum(1 for window in processor.process(records[until:]) if window.last == len(records) - 1)
    sizes = (until - repetitions * len(pattern.loop), len(pattern.loop), len(pattern.suffix))
    return Witness(records, *sizes, repetitions, starts, ending)


def _records(
    expression: WindowExpression,
    graph: TypeGraph,
    pattern: Pattern,
    repetitions: int,
    theory: Satisfiability,
) -> tuple[StreamRecord, ...] | None:
    walk = [*pattern.prefix, *pattern.loop * repetitions, *pattern.suffix]
    size = expression.k + len(walk)
    # All records are of one key.
    wanted: list[g.Guard] = []
    for name in expression.per:
        wanted += [g.negation(g.IsNull(g.Field(name, back))) for back in range(size)]
        wanted += [g.Compare("=", g.Field(name, back), g.Field(name, back + 1)) for back in range(size - 1)]
    at_once = expression.limits.within is not None
    return records_of(walk, graph, expression.k, theory, wanted, at_once=at_once)


def records_of(
    walk: Sequence[Edge],
    graph: TypeGraph,
    k: int,
    theory: Satisfiability,
    also: Sequence[g.Guard] = (),
    *,
    at_once: bool = False,
) -> tuple[StreamRecord, ...] | None:
    """Records along a walk: k, then one for each edge, on which the guards hold or not as its letter says.

    ``also`` are guards that the last record has to satisfy too. None if there
    are no such records, or the walk is too long.
    """
    size = k + len(walk)
    if size > _LONGEST:
        return None
    wanted = list(also)
    for place, edge in enumerate(walk):
        later = len(walk) - 1 - place
        signs = graph.letters[edge.letter]
        wanted += [_signed(guard, sign, later) for guard, sign in zip(graph.guards, signs, strict=True)]
        types = graph.types[edge.target]
        wanted += [_signed(guard, sign, later) for guard, sign in zip(graph.remembered, types, strict=True)]
    sample = theory.sample(wanted, size)
    return None if sample is None else _finished(sample, wanted, theory.alphabet, at_once=at_once)


def _signed(guard: g.Guard, sign: bool, later: int) -> g.Guard:
    moved = g.shifted(guard, later)
    return moved if sign else g.negation(moved)


def _finished(
    sample: tuple[StreamRecord, ...],
    wanted: list[g.Guard],
    alphabet: Alphabet,
    *,
    at_once: bool,
) -> tuple[StreamRecord, ...]:
    """The records with default values, and times, where no guard reads them."""
    read = {f.name for guard in wanted for atom in g.atoms(guard) for f in g.fields(atom)}
    variables = {alphabet.fields[name].variable for name in read}
    timed = alphabet.clock and "time" in read
    finished = []
    for place, record in enumerate(sample):
        relation = alphabet.schema.relations[record.relation]
        row = tuple(
            value
            if alphabet.fields[f"{relation.name}.{attribute.name}"].variable in variables
            else _DEFAULTS[attribute.type]
            for attribute, value in zip(relation.attributes, record.row, strict=True)
        )
        time = record.time if timed else 0 if at_once else place * 1_000_000
        finished.append(StreamRecord(record.relation, time, row))
    return tuple(finished)
