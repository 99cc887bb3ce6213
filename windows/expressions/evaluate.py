"""Guards evaluated on one block of records; the reference that the columnar evaluation is tested against."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq, le, lt, ne
from typing import Final, cast

from schema.model import Value
from windows.expressions import guards as g
from windows.expressions.alphabet import Alphabet, StreamRecord

COMPARED: Final = {"<": lt, "<=": le, "=": eq, "!=": ne}


def holds(  # noqa: PLR0911 - a case each
    guard: g.Guard, block: Sequence[StreamRecord], alphabet: Alphabet
) -> bool:
    """Whether the last record of ``block`` satisfies a guard that looks back no farther than the block.

    That is the models relation of the window paper: the value of x_-j is the
    record j before the last.
    """
    match guard:
        case g.Truth(value):
            return value
        case g.Not(inner):
            return not holds(inner, block, alphabet)
        case g.And(parts):
            return all(holds(part, block, alphabet) for part in parts)
        case g.Or(parts):
            return any(holds(part, block, alphabet) for part in parts)
        case g.OfRelation(relation, back):
            return alphabet.relations[block[-1 - back].relation] == relation
        case g.IsNull(field):
            return _value(field, block, alphabet) is None
        case g.Contains(field, keyword):
            text = _value(field, block, alphabet)
            return text is not None and alphabet.contains(keyword, str(text))
        case g.Compare(operator, left, right):
            a, b = _term(left, block, alphabet), _term(right, block, alphabet)
            return a is not None and b is not None and bool(COMPARED[operator](a, b))


def _term(term: g.Term, block: Sequence[StreamRecord], alphabet: Alphabet) -> Value:
    match term:
        case g.Field():
            return _value(term, block, alphabet)
        case g.Constant(value):
            return value
        case g.Sum(terms, constant):
            values = [_value(field, block, alphabet) for _, field in terms]
            if None in values:
                return None
            numbers = cast("list[int | float]", values)  # as the language checks
            total: int | float = 0
            for (coefficient, _), number in zip(terms, numbers, strict=True):
                total += coefficient * number
            return total + constant


def _value(field: g.Field, block: Sequence[StreamRecord], alphabet: Alphabet) -> Value:
    return alphabet.value(field.name, block[-1 - field.back])
