"""Aggregates by differences of prefixes: count, sum and mean.

Sums of whole numbers are exact. A sum of doubles carries its rounding errors
along (compensated summation), so that the sum of a small window after large
values is as exact as if it had been computed alone.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_schema.model import Value
from skws_windows.guards.columns import Column

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
        """Only the totals are kept."""

    def finish(self) -> None:
        self._prefix = [self._prefix[-1]]


# A prefix: the number of values, their sum, and what rounding took from it.
Total: TypeAlias = tuple[int, int | float, float]


class SumPanes:
    """The sum of a field's values; None if there are none."""

    def __init__(self) -> None:
        self._carried: Total = (0, 0, 0.0)
        # Arrays or lists; in either, element i is of the prefix before record i.
        self._counts: Any = [0]
        self._sums: Any = [0]
        self._errors: Any = [0.0]
        self._listed = True

    def __len__(self) -> int:
        return 0

    def feed(self, column: Column | None, size: int, position: int) -> None:
        assert column is not None  # noqa: S101 - only count has no field
        del size, position
        counts = np.empty(len(column.present) + 1, dtype=np.int64)
        counts[0] = self._carried[0]
        np.cumsum(column.present, out=counts[1:])
        counts[1:] += self._carried[0]
        self._counts, self._listed = counts, False
        values = np.where(column.present, column.values, 0)
        if values.dtype == np.float64:
            self._add_doubles(values)
        else:
            self._add_whole(values)

    def _add_doubles(self, values: npt.NDArray[np.float64]) -> None:
        sums = np.cumsum(np.concatenate([[float(self._carried[1])], values]))
        before, after = sums[:-1], sums[1:]
        # Knuth's two-sum: what each addition lost, exactly.
        kept = after - before
        lost = (before - (after - kept)) + (values - kept)
        self._sums = sums
        self._errors = np.cumsum(np.concatenate([[self._carried[2]], lost]))

    def _add_whole(self, values: npt.NDArray[Any]) -> None:
        carried = int(self._carried[1])
        if values.dtype != object and float(np.abs(values).max(initial=0)) * len(values) < _WHOLE:
            self._sums = [carried + s for s in [0, *np.cumsum(values).tolist()]]
        else:
            self._sums = list(accumulate((int(v) for v in values.tolist()), initial=carried))
        self._errors = [0.0] * len(self._sums)

    def begin(self, offset: int) -> Total:
        if not self._listed:
            self._to_lists()
        return self._counts[offset], self._sums[offset], self._errors[offset]

    def _to_lists(self) -> None:
        """Convert to lists when a window begins: elements are read faster; most segments need none."""
        self._counts, self._sums, self._errors = (
            part if isinstance(part, list) else part.tolist()
            for part in (self._counts, self._sums, self._errors)
        )
        self._listed = True

    def total(self, begun: Total, offset: int) -> tuple[int, int | float]:
        """The number of values between two prefixes, and their sum."""
        count, total, error = self.begin(offset + 1)
        earlier = begun[1]
        difference = total - earlier
        if error != begun[2] or difference.__class__ is float:
            kept = difference - total
            lost = (total - (difference - kept)) - (earlier + kept)
            difference += lost + (error - begun[2])
        return count - begun[0], difference

    def value(self, begun: Total, offset: int) -> Value:
        count, total = self.total(begun, offset)
        return total if count else None

    def forget(self, position: int) -> None:
        """Only the totals are kept."""

    def finish(self) -> None:
        last = len(self._counts) - 1
        self._carried = (int(self._counts[last]), _plain(self._sums[last]), float(self._errors[last]))
        self._counts, self._sums, self._errors = [self._carried[0]], [self._carried[1]], [self._carried[2]]
        self._listed = True


class MeanPanes(SumPanes):
    """The mean of a field's values; None if there are none."""

    def value(self, begun: Total, offset: int) -> Value:
        count, total = self.total(begun, offset)
        return total / count if count else None


def _plain(number: Any) -> int | float:
    """A NumPy number as a Python number."""
    return number if isinstance(number, int) else float(number)
