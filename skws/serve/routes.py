"""The routes, and the page for users.

Work that waits for the job runs in threads; the server's event loop never waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.resources import files
from sys import maxsize
from time import perf_counter
from typing import Any, Final, TypeVar

import orjson
from fastapi import FastAPI, Header, HTTPException, Response
from fastapi import Query as Parameter
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response as StarletteResponse

from skws import __version__
from skws.jobs.prometheus import CONTENT_TYPE, text
from skws.queries.keywords.diagnosis import EmptyResult
from skws.queries.operator import QueryPlan
from skws.ranking.rankings import known_ranking
from skws.results.result import LiveResult
from skws.serve.error_answers import FAULTS, Fault, Json, error_body, handle_errors
from skws.serve.events import EventPosition, SearchEvent
from skws.serve.measures import Measures
from skws.serve.request_guard import (
    MOST_ANSWER,
    MOST_SIZE,
    CompleteBody,
    SavedBodies,
    SavedBody,
    SavedName,
    SearchBody,
    StrictRoute,
)
from skws.serve.saved import SavedSearch
from skws.serve.served_job import ServedJob, with_marks
from skws.serve.streams import EventStream, EventStreams, Subscription, enveloped, in_pieces, message
from skws.spec.query_spec import (
    KEYWORDS,
    TOP,
    WINDOWED,
    Query,
    RankingChoice,
    completed,
    corrected,
    ranking_options,
)
from skws_schema.budgets import TimeLimitError
from skws_schema.errors import NotReadyError, SkwsError, UsageError
from skws_schema.yaml.document import to_yaml
from skws_windows.window import parse_duration

T = TypeVar("T")
_SEARCHES: Final = 64
"""The most searches that run or wait at once."""
_COMPLETIONS: Final = 16
"""The most completions that run or wait at once."""
_COMPLETE_SECONDS: Final = 0.5
_ALIVE_SECONDS: Final = 30.0
"""How long a snapshot of saved searches may take."""
_ANSWER_SECONDS: Final = 60.0
"""How long a request waits for the job to save or remove searches."""
_MOST_LISTED: Final = 10_000


class _AnyText(Convertor[str]):
    """Any name, even one that is then refused: by default, a name with a slash or line end has no route."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyText())


class RequestQueue:
    """Requests that threads answer one after another, with a limit of running and waiting ones."""

    def __init__(self, threads: int, most: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "skws serve")
        self._max_waiting = most
        self._waiting_count = 0

    async def answer(self, call: Callable[[], T]) -> T:
        """Run ``call`` in a thread. Raises HTTPException if too many requests wait."""
        if self._waiting_count >= self._max_waiting:
            raise HTTPException(503, "too many requests are waiting", {"retry-after": "1"})
        self._waiting_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        finally:
            self._waiting_count -= 1


def _within(seconds: float, call: Callable[[float], T]) -> Callable[[], T]:
    """``call`` with the seconds that are left once a thread begins with it.

    Raises TimeLimitError then if none are left.
    """
    end = perf_counter() + seconds

    def call_in_time() -> T:
        left = end - perf_counter()
        if left <= 0:
            raise TimeLimitError("the server is busy: no answer within the time limit")
        return call(left)

    return call_in_time


@dataclass(slots=True)
class AppState:
    """The common state of the routes."""

    job: ServedJob
    streams: EventStreams
    measures: Measures
    searches: RequestQueue = field(default_factory=lambda: RequestQueue(4, _SEARCHES))
    completions: RequestQueue = field(default_factory=lambda: RequestQueue(1, _COMPLETIONS))
    """Runs beside long searches; each is quick, or stopped."""
    marks: RequestQueue = field(default_factory=lambda: RequestQueue(2, maxsize))
    """Finds keywords in the texts of event streams, which takes long in texts of megabytes."""
    others: RequestQueue = field(default_factory=lambda: RequestQueue(4, maxsize))


class _Events(StarletteResponse):
    """Describes event streams, which ``EventStream`` answers."""

    media_type = "text/event-stream"


