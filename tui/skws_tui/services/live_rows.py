"""The live rows of the job's session, or the latest rows if it has no session in this process.

A job on Spark has its rows in executors, and a job that only has patterns, or windows of an
expression, stores no rows. For these jobs, a session without queries stores the latest rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skws.data.batch import RecordBatch
from skws.jobs.clock import Turns
from skws.keywords.match import Matcher
from skws.queries.operator import QueryPlan
from skws.queries.session import Session
from skws.spec.enums import EvaluatorName
from skws.spec.query_spec import Stream
from skws_schema.model import Relation, Row
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow

if TYPE_CHECKING:
    from skws.queries.keywords.present_rows import PresentRows

KEPT_ROWS: Final = 50_000
_LEARNED: Final = 20_000
"""The number of rows whose words are learned between two turns of the job."""
_COMPLETIONS: Final = 8
_SECONDS: Final = 5.0
"""Seconds to wait for a turn."""

Turn = Callable[[float], AbstractContextManager[None]]


class LiveRows:
    """Live rows, which any thread may read. All reads raise TimeLimitError while the job is busy.

    ``session``: returns the session with the rows, None before it is ready. ``turn``: the session does not
    change inside it. ``since``: the event time before which rows have expired. ``cut``: some live rows may be
    missing.
    """

    def __init__(
        self,
        session: Callable[[], Session | None],
        turn: Turn,
        since: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._session = session
        self._turn = turn
        self._since = since

    @property
    def cut(self) -> bool:
        return False

    def __len__(self) -> int:
        with self._present_rows() as rows:
            return 0 if rows is None else len(rows)

    def counts(self) -> Mapping[str, int]:
        """The number of rows of each relation that has any."""
        with self._present_rows() as rows:
            return {} if rows is None else self._by_relation_name(rows.counts())

    def node_counts(self, matcher: Matcher) -> Mapping[tuple[int, int], int]:
        """The number of live tuples by relation and keyword bitmap: the nodes of the expanded schema."""
        self._learn()
        with self._present_rows() as rows:
            return {} if rows is None else rows.keyword_counts(matcher)

    def why_nothing(self, plan: QueryPlan) -> list[str]:
        """The reasons why live tuples give a keyword query no results."""
        with self._turn(_SECONDS):
            session = self._session()
            diagnosis = None if session is None else session.why_live_rows_give_nothing(plan)
            return [] if diagnosis is None else list(diagnosis.lines())

    def latest(self, relation: str, most: int = KEPT_ROWS) -> Sequence[Row]:
        """The latest rows of a relation, in order of arrival."""
        return self.relation_with_latest(relation, most)[1]

    def relation_with_latest(self, name: str, most: int = KEPT_ROWS) -> tuple[Relation | None, Sequence[Row]]:
        """A relation as the session has it, which may be ahead of the view; and ``latest`` of it."""
        with self._present_rows() as rows:
            session = self._session()
            if rows is None or session is None or name not in session.stream.schema.index:
                return None, []
            number = session.stream.schema.index[name]
            return session.stream.schema.relations[number], rows.latest(number, most)

    def words(self) -> Mapping[str, int]:
        """Searchable words with the number of texts that contain them."""
        self._learn()
        with self._present_rows() as rows:
            return {} if rows is None else rows.vocabulary()

    def completions(self, start: str) -> list[tuple[str, int]]:
        """Words that begin with ``start`` (folded), the most frequent first, with their numbers of rows."""
        self._learn()
        with self._present_rows() as rows:
            return [] if rows is None else rows.completions(start, _COMPLETIONS)

    def learn(self, most: int) -> bool:
        """Let the session learn the words of at most ``most`` rows; True if there are more."""
        with self._turn(_SECONDS):
            session = self._session()
            return session is not None and session.prepare_searches(most)

    def _learn(self) -> None:
        """Learn all words, a few rows at a time, since the job waits meanwhile."""
        while self.learn(_LEARNED):
            pass

    def _by_relation_name(self, counts: Mapping[int, int]) -> Mapping[str, int]:
        session = self._session()
        relations = () if session is None else session.stream.schema.relations
        return {relations[number].name: count for number, count in counts.items()}

    @contextmanager
    def _present_rows(self) -> Iterator[PresentRows | None]:
        with self._turn(_SECONDS):
            session = self._session()
            yield None if session is None else session.present(self._since())


class LatestRows(LiveRows):
    """The latest rows of a stream, at most ``capacity``, in a session of their own. One thread adds."""

    def __init__(self, stream: Stream, capacity: int = KEPT_ROWS) -> None:
        self._turns = Turns()
        self._window = window = stream.window
        kept_window = CountWindow(capacity)
        if isinstance(window, CountWindow) and window.size < capacity:
            kept_window = window
        self._latest_session = Session(
            replace(
                stream,
                window=kept_window,
                lateness=0,
                mesh=None,
                evaluator=EvaluatorName.AUTO,
                finite=True,
                sample=None,
            )
        )
        self._capacity = capacity
        self._now: int | None = None
        super().__init__(lambda: self._latest_session, self._turns.turn, self._horizon)

    @property
    def cut(self) -> bool:
        if isinstance(self._window, ExpressionWindow):  # its length is unknown
            return True
        return self._latest_session.position > self._capacity and not isinstance(self._window, CountWindow)

    def load_tables(self, batches: Sequence[RecordBatch]) -> None:
        """Add the rows of static tables."""
        with self._turns.turn():
            self._latest_session.load_tables(batches)

    def add(self, batch: RecordBatch, now: int) -> None:
        """Add stream records in order of arrival; ``now``: the event time after them, in microseconds."""
        with self._turns.turn():
            self._now = now
            for _ in self._latest_session.process(batch):
                pass

    def change_schema(self, text: str) -> None:
        """Continue with the schema of a YAML text; rows of removed relations are dropped."""
        with self._turns.turn():
            self._latest_session.change_schema(text)

    def _horizon(self) -> int | None:
        """The event time before which tuples have expired."""
        if self._now is None or not isinstance(self._window, TimeWindow):
            return None
        return self._now - self._window.length + 1
