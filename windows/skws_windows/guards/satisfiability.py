"""Decides by z3 which guards can hold together; used only at compile time.

Each value has a second variable that is true if it is NULL, and each record
has one for its relation. Texts are numbers, which are equal if and only if the texts are;
"contains" is a predicate whose truth is known only for the constants of guards.
So a cell may be found possible although no text exists for it. Samples reveal
this, because guards are evaluated on them.

A z3 context serves one thread at a time, and a second thread in it crashes the
process. So each question has its own context, in which all its objects are
created; by default z3 would use one that the whole process shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.errors import UsageError
from skws_schema.model import COMPARED, Analyzer, AttributeType, Value
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import TIME, TIME_COLUMN, Alphabet, FieldInfo, StreamRecord, holds

MOST_UNITS: Final = 2_000_000
"""The most units of z3's work for one check, some seconds; a guard that takes more counts as possible."""
MOST_IN_ALL: Final = 20_000_000
"""The most units of z3's work for all questions about one window."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Truth values of some guards that can occur together.

    ``sample`` is a block of records (oldest first) with exactly these truth
    values; None if none was found, though the cell may be possible.
    """

    signs: tuple[bool, ...]
    sample: tuple[StreamRecord, ...] | None


class TooManyCellsError(Exception):
    """Guards have too many cells to examine, or cells that are too hard to find."""


class Satisfiability:
    """Answers questions about guards over one alphabet. ``promises``: guards that hold for every record."""

    def __init__(self, alphabet: Alphabet, promises: Sequence[g.Guard] = ()) -> None:
        self.alphabet = alphabet
        self._promises = tuple(promises)
        self._cache: dict[g.Guard, bool] = {}
        self._budget = StepBudget(MOST_IN_ALL, "checking conditions")

    def is_possible(self, guard: g.Guard) -> bool:
        """True if some block of records satisfies the guard, or if it takes too much work to decide."""
        if isinstance(guard, g.Truth):
            return guard.value
        if guard not in self._cache:
            try:
                self._cache[guard] = any(True for _ in self.cells([g.TOP], guard))
            except OverBudgetError:
                return True
        return self._cache[guard]

    def cells(self, guards: Sequence[g.Guard], condition: g.Guard = g.TOP) -> Iterator[Cell]:
        """The cells of ``guards`` in which ``condition`` holds: their minterms without the impossible ones.

        Raises OverBudgetError.
        """
        encoding = _Encoding(self.alphabet, [*guards, condition], self._promises, self._budget)
        with self._budget:
            yield from encoding.cells(guards, condition)

    def cells_up_to(self, limit: int, guards: Sequence[g.Guard]) -> list[Cell]:
        """All cells of ``guards``. Raises TooManyCellsError if there are more than ``limit``."""
        try:
            cells = list(islice(self.cells(guards), limit + 1))
        except OverBudgetError:
            raise TooManyCellsError from None
        if len(cells) > limit:
            raise TooManyCellsError
        return cells

    def sample(self, guards: Sequence[g.Guard], size: int) -> tuple[StreamRecord, ...] | None:
        """``size`` records such that all ``guards`` hold at the last; None if none are found."""
        encoding = _Encoding(self.alphabet, guards, self._promises, self._budget, size - 1)
        try:
            with self._budget:
                cell = next(encoding.cells([], g.conjunction(guards)), None)
        except OverBudgetError:
            return None
        return None if cell is None else cell.sample