def make_app(app_state: AppState) -> FastAPI:
    """All routes. Errors are JSON with a message."""
    app = FastAPI(
        title="skws",
        version=__version__,
        summary="Continuous keyword search over relational data streams.",
        docs_url=None,  # FastAPI's pages load scripts from other servers
        redoc_url=None,
        default_response_class=Json,
        responses={
            status: {"model": Fault, "description": description} for status, description in FAULTS.items()
        },
    )
    app.router.route_class = StrictRoute
    handle_errors(app)
    _add_search(app, app_state)
    _add_events(app, app_state)
    _add_saved(app, app_state)
    _add_state(app, app_state)
    add_page(app)
    return app


def _answers_like(example: Mapping[str, Any]) -> dict[int | str, dict[str, Any]]:
    """The description of an answer, made from an example."""
    return {200: {"content": {"application/json": {"schema": _schema_of(example), "example": example}}}}


_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}


def _schema_of(value: Any) -> dict[str, Any]:
    """The JSON Schema of values like an example; null, empty and mixed values have no constraints."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _schema_of(item) for name, item in value.items()}}
    if isinstance(value, list):
        schemas = list(map(_schema_of, value))
        return {
            "type": "array",
            "items": schemas[0] if schemas and all(schema == schemas[0] for schema in schemas) else {},
        }
    return {"type": _NAMES[type(value)]} if value is not None else {}


_TUPLES: Final = [
    {"relation": "customer", "id": "customer:1", "keywords": ["ada"], "row": {"cid": 1, "name": "Ada"}},
    {"relation": "purchase", "id": "purchase:7", "keywords": ["lamp"], "row": {"cid": 1, "item": "lamp"}},
]
_SEARCH_EXAMPLE: Final = {
    "query": "ada lamp",
    "results": [
        {
            "op": "+",
            "id": "671daf882e492b515dd691dd",
            "start": 1772355600.0,
            "end": None,
            "network": "customer{ada} - purchase{lamp}",
            "tuples": _TUPLES,
            "joins": [[1, 0, "purchase.cid = customer.cid"]],
            "rank": 1,
            "score": 2.06,
        }
    ],
    "found": 1,
    "complete": True,
    "max_size": 5,
    "notes": [],
    "meant": "",
    "instead": "",
    "seconds": 0.003,
}
_SAVED_EXAMPLE: Final[dict[str, Any]] = {
    "name": "lamps",
    "owner": "ann",
    "metadata": {},
    "query": "ada lamp",
    "kind": "keywords",
    "max_size": None,
    "options": {},
    "request": {"query": "ada lamp", "owner": "ann"},
}


def _add_search(app: FastAPI, app_state: AppState) -> None:
    @app.post(
        "/search",
        summary="Search the live rows, best results first",
        responses=_answers_like(_SEARCH_EXAMPLE),
    )
    async def search(body: SearchBody) -> Response:
        answer = _within(body.time_limit, partial(search_answer, app_state, body))
        return Json(await app_state.searches.answer(answer))

    @app.post(
        "/complete",
        summary="Complete the last word of a typed query",
        responses=_answers_like({"completions": [{"text": "lamp", "query": "ada lamp", "count": 2}]}),
    )
    async def complete(body: CompleteBody) -> Response:
        counts_of_texts = await app_state.completions.answer(
            _within(_COMPLETE_SECONDS, partial(app_state.job.complete, body.query, body.limit))
        )
        completions = [
            {"text": text, "query": completed(body.query, text), "count": count or None}
            for text, count in counts_of_texts
        ]
        return Json({"completions": completions})


def search_answer(app_state: AppState, body: SearchBody, seconds: float) -> bytes:
    """The answer to a search, which may take some seconds."""
    began = perf_counter()
    half_life = None if body.half_life is None else parse_duration(body.half_life, what="half_life")
    ranking = RankingChoice(known_ranking(body.rank), half_life, body.explain_score)
    query = Query(body.query, body.max_size, options=ranking_options(ranking))
    page, notes = app_state.job.search(query, body.limit, seconds)
    marks = app_state.job.marks(body.query) if body.marks else None
    results: list[orjson.Fragment] = []
    size = 0
    marked_count = 0
    for result in page.results:
        fields = result.to_dict()
        if marks is not None and perf_counter() - began < seconds:  # texts may have megabytes
            fields = with_marks(fields, marks)
            marked_count += 1
        text = orjson.dumps(fields)
        size += len(text)
        if size > MOST_ANSWER:
            notes = (
                *notes,
                f"the answer has the best {len(results):,}: with one more it would exceed"
                f" {MOST_ANSWER:,} bytes",
            )
            break
        results.append(orjson.Fragment(text))
    if marks is not None and marked_count < len(results):
        notes = (*notes, f"only the best {marked_count:,} have marks, as time ran out")
    empty_result = page.why_nothing or EmptyResult(())
    duration = perf_counter() - began
    app_state.measures.count_search(duration)
    return orjson.dumps(
        {
            "query": body.query,
            "results": results,
            "found": page.found,
            "complete": page.complete,
            "max_size": page.size,
            "notes": [*notes, *page.notes, *empty_result.lines()],
            "meant": _corrected_query(body.query, empty_result),
            "instead": empty_result.instead,
            "seconds": round(duration, 6),
        }
    )


def _corrected_query(query: str, empty_result: EmptyResult) -> str:
    """A query with corrections of keywords without a match, and without keywords that resemble no word."""
    corrections = {word: suggestions[0] for word, suggestions in empty_result.missing.items() if suggestions}
    if not corrections or all(empty_result.missing.values()):
        return corrected(query, corrections) if corrections else ""
    return " ".join([empty_result.instead, *corrections.values()]).strip()


def _add_saved(app: FastAPI, app_state: AppState) -> None:
    job = app_state.job

    @app.get(
        "/queries",
        summary="Saved searches",
        responses=_answers_like({"queries": [_SAVED_EXAMPLE], "count": 1}),
    )
    async def listed(
        owner: str | None = None,
        offset: int = Parameter(0, ge=0),
        limit: int = Parameter(_MOST_LISTED, ge=1, le=_MOST_LISTED),
    ) -> Response:
        job.check_ready()
        searches = [
            search for search in list(job.hub.saved.values()) if owner is None or search.owner == owner
        ]
        return Json(
            {
                "queries": [search.described() for search in searches[offset : offset + limit]],
                "count": len(searches),
            }
        )

    @app.put("/queries", summary="Save many searches in one step; the answer names those that are refused")
    async def put_all(body: SavedBodies) -> Response:
        def check_all() -> tuple[list[tuple[SavedSearch, QueryPlan]], dict[str, str]]:
            planned_searches: list[tuple[SavedSearch, QueryPlan]] = []
            refusals: dict[str, str] = {}
            for name, saved_body in body.queries.items():
                try:
                    planned_searches.append(_check_saved(job, name, saved_body))
                except SkwsError as error:
                    refusals[name] = str(error)
            return planned_searches, refusals

        planned_searches, refusals = await app_state.others.answer(check_all)
        answers = await _answers(job.put(planned_searches)) if planned_searches else []
        for (saved_search, _), answer in zip(planned_searches, answers, strict=True):
            if answer.error:
                refusals[saved_search.name] = answer.error
        answer = {"saved": len(body.queries) - len(refusals), "refused": refusals}
        if not refusals or answer["saved"]:
            return Json(answer)
        return Json({"error": f"none could be saved: {next(iter(refusals.values()))}", **answer}, 400)

    @app.get("/queries/{name:any}", summary="A saved search", responses=_answers_like(_SAVED_EXAMPLE))
    async def shown(name: str) -> Response:
        if not name:
            return RedirectResponse("/queries")
        return Json(_saved_search(job, name).described())

    @app.put(
        "/queries/{name:any}",
        summary="Save a search under a name, or replace it",
        responses={201: {"description": "It is new."}, **_answers_like({**_SAVED_EXAMPLE, "notes": []})},
    )
    async def put(name: SavedName, body: SavedBody) -> Response:
        job.check_ready()
        new = name not in job.hub.saved
        saved_search, plan = await app_state.others.answer(partial(_check_saved, job, name, body))
        (answer,) = await _answers(job.put([(saved_search, plan)]))
        if answer.error:
            raise HTTPException(409 if job.ready else 503, answer.error)
        return Json({**saved_search.described(), "notes": answer.notes}, 201 if new else 200)

    @app.delete("/queries/{name:any}", summary="Remove a saved search", status_code=204)
    async def delete(name: str) -> Response:
        _saved_search(job, name)
        (answer,) = await _answers([job.remove(name)])
        if answer.error:
            raise HTTPException(404, answer.error)
        return Response(status_code=204)


def _check_saved(job: ServedJob, name: str, body: SavedBody) -> tuple[SavedSearch, QueryPlan]:
    saved_search = SavedSearch.from_request(name, body.request_fields())
    size, most = saved_search.query.max_size, max(MOST_SIZE, job.max_size)
    if size is not None and size > most:
        raise UsageError(f"max_size: expected at most {most:,}, got {size:,}")
    return saved_search, job.plan(saved_search)


def _saved_search(job: ServedJob, name: str) -> SavedSearch:
    job.check_ready()
    saved_search = job.hub.saved.get(name)
    if saved_search is None:
        raise HTTPException(404, f"no saved search {name!r}")
    return saved_search


async def _answers(futures: Sequence[Any]) -> list[Any]:
    """The answers of the job. Raises TimeLimitError if it is too busy."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return [await asyncio.wrap_future(future) for future in futures]
    except TimeoutError:
        raise TimeLimitError("the job is busy; it may still process the request") from None


