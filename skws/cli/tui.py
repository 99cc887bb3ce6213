"""``skws tui``: the terminal UI over a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skws.cli import given as read
from skws.cli import options
from skws.cli.data import engine_of, live_data, with_schema
from skws.cli.terminal import on_terminal
from skws.spec.enums import DEFAULT_MAX_SIZE, EngineChoice, OnError
from skws_schema.errors import UsageError

if TYPE_CHECKING:
    from skws_tui.services.request import UiRequest


def tui(
    context: typer.Context,
    query: options.SourceAndWords = None,
    source: options.Source = None,
    replay: options.Replays = None,
    schema: options.MaybeSchema = None,
    speed: options.Speed = None,
    engine: options.Engine = EngineChoice.AUTO,
    master: options.Master = None,
    window: options.Window = None,
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    allow_unbounded_windows: options.ForceUnboundedWindows = False,
    match_names: options.MatchNames = False,
    without: options.Without = None,
    lateness: options.Lateness = None,
    ahead: options.Ahead = None,
    on_error: options.BadRecords = None,
    dead_letters: options.DeadLetters = None,
    memory: options.Memory = None,
    theme: Annotated[
        str | None,
        typer.Option(
            "--theme",
            metavar="NAME",
            help="Colours: skws-dark, skws-light, ansi-dark (the terminal's own), or a theme of Textual.",
            show_default="the last, or by the terminal",
        ),
    ] = None,
    no_mouse: Annotated[bool, typer.Option("--no-mouse", help="Let the terminal handle the mouse.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do not restore or keep queries, history and theme.")
    ] = False,
) -> None:
    """The terminal UI: the best results in your data, or standing queries over a stream.

    \b
    skws tui postgresql://localhost/shop
    skws tui -r examples/movies/replay.jsonl --speed 1e8 tarantino
    """  # noqa: D301 - the character keeps lines as they are
    given = dict(locals())
    # Help is shown without Textual.
    from skws_tui.entry import open_ui  # noqa: PLC0415
    from skws_tui.services.request import UiRequest, live_job  # noqa: PLC0415

    if theme is not None:
        from skws_tui.themes import check_theme  # noqa: PLC0415 - loads Textual

        check_theme(theme)
    data = live_data(query or [], source, replay, needed=schema is None)  # a schema can be shown alone
    if data.address == "-":
        raise UsageError("the source - is standard input, from which the terminal UI reads keys")
    given |= {"source": data.address, "replay": data.replay}
    if speed == 1 or (speed is not None and speed > 0 and not data.address.startswith("replay:")):
        given["speed"] = None  # other sources have their own speed
    text = read.query_text(data.words, without)
    lasting = with_schema(data, given, quiet=False, default=OnError.SKIP)
    given["engine"] = engine_of(engine, master)
    job = live_job(**read.job_fields(given))
    request = UiRequest(
        job,
        schema_path=given["schema_path"],
        queries=(text,) if text else (),
        theme=theme,
        restore=not fresh,
        lasting=lasting,
    )
    _check_query(request)
    _need_terminal(context.command_path)
    open_ui(request, mouse=not no_mouse)


def _check_query(request: UiRequest) -> None:
    """Report invalid queries before the screen is drawn. Raises QueryError, UsageError."""
    if request.queries:
        from skws_tui.services.analyzer import planned  # noqa: PLC0415 - loads only for given keywords

        for text in request.queries:
            planned(request.job, text, request.job.schema)


def _need_terminal(command: str) -> None:
    """Raises UsageError off a terminal."""
    if not on_terminal():
        raise UsageError(f"{command} needs a terminal; without one, use skws watch, or skws serve for a page")
