"""Reads the host of the app's job: the latest rows, the meshes of queries, the best results.

The job loads this module with its host, after the app's first picture, since it imports plans and engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from skws.explain.observed import Observed, waiting_at, why_asleep
from skws.jobs.control import Host
from skws.jobs.local import LocalWatch
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.queries.keywords.searching import Searched
from skws.queries.kinds import plan_of
from skws.queries.operator import QueryPlan
from skws.spec.query_spec import KEYWORDS, Query, RankingChoice
from skws_schema.errors import SkwsError
from skws_tui.services.analyzer import QueryAnalyzer
from skws_tui.services.live_rows import LatestRows, LiveRows
from skws_tui.services.request import UiRequest
from skws_tui.services.typed import text_of
from skws_windows.window import ExpressionWindow


class HostView:
    """Reads a host in the thread of its job. ``rows``: its live rows.

    ``latest``: the same rows if they are stored here: the host then has no session with rows in this process.
    """

    def __init__(self, request: UiRequest, host: Host) -> None:
        self._request = request
        self._host = host
        self._analyzer: QueryAnalyzer | None = None
        self.latest: LatestRows | None = None
        self.rows = self._rows()

    def reload_rows(self) -> None:
        """Read the new session of a host that has moved in its stream."""
        self.rows = self._rows()

    def _rows(self) -> LiveRows:
        host, job = self._host, self._request.job
        if isinstance(host, LocalWatch) and job.asks_keywords:
            return LiveRows(lambda: host.worker.live if host.ready else None, host.turns.turn)
        self.latest = LatestRows(replace(job.stream, schema=host.schema))
        return self.latest

    @property
    def position(self) -> int | None:
        """The position of the stream; None if no session in this process can be searched yet."""
        host = self._host
        return host.worker.live.position if isinstance(host, LocalWatch) and host.ready else None

    def ranked_plan(self, name: str) -> QueryPlan:
        """The plan of a query for its best results. Raises SkwsError."""
        query = Query.of_keywords(text_of(name), RankingChoice(explain=True))
        return plan_of(query.named(name, self._request.job.max_size), self._local.worker.live.stream)

    def best(self, plan: QueryPlan, most: int) -> Searched:
        """The ``most`` best results over the live rows. Raises SkwsError."""
        return self._local.worker.live.search(plan, most)

    @property
    def _local(self) -> LocalWatch:
        assert isinstance(self._host, LocalWatch)  # noqa: S101 - it has a position
        return self._host

    def observed(self, name: str, results: Mapping[str, int], static_rows: int) -> Observed | None:
        """The state of a query's mesh; None if the query is invalid since the schema has changed.

        ``results``: their number so far by network. ``static_rows``: the number of rows of static tables.
        """
        host = self._host
        if self._analyzer is None or self._analyzer.schema is not host.schema:
            self._analyzer = QueryAnalyzer(self._request.job, host.schema)
        try:
            plan = self._analyzer.plan(name)
        except SkwsError:
            return None
        metrics = host.metrics()
        # Queries of other kinds have operators of their own, which cannot be observed.
        of_keywords = any(query.name == name and query.kind == KEYWORDS for query in host.standing_queries)
        states = host.operators(name) if of_keywords else {}
        return Observed(
            metrics.tuples + static_rows,
            metrics.live_tuples if self.rows.cut else len(self.rows),
            waiting_at(states) if of_keywords else None,
            results,
            self._missing_keywords(plan),
            {prefix: state.probes for prefix, state in states.items()},
            why_asleep(plan, states),
        )

    def _missing_keywords(self, plan: Plan) -> tuple[str, ...]:
        """Keywords that no live tuple contains; none over an expression, whose live tuples are unknown."""
        if isinstance(plan.window, ExpressionWindow):
            return ()
        live_bitmap = 0
        for _, bitmap in self.rows.node_counts(plan.matcher):
            live_bitmap |= 0 if bitmap == EXCLUDED else bitmap
        return tuple(word for slot, word in enumerate(plan.keywords) if not live_bitmap >> slot & 1)