def _add_events(app: FastAPI, app_state: AppState) -> None:
    @app.get(
        "/queries/{name}/events",
        summary="The results of a saved search, as server-sent events",
        response_class=_Events,
    )
    async def events(
        name: str, marks: bool = False, last_event_id: str | None = Header(None), last: str | None = None
    ) -> StarletteResponse:
        return _stream(app_state, Subscription(name), last_event_id or last, marks=marks)

    @app.get(
        "/events",
        summary="The results of all saved searches, or of those of one owner",
        response_class=_Events,
    )
    async def all_events(
        owner: str | None = None,
        marks: bool = False,
        last_event_id: str | None = Header(None),
        last: str | None = None,
    ) -> StarletteResponse:
        return _stream(app_state, Subscription(None, owner), last_event_id or last, marks=marks)


def _stream(
    app_state: AppState, subscription: Subscription, last_id: str | None, *, marks: bool
) -> StarletteResponse:
    job, streams = app_state.job, app_state.streams
    job.check_ready()
    if streams.closing:
        raise NotReadyError("the job ends")
    if streams.full:
        raise HTTPException(503, f"there are {len(streams):,} event streams already", {"retry-after": "5"})
    show = _ShownEvents(job, marks=marks)
    run = app_state.marks.answer if marks else None
    start = job.hub.log.last
    if subscription.name is not None:
        _saved_search(job, subscription.name)

    def searches() -> list[SavedSearch]:
        saved = job.hub.saved
        if subscription.name is not None:
            saved_search = saved.get(subscription.name)
            return [] if saved_search is None else [saved_search]
        return [one for one in list(saved.values()) if subscription.owner in {None, one.owner}]

    async def begin() -> AsyncIterator[bytes]:
        log = job.hub.log
        position = None if last_id is None else EventPosition.of(last_id, job.hub.run)
        if position is not None and log.floor <= position <= log.last:
            subscription.at = position
            yield b": resumed\n\n"
            return
        try:
            subscription.at, alive = await app_state.others.answer(
                partial(job.alive, searches, _ALIVE_SECONDS)
            )
        except SkwsError as error:
            yield message("failed", error_body(str(error)))
            subscription.at = log.last
            return
        if subscription.name is not None and not alive:
            subscription.at = start  # the search was removed since then, and that event follows
            return
        reason = "" if last_id is None else _not_resumed(position, log.last)
        names = [saved_search.name for saved_search, _ in alive]
        yield message("snapshot", orjson.dumps({"names": names, "reason": reason}))
        for saved_search, results in alive:
            async for _, piece in in_pieces(results, partial(show.result, saved_search), run):
                yield piece
        yield message("ready", b"{}", subscription.at.text(job.hub.run))

    return EventStream(job.hub, streams, subscription, begin, show, run)


