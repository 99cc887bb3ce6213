"""Aggregates by differences of prefixes: count, sum and mean.

Sums of whole numbers are exact. A sum of doubles carries its rounding errors
along (compensated summation), so that a small window after large values is
as exact as if it had been summed alone.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schema.model import Value
from windows.expressions.columns import Column

_WHOLE: Final = 1 << 62


class CountPanes:
    """The number of records, or of those in which a field is not NULL."""

    def __init__(self) -> None:
        self._prefix: list[int] = [0]
        self._column: Column | None = None
        self._position = 0

    def __len__(self) -> int:
        return 0

    def feed(self, column: Column | None, size: int, position: int) -> None:
        self._column = column
        self._position = position
        if column is not None:
            self._prefix = list(accumulate(column.present[:size].tolist(), initial=self._prefix[-1]))

    def begin(self, offset: int) -> int:
        return self._position + offset if self._column is None else self._prefix[offset]

    def value(self, begun: int, offset: int) -> Value:
        if self._column is None:
            return self._position + offset + 1 - begun
        return self._prefix[offset + 1] - begun

    def forget(self, position: int) -> None:
        """Nothing is kept but the totals."""

    def finish(self) -> None:
        self._prefix = [self._prefix[-1]]


class Total(NamedTuple):
    """A prefix: the number of values, their sum, and what rounding took from it."""

    values: int
    sum: int | float
    error: float


class SumPanes:
    """The sum of a field's values; None if there are none."""

    def __init__(self) -> None:
        self._carried = Total(0, 0, 0.0)
        self._counts: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._sums: Any = [0]
        self._errors: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return 0

    def feed(self, column: Column | None, size: int, position: int) -> None:
        assert column is not None  # noqa: S101 - only count has no field
        del size, position
        self._counts = np.concatenate([[0], np.cumsum(column.present)])
        values = np.where(column.present, column.values, 0)
        if values.dtype == np.float64:
            self._add_doubles(values)
        else:
            self._add_whole(values)

    def _add_doubles(self, values: npt.NDArray[np.float64]) -> None:
        carried = float(self._carried.sum)
        sums = np.cumsum(np.concatenate([[carried], values]))
        before, after = sums[:-1], sums[1:]
        # Knuth's two-sum: what each addition lost, exactly.
        kept = after - before
        lost = (before - (after - kept)) + (values - kept)
        self._sums = sums
        self._errors = np.cumsum(np.concatenate([[self._carried.error], lost]))

    def _add_whole(self, values: npt.NDArray[Any]) -> None:
        if values.dtype != object and float(np.abs(values).max(initial=0)) * len(values) < _WHOLE:
            carried = int(self._carried.sum)
            sums = [carried + s for s in [0, *np.cumsum(values).tolist()]]
        else:
            sums = list(accumulate((int(v) for v in values.tolist()), initial=int(self._carried.sum)))
        self._sums, self._errors = sums, None

    def begin(self, offset: int) -> Total:
        error = 0.0 if self._errors is None else self._errors.item(offset)
        total = self._sums[offset]
        if self._errors is not None:
            total = float(total)
        return Total(self._counts.item(offset) + self._carried.values, total, error)

    def total(self, begun: Total, offset: int) -> Total:
        """What lies between two prefixes."""
        now = self.begin(offset + 1)
        if isinstance(now.sum, int) and isinstance(begun.sum, int):
            return Total(now.values - begun.values, now.sum - begun.sum, 0.0)
        difference = now.sum - begun.sum
        kept = difference - now.sum
        lost = (now.sum - (difference - kept)) - (begun.sum + kept)
        return Total(now.values - begun.values, difference + (lost + (now.error - begun.error)), 0.0)

    def value(self, begun: Total, offset: int) -> Value:
        total = self.total(begun, offset)
        return total.sum if total.values else None

    def forget(self, position: int) -> None:
        """Nothing is kept but the totals."""

    def finish(self) -> None:
        self._carried = self.begin(len(self._counts) - 1)
        self._counts, self._sums = np.zeros(1, dtype=np.int64), [self._carried.sum]
        self._errors = None


class MeanPanes(SumPanes):
    """The mean of a field's values; None if there are none."""

    def value(self, begun: Total, offset: int) -> Value:
        total = self.total(begun, offset)
        return total.sum / total.values if total.values else None
