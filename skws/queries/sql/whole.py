"""Queries whose results show whole tuples: each has an identity that nothing bounds, and it is put out.

So a tuple that is in a result to come has to be remembered, whatever its
attributes are. What is bounded is what no later tuple can be joined with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from skws_bounds.maxref import Failure
from skws_bounds.normal_form import Attr, Domain, Kind, Stream

WHOLE: Final = "(whole tuple)"
"""The identity of a tuple, as an attribute; no attribute of a schema is called so."""


def whole_tuples(streams: Iterable[Stream], *, every: bool = False) -> tuple[Attr, ...]:
    """What is put out, of streams without end; of the others there is finitely much.

    ``every``: of those, too.
    """
    shown = (s for s in streams if every or s.kind is Kind.INFINITE)
    return tuple(Attr(s.alias, WHOLE, Domain.NUMBER) for s in shown)


def told_as_whole(failures: Iterable[Failure]) -> Iterator[Failure]:
    """Failures of whole tuples in words that speak of results."""
    for failure in failures:
        if any(a.name == WHOLE for a in failure.attributes):
            (stream,) = failure.streams
            message = f"results show each {stream} tuple whole, and more of them may come at any time"
            yield replace(failure, message=message, columns=())
        else:
            yield failure