def _not_resumed(position: EventPosition | None, last: EventPosition) -> str:
    if position is None or position > last:
        return "this run has no event with this id"
    return "the events after this id are no longer stored"


class _ShownEvents:
    """The data of events for a client. ``marks``: True to add the positions of keywords."""

    def __init__(self, job: ServedJob, *, marks: bool) -> None:
        self._job = job
        self._marks = marks
        self._marks_of = lru_cache(64)(job.marks)

    def __call__(self, event: SearchEvent) -> bytes:
        if event.kind not in {"result", "digest"}:
            return event.data
        saved_search = self._job.hub.saved_at(event.name, event.at)
        data = self._with_marks(saved_search, event.data) if event.kind == "result" else event.data
        return enveloped(_envelope(event.name, saved_search), event.kind, data)

    def result(self, saved_search: SavedSearch, result: LiveResult) -> bytes:
        """The event of a result in a snapshot."""
        data = self._with_marks(saved_search, result.to_json())
        return message("result", enveloped(saved_search.envelope(), "result", data))

    def _with_marks(self, saved_search: SavedSearch | None, data: bytes) -> bytes:
        if (
            not self._marks
            or saved_search is None
            or saved_search.query.kind not in (KEYWORDS, TOP, WINDOWED)
        ):
            return data
        try:
            return orjson.dumps(with_marks(orjson.loads(data), self._marks_of(saved_search.query.text)))
        except SkwsError:  # the schema has changed
            return data


