"""``skws tui``: the terminal UI over a running job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skws.cli import options
from skws.cli.terminal import on_terminal
from skws.spec.enums import DEFAULT_MAX_SIZE, EngineName, OnError
from skws_schema.errors import UsageError

if TYPE_CHECKING:
    from skws_tui.services.request import UiRequest


def tui(
    context: typer.Context,
    schema: options.SchemaOfSource = None,
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help="Keywords to begin with; several arguments are one query.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            "-S",
            metavar="SOURCE",
            help="File or directory that grows, replay:PATH?speed=N, postgresql://... or "
            "kafka://HOST:PORT/TOPIC",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", "-r", metavar="PATH", help="Short for --source replay:PATH.", readable=False
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="N", help="For a replay: a factor on its speed.")
    ] = 1.0,
    engine: options.Engine = EngineName.LOCAL,
    master: options.Master = None,
    window: options.WindowText = None,
    max_size: options.MaxSize = DEFAULT_MAX_SIZE,
    force_unbounded: options.ForceUnbounded = False,
    allow_unbounded_windows: options.AllowUnboundedWindows = False,
    match_names: options.MatchNames = False,
    without: options.Without = None,
    lateness: Annotated[
        str, typer.Option("--lateness", metavar="D", help="Accept records that are this late ('30 s').")
    ] = "0 s",
    on_error: options.BadRecords = OnError.SKIP,
    dead_letters: options.LateLetters = None,
    memory: options.Memory = None,
    theme: Annotated[
        str | None,
        typer.Option("--theme", metavar="NAME", help="Colours.", show_default="the last, or the terminal's"),
    ] = None,
    no_mouse: Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Neither restore nor keep queries, history and theme.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the app to browsers, at an address with a secret token.")
    ] = False,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where --serve listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Of --serve.")] = 8000,
    open_to_others: Annotated[
        bool, typer.Option("--open-to-others", help="Let --serve listen beyond this machine.")
    ] = False,
    export_to: Annotated[
        Path | None,
        typer.Option(
            "--export-to",
            metavar="DIR",
            help="With --serve: the folder that Ctrl+O writes to. Without it, a browser exports nothing.",
        ),
    ] = None,
) -> None:
    """The terminal UI: standing queries over a live source or a replay.

    \b
    skws tui -s examples/movies/schema.yaml \\
        -r examples/movies/replay.jsonl --speed 1e8
    """  # noqa: D301 - the character keeps lines as they are
    given = dict(locals())
    if source is not None and replay is not None:
        raise UsageError("--source and --replay mean the same: give only one of them")
    if source == "-":
        raise UsageError(
            "--source -: the terminal UI reads keys from standard input; expected another source"
        )
    from skws_tui.entry import check_host, is_served, open_ui, serve_ui  # noqa: PLC0415 - help is shown without Textual
    from skws_tui.services.request import UiRequest, live_job  # noqa: PLC0415

    text = options.query_text(query or [], without)
    del given["replay"]  # Job has it for searches
    given["source"] = address = f"replay:{replay}" if replay is not None else source or ""
    if speed == 1 or (speed > 0 and not address.startswith("replay:")):
        given["speed"] = None  # other sources have their own speed
    if schema is None:
        if not address:
            raise UsageError("Missing option '--schema', or --source or --replay to infer one from")
        given["schema"] = schema = options.drafted_schema([address])
        given["force_unbounded"] = True  # its rows live until they are deleted, as the draft says
    job = live_job(**options.job_fields(given))
    request = UiRequest(
        job,
        schema_path=schema,
        queries=(text,) if text else (),
        theme=theme,
        restore=not fresh,
        served=is_served(),
        exports=_export_folder(export_to, serve=serve),
    )
    _check_query(request)
    if serve and not request.served:
        check_host(host, open_to_others=open_to_others)
        serve_ui(sys.argv[1:], host, port)
        return
    _need_terminal(context.command_path)
    open_ui(request, mouse=not no_mouse)


def _check_query(request: UiRequest) -> None:
    """Report invalid queries before the screen is drawn. Raises QueryError, UsageError."""
    if request.queries:
        from skws_tui.services.analyzer import check_query  # noqa: PLC0415 - loads only for given keywords

        for text in request.queries:
            check_query(request.job, text, request.job.schema)


def _need_terminal(command: str) -> None:
    """Raises UsageError off a terminal."""
    if not (on_terminal() or "TEXTUAL_DRIVER" in os.environ):
        raise UsageError(f"{command} needs a terminal; off one, use skws watch, or {command} --serve")


def _export_folder(folder: Path | None, *, serve: bool) -> Path | None:
    """Raises UsageError if it is no folder, or without --serve."""
    if folder is None:
        return None
    if not serve:
        raise UsageError("--export-to is for --serve: in a terminal, Ctrl+O asks for the file")
    if not folder.is_dir():
        raise UsageError(f"--export-to {folder}: expected a folder that is there")
    return folder.resolve()
