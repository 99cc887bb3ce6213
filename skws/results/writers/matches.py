"""Results that are no networks, for people: the tuples of each on one line, with what they stand for."""

from __future__ import annotations

from math import floor
from typing import Final

from skws.results.model import LiveResult, TupleShown
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination
from skws.results.writers.text import instant, value_text, visible

_TIME: Final = 20


class MatchWriter(Writer):
    """Operation, time and match; a tuple's labels, where it has some, stand before it.

    Equal results may come as one, with how many they are.
    """

    def __init__(self, opened: Destination) -> None:
        self._opened = opened
        self._headed = False

    def write(self, result: LiveResult) -> None:
        """Raises OutputError, OutputClosedError."""
        if not self._headed:
            self._headed = True
            self._opened.write(f"op  {'time':<{_TIME}}  match\n".encode())
        seconds = result.end if result.op == "-" else result.start
        time = "always" if seconds is None else instant(floor(seconds))
        shown = " ; ".join(map(_text, result.tuples))
        count = getattr(result, "count", 1)
        shown += f"  {count:,} times" if count > 1 else ""
        self._opened.write(f"{result.op:<2}  {time:<{_TIME}}  {shown}\n".encode())


def _text(shown: TupleShown) -> str:
    values = ", ".join("" if value is None else visible(value_text(value)) for value in shown.row.values())
    labels, relation = visible("+".join(getattr(shown, "labels", ()))), visible(shown.relation)
    return f"{labels}={relation}({values})" if labels else f"{relation}({values})"
