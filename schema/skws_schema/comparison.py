"""Comparisons of two values, as patterns, window expressions and bounded queries write them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final


class Op(StrEnum):
    """An operator between two values."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    GREATER = ">"
    DIFFERENT = "!="

    @property
    def turned(self) -> Op:
        """The same comparison with its sides exchanged."""
        return _TURNED.get(self, self)


_TURNED: Final = {
    Op.LESS: Op.GREATER,
    Op.GREATER: Op.LESS,
    Op.AT_MOST: Op.AT_LEAST,
    Op.AT_LEAST: Op.AT_MOST,
}
COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    Op.LESS: operator.lt,
    Op.AT_MOST: operator.le,
    Op.EQUAL: operator.eq,
    Op.AT_LEAST: operator.ge,
    Op.GREATER: operator.gt,
    Op.DIFFERENT: operator.ne,
}
"""Whether a comparison holds between two values; element by element between arrays."""
