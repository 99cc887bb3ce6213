"""What travels through Spark to processes that need not look at it."""

from __future__ import annotations

import pickle
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyPickle(Generic[T]):
    """An object in pickled form: its modules are loaded where it is read, not where it passes through.

    A job starts four Python processes and more that only hand on a request; to load
    what it refers to took each of them two seconds.
    """

    def __init__(self, given: T) -> None:
        self._pickled = pickle.dumps(given)

    def read(self) -> T:
        """The object, made anew."""
        read: T = pickle.loads(self._pickled)  # noqa: S301 - pickled by this program, and sent by its Spark
        return read
