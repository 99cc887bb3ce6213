"""What standing queries of one stream share."""

from __future__ import annotations

from dataclasses import dataclass

from schema.model import Schema
from skws.choices import DEFAULT_MAX_SIZE, EvaluatorName
from windows.window import CountWindow, Unbounded, Window


@dataclass(frozen=True, slots=True)
class Stream:
    """Its schema, the window of its queries, and how late its records may come (microseconds of event time).

    ``match_names``: a keyword may also be the name of a relation.
    ``force_unbounded``: without a window take queries that need unbounded memory.
    ``evaluator``: what evaluates the networks of keyword queries; results do not depend on it.
    """

    schema: Schema
    window: Window
    lateness: int = 0
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    force_unbounded: bool = False
    evaluator: EvaluatorName = EvaluatorName.MESH

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)

    @property
    def bounded(self) -> bool:
        """True if its keyword queries have to do with constant memory, as nothing expires."""
        return isinstance(self.window, Unbounded) and not self.force_unbounded
