"""Cutting many results into pieces that are made and told one after the other, in the order of output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import Ints, distinct

MOST: Final = 32_768
"""Results that are made at a time: some ten megabytes of Python objects."""

Keys: TypeAlias = npt.NDArray[np.integer[Any]]


def in_ranges(keys: Sequence[Keys], most: int = MOST) -> Iterator[list[Ints]]:
    """Where the keys of each range stand in each of several arrays; ranges ascend.

    A range has at most ``most`` keys in all, or one key that is there more often.
    """
    bounds = _bounds(np.sort(np.concatenate(keys)), most)
    orders = [np.argsort(each, kind="stable") for each in keys]
    cuts = [
        np.searchsorted(each[order], bounds, side="right").tolist()
        for each, order in zip(keys, orders, strict=True)
    ]
    begins = (0,) * len(keys)
    for ends in zip(*cuts, strict=True):
        yield [order[begin:end] for order, begin, end in zip(orders, begins, ends, strict=True)]
        begins = ends


def _bounds(ordered: Keys, most: int) -> Keys:
    """The last key of each range."""
    every = ordered[most - 1 :: most]
    before = np.searchsorted(ordered, every, side="left") - 1
    return distinct(np.concatenate([every, ordered[before[before >= 0]], ordered[-1:]]))
