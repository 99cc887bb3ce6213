"""The settings that all queries of one stream share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skws.spec.enums import DEFAULT_MAX_SIZE, EvaluatorName
from skws_schema.model import Schema
from skws_windows.window import CountWindow, Unbounded, Window

if TYPE_CHECKING:  # clients of a job load no NumPy
    from skws.data.batch import RecordBatch


@dataclass(frozen=True, slots=True)
class Stream:
    """The schema, the window of queries, and the lateness of records (microseconds of event time).

    ``match_names``: a keyword may also be the name of a relation.
    ``force_unbounded``: accept queries without a window that need unbounded memory.
    ``evaluator``: that of candidate networks; results do not depend on it.
    ``finite``: the stream ends, as a replay does, so queries need no window to bound their memory.
    ``overrides``: the window also holds for patterns with a window of their own.
    ``sample``: the first records, by which the keywords of a query are ordered; results do not depend on it.
    """

    schema: Schema
    window: Window
    lateness: int = 0
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    force_unbounded: bool = False
    evaluator: EvaluatorName = EvaluatorName.MESH
    finite: bool = False
    overrides: bool = False
    sample: RecordBatch | None = field(default=None, compare=False, repr=False)

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)

    @property
    def bounded(self) -> bool:
        """True if keyword queries must need constant memory only, as nothing expires."""
        return isinstance(self.window, Unbounded) and not self.may_grow

    @property
    def may_grow(self) -> bool:
        """True if a query may hold all tuples of the stream."""
        return self.force_unbounded or self.finite
