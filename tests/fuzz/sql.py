"""The SQL of queries in constant memory."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Final

from hypothesis import strategies as st

from skws_bounds.normal_form import Atom, Term
from skws_bounds.verdict import check as verdict_of
from skws_schema.errors import SqlError
from skws_schema.model import Op, Row
from tests.bounds.bounds_queries import (
    INTEGERS,
    SECOND,
    STREAMS,
    TIMES,
    Step,
    naive_outputs,
    sql,
    synopsis_outputs,
)
from tests.fuzz.fuzzing import ODD_TEXTS, Language, words_and_signs


class _Select:
    """Writes one SELECT, with conditions that sometimes make it bounded."""

    def __init__(self, draw: st.DrawFn, columns: int) -> None:
        self._draw = draw
        self._columns = columns

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def _usually(self) -> bool:
        return self._draw(st.integers(0, 3)) > 0

    def text(self, distinct: str) -> str:
        relations = self._draw(st.lists(st.sampled_from("stuv"), min_size=1, max_size=3))
        relations += [name for name in "rf" if not self._usually()]
        aliases = [name if relations.count(name) == 1 else f"{name}{i}" for i, name in enumerate(relations)]
        relations_by_alias = list(zip(aliases, relations, strict=True))
        sources = [
            name if alias == name else f"{name}{self._one_of(' ', ' AS ')}{alias}"
            for alias, name in relations_by_alias
        ]
        attributes = [f"{alias}.{a}" for alias, name in relations_by_alias for a in INTEGERS[name]]
        conditions = [
            self._time_comparison(one, other)
            for one, other in pairwise(relations_by_alias)
            if self._usually()
        ]
        conditions += [c for a in attributes if self._usually() for c in self._bounds(a)]
        conditions += [self._comparison(attributes) for _ in range(self._draw(st.integers(0, 2)))]
        conditions = [c for c in conditions if c]
        output = [self._output(attributes, i) for i in range(self._columns)]
        sources_text, on = ", ".join(sources), ""
        if len(sources) > 1 and conditions and not self._usually():
            on = f" ON {conditions.pop()}"
            sources_text = f"{', '.join(sources[:-1])} {self._one_of('JOIN', 'INNER JOIN')} {sources[-1]}"
        select, where, conjunction = self._draw(
            st.sampled_from((("SELECT", "WHERE", " AND "), ("select", "where", "\n  and ")))
        )
        ending = f" {where} {conjunction.join(conditions)}" if conditions else ""
        return f"{select} {distinct}{', '.join(output)} FROM {sources_text}{on}{ending}"

    def _time_comparison(self, one: tuple[str, str], other: tuple[str, str]) -> str:
        if one[1] not in TIMES or other[1] not in TIMES:
            return ""
        operator = self._one_of("<", ">", ">", "=", ">=", "<>", "!=")
        return f"{one[0]}.{TIMES[one[1]]} {operator} {other[0]}.{TIMES[other[1]]}"

    def _bounds(self, attribute: str) -> list[str]:
        return [
            *self._draw(
                st.sampled_from(
                    (
                        (f"{attribute} > 0", f"{attribute} < 4"),
                        (f"{attribute} BETWEEN 1 AND 3",),
                        (f"0 < {attribute}", f"4 > {attribute}"),
                        (f"{attribute} IN (1, 2)",),
                        (f"NOT {attribute} <> 2",),
                        (f"{attribute} NOT IN (1, 5)",),
                        (f"{attribute} <= -1",),
                    )
                )
            )
        ]

    def _comparison(self, attributes: list[str]) -> str:
        one, other = self._one_of(*attributes), self._one_of(*attributes)
        return f"{one} {self._one_of('<', '>', '=', '<>', '<=')} {other}" if one != other else ""

    def _output(self, attributes: list[str], number: int) -> str:
        return self._one_of(*attributes, "1", f"{self._one_of(*attributes)} AS c{number}")


@st.composite
def _queries(draw: st.DrawFn) -> str:
    select = _Select(draw, draw(st.integers(1, 2)))
    operator = draw(st.sampled_from((None, None, None, " UNION ", " UNION ALL ", "\nunion all\n")))
    if operator is None:
        return select.text(draw(st.sampled_from(("", "DISTINCT ", "distinct "))))
    return operator.join(select.text("") for _ in range(2))


def check(text: str, random: Random) -> bool:
    """A bounded query has the output of the query over all tuples; blanks change nothing."""
    try:
        union = sql(text)
    except SqlError as error:
        return check_position(str(error), text)
    if not set(text) & set("'\"-/`$"):
        # Atoms are compared without their positions.
        respaced = sql(re.sub(r"\s+", "\n ", text))
        assert [list(map(without_position, q.atoms)) for q in respaced.queries] == [
            list(map(without_position, q.atoms)) for q in union.queries
        ]
    verdict = verdict_of(union)
    if verdict.bounded:
        steps = _steps(random)
        tables: dict[str, list[Row]] = {"r": [(random.randint(0, 3), 2) for _ in range(random.randint(0, 2))]}
        assert synopsis_outputs(union, STREAMS, steps, tables) == naive_outputs(
            union, STREAMS, steps, tables
        ), steps
    return True


def check_position(message: str, text: str) -> bool:
    """False for a rejected text; fails unless the message names a position in it."""
    position = re.match(r"line (\d+), column (\d+): ", message)
    assert position is not None, message
    line, column = int(position[1]), int(position[2])
    assert 1 <= line <= text.count("\n") + 1
    assert 1 <= column <= max(1, len(text.split("\n")[line - 1]) + 1)
    return False


def without_position(atom: Atom) -> tuple[Term, Op, Term]:
    return atom.left, atom.op, atom.right


def _steps(random: Random) -> list[Step]:
    steps: list[Step] = []
    time = 0
    for _ in range(random.randint(1, 5)):
        time += SECOND * random.randint(1, 2)
        rows: dict[str, list[Row]] = {}
        for name in "stuvf":
            if name != "f" or time <= 3 * SECOND:
                tuples = (
                    [random.randint(-1, 5) for _ in INTEGERS[name]] for _ in range(random.randint(0, 2))
                )
                rows[name] = [(*row, time) for row in tuples]
        steps.append((time, rows))
    return steps


LANGUAGE: Final = Language("sql", _queries(), check, words_and_signs, ODD_TEXTS)