class _Encoding:
    """One solver with the variables that some guards need, in its own z3 context, made in a millisecond."""

    def __init__(
        self,
        alphabet: Alphabet,
        guards: Sequence[g.Guard],
        promises: Sequence[g.Guard],
        budget: StepBudget,
        depth: int = 0,
    ) -> None:
        try:
            import z3  # type: ignore[import-untyped]  # noqa: PLC0415 - at compile time only
        except ModuleNotFoundError:
            raise UsageError(
                "the check of window expressions needs z3: pip install 'skws[windows]'"
            ) from None

        self._z3: Any = z3
        self._alphabet = alphabet
        self._budget = budget
        self._depth = max([depth, *(g.lookback(guard) for guard in guards)])
        self._streams = [i for i, r in enumerate(alphabet.schema.relations) if not r.table]
        self._codes = {text: -1 - i for i, text in enumerate(_texts(guards))}
        self._keywords = _keywords(guards, alphabet)
        self._values: dict[tuple[str, int], Any] = {}
        self._context = z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._solver.set("rlimit", MOST_UNITS)
        self._solver.set("random_seed", 0)
        self._solver.set("ctrl_c", False)  # otherwise z3 catches the interrupt, and the check continues
        for position in range(self._depth + 1):
            self._solver.add(self._relation_among(position, self._streams))
            for promise in promises:
                self._solver.add(self._guard(g.shift(promise, position)))
        for guard in guards:
            self._guard(guard)
        self._relate()

    def cells(self, guards: Sequence[g.Guard], condition: g.Guard) -> Iterator[Cell]:
        z3 = self._z3
        self._solver.add(self._guard(condition))
        names = [self._flag(f"guard {i}") for i in range(len(guards))]
        for name, guard in zip(names, guards, strict=True):
            self._solver.add(name == self._guard(guard))
        while (answer := self._check()) != z3.unsat:
            if answer == z3.unknown:
                yield from self._undecided_cells(names)
                return
            model = self._solver.model()
            signs = tuple(bool(model.eval(name, model_completion=True)) for name in names)
            sample = tuple(self._record(model, back) for back in range(self._depth, -1, -1))
            yield Cell(signs, sample if self._fits(sample, guards, signs, condition) else None)
            self._solver.add(self._any([n != s for n, s in zip(names, signs, strict=True)]))

    def _undecided_cells(self, names: Sequence[Any]) -> Iterator[Cell]:
        """All cells not yet refuted, one sign after another; an undecided cell counts as possible."""
        z3 = self._z3
        pending: list[tuple[bool, ...]] = [()]
        while pending:
            signs = pending.pop()
            assumptions = [n if s else z3.Not(n) for n, s in zip(names, signs, strict=False)]
            if self._check(*assumptions) == z3.unsat:
                continue
            if len(signs) == len(names):
                yield Cell(signs, None)
            else:
                pending += [(*signs, False), (*signs, True)]

    def _check(self, *assumptions: Any) -> Any:
        """z3's answer, charged to the budget in z3's units of work. Raises OverBudgetError."""
        units_before = self._units()
        answer = self._solver.check(*assumptions)
        self._budget.spend(self._units() - units_before)
        return answer

    def _units(self) -> int:
        limits = {key: value for key, value in self._solver.statistics() if key == "rlimit count"}
        return int(limits.get("rlimit count", 0))

    def _fits(
        self,
        sample: tuple[StreamRecord, ...],
        guards: Sequence[g.Guard],
        signs: tuple[bool, ...],
        condition: g.Guard,
    ) -> bool:
        pairs = [*zip(guards, signs, strict=True), (condition, True)]
        return all(holds(guard, sample, self._alphabet) == sign for guard, sign in pairs)

    def _relate(self) -> None:
        """Constraints between the variables: relations have fields, and time does not decrease."""
        for (name, back), value in list(self._values.items()):
            info = self._alphabet.variables[name]
            if info.columns[0] == TIME_COLUMN:
                if (name, back + 1) in self._values:
                    self._solver.add(self._values[name, back + 1] <= value)
                continue
            owners = [i for i in self._streams if self._holds(name, i)]
            self._solver.add(self._z3.Implies(self._present(name, back), self._relation_among(back, owners)))
        for keyword, analyzer in self._keywords:
            for text, code in self._codes.items():
                truth = self._alphabet.contains(keyword, text, analyzer)
                self._solver.add(self._contains(keyword, analyzer)(code) == truth)

    def _holds(self, variable: str, relation: int) -> bool:
        """True if a relation has an attribute whose value is ``variable``."""
        name = self._alphabet.relations[relation]
        schema_relation = self._alphabet.schema.relations[relation]
        fields = self._alphabet.fields
        return any(fields[f"{name}.{a.name}"].variable == variable for a in schema_relation.attributes)

    def _any(self, parts: Sequence[Any]) -> Any:
        return self._z3.Or(parts, self._context)

    def _all(self, parts: Sequence[Any]) -> Any:
        return self._z3.And(parts, self._context)

    def _flag(self, name: str) -> Any:
        return self._z3.Bool(name, self._context)

    def _truth(self, value: bool) -> Any:
        return self._z3.BoolVal(value, self._context)

    def _relation(self, back: int) -> Any:
        return self._z3.Int(f"relation@{back}", self._context)

    def _relation_among(self, back: int, relations: Sequence[int]) -> Any:
        return self._any([self._relation(back) == i for i in relations])

    def _present(self, variable: str, back: int) -> Any:
        return self._flag(f"present {variable}@{back}")

    def _contains(self, keyword: str, analyzer: Analyzer) -> Any:
        sorts = self._z3.IntSort(self._context), self._z3.BoolSort(self._context)
        return self._z3.Function(f"contains {analyzer} {keyword}", *sorts)

    def _value(self, info: FieldInfo, back: int) -> Any:
        key = (info.variable, back)
        if key not in self._values:
            name = f"{info.variable}@{back}"
            kind = {AttributeType.NUMBER: self._z3.Real, AttributeType.BOOLEAN: self._z3.Bool}.get(
                info.sort, self._z3.Int
            )
            self._values[key] = kind(name, self._context)
            if info.columns[0] == TIME_COLUMN and back < self._depth:
                self._value(info, back + 1)
        return self._values[key]

    def _is_present(self, field: g.Field) -> Any:
        info = self._alphabet.fields[field.name]
        self._value(info, field.back)
        if info.columns[0] == TIME_COLUMN:
            return self._truth(True)
        present = self._present(info.variable, field.back)
        if info.name == info.variable:
            return present
        relations = [i for i, column in enumerate(info.columns) if column >= 0]
        return self._all([present, self._relation_among(field.back, relations)])

    def _guard(self, guard: g.Guard) -> Any:  # noqa: PLR0911 - one case each
        match guard:
            case g.Truth(value):
                return self._truth(value)
            case g.Not(inner):
                return self._z3.Not(self._guard(inner))
            case g.And(parts):
                return self._all([self._guard(p) for p in parts])
            case g.Or(parts):
                return self._any([self._guard(p) for p in parts])
            case g.OfRelation(relation, back):
                return self._relation(back) == self._alphabet.relations.index(relation)
            case g.IsNull(field):
                return self._z3.Not(self._is_present(field))
            case g.Contains(field, keyword):
                info = self._alphabet.fields[field.name]
                code = self._value(info, field.back)
                return self._all([self._is_present(field), self._contains(keyword, info.analyzer)(code)])
            case g.Compare(operator, left, right):
                presence = [self._is_present(field) for field in g.fields(guard)]
                return self._all([*presence, COMPARED[operator](self._term(left), self._term(right))])

    def _term(self, term: g.Term) -> Any:
        match term:
            case g.Field(name, back):
                return self._value(self._alphabet.fields[name], back)
            case g.GuardConstant(value):
                return self._constant(value)
            case g.Sum(terms, constant):
                terms_of_sum = [self._constant(c) * self._term(f) for c, f in terms]
                return self._z3.Sum([*terms_of_sum, self._constant(constant)])

    def _constant(self, value: g.Scalar) -> Any:
        if isinstance(value, bool):
            return self._truth(value)
        if isinstance(value, str):
            return self._z3.IntVal(self._codes[value], self._context)
        if isinstance(value, int):
            return self._z3.IntVal(value, self._context)
        numerator, denominator = value.as_integer_ratio()
        return self._z3.Q(numerator, denominator, self._context)

    def _record(self, model: Any, back: int) -> StreamRecord:
        """The record of a model ``back`` records before the last."""
        relation = model.eval(self._relation(back), model_completion=True).as_long()
        name, schema_relation = self._alphabet.relations[relation], self._alphabet.schema.relations[relation]
        infos = [self._alphabet.fields[f"{name}.{a.name}"] for a in schema_relation.attributes]
        row = tuple(self._sample_value(model, info, back) for info in infos)
        time = self._values.get((TIME, back)) if self._alphabet.clock else None
        event_time = 0 if time is None else model.eval(time, model_completion=True).as_long()
        return StreamRecord(relation, event_time, row)

    def _sample_value(self, model: Any, info: FieldInfo, back: int) -> Value:
        value = self._values.get((info.variable, back))
        if value is None or not model.eval(self._present(info.variable, back), model_completion=True):
            return None
        model_value = model.eval(value, model_completion=True)
        if info.sort is AttributeType.BOOLEAN:
            return bool(model_value)
        if info.sort is AttributeType.NUMBER:
            fraction = model_value.as_fraction()
            return float(fraction)
        return (
            self._text(model, model_value) if info.sort is AttributeType.TEXT else int(model_value.as_long())
        )

    def _text(self, model: Any, code: Any) -> str:
        number = code.as_long()
        for text, text_number in self._codes.items():
            if text_number == number:
                return text
        words = [
            k for k, a in self._keywords if model.eval(self._contains(k, a)(code), model_completion=True)
        ]
        return " ".join([f"text{number}", *words])


def _texts(guards: Iterable[g.Guard]) -> list[str]:
    constants = [
        term.value
        for guard in guards
        for atom in g.atoms(guard)
        if isinstance(atom, g.Compare)
        for term in (atom.left, atom.right)
        if isinstance(term, g.GuardConstant)
    ]
    return list(dict.fromkeys(value for value in constants if isinstance(value, str)))


def _keywords(guards: Iterable[g.Guard], alphabet: Alphabet) -> list[tuple[str, Analyzer]]:
    containments = (atom for guard in guards for atom in g.atoms(guard) if isinstance(atom, g.Contains))
    return list(
        dict.fromkeys((atom.keyword, alphabet.fields[atom.field.name].analyzer) for atom in containments)
    )