def _envelope(name: str, saved_search: SavedSearch | None) -> dict[str, Any]:
    return {"name": name} if saved_search is None else saved_search.envelope()


def _add_state(app: FastAPI, app_state: AppState) -> None:
    job = app_state.job

    @app.get("/schema", summary="Relations, their attributes, and joins")
    async def schema() -> Response:
        schema = job.schema
        removed_relations, removed_joins = schema.evolution.removed_relations, schema.evolution.removed_joins
        relations = [
            {
                "name": relation.name,
                "attributes": {attribute.name: str(attribute.type) for attribute in relation.attributes},
                "key": list(relation.key),
                "search": list(relation.search),
                "table": relation.table,
            }
            for number, relation in enumerate(schema.relations)
            if number not in removed_relations
        ]
        joins = [
            {
                "name": join.name,
                "left": join.left,
                "right": join.right,
                "on": [list(pair) for pair in join.on],
            }
            for number, join in enumerate(schema.joins)
            if number not in removed_joins
        ]
        return Json(
            {
                "name": schema.name,
                "window": job.window,
                "source": job.source,
                "relations": relations,
                "joins": joins,
                "yaml": to_yaml(schema),
            }
        )

    @app.get("/healthz", summary="Whether the job runs")
    async def health() -> Response:
        state = "running" if job.ready and not app_state.streams.closing else "starting or ending"
        return Json(
            {"status": "ok" if job.ready else "unavailable", "state": state}, 200 if job.ready else 503
        )

    @app.get(
        "/metrics",
        summary="Metrics of the job and of the server, for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        of_job = text(await app_state.others.answer(job.metrics))
        return Response(of_job + app_state.measures.text(), media_type=CONTENT_TYPE)


_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def add_page(app: FastAPI) -> None:
    """The page at ``/``, the page of the API at ``/docs``, and their files."""
    contents = {
        entry.name: entry.read_bytes()
        for entry in files("skws.serve").joinpath("page").iterdir()
        if entry.name.rpartition(".")[2] in _KINDS
    }

    def answer(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, f"no file {name!r}")
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(contents[name], media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return answer("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return answer("api.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return answer(name)
