"""What travels through Spark to processes that need not look at it."""

from __future__ import annotations

import pickle
from typing import Generic, TypeVar

Told = TypeVar("Told")


class LazyPickle(Generic[Told]):
    """An object in pickled form: its modules are loaded where it is read, not where it passes through.

    A job starts four Python processes and more that only hand on a request; to load
    what it refers to took each of them two seconds.
    """

    def __init__(self, told: Told) -> None:
        self._told = pickle.dumps(told)

    def read(self) -> Told:
        """The object, made anew."""
        read: Told = pickle.loads(self._told)  # noqa: S301 - pickled by this program, and sent by its Spark
        return read
