"""``skws tui``: the terminal UI over a running job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skws.cli import option_values, options
from skws.cli.data import describe, engine_of, live_data
from skws.cli.terminal import on_terminal
from skws.jobs.clock import replay_rate
from skws.spec.enums import OnError
from skws_schema.errors import UsageError

if TYPE_CHECKING:
    from skws_tui.services.request import UiRequest


@dataclass(frozen=True)
class TuiOptions(options.EngineOptions, options.LiveOptions):
    """The options of ``skws tui``."""

    without: options.Without = None
    memory: options.Memory = None
    theme: Annotated[
        str | None,
        typer.Option(
            "--theme",
            metavar="NAME",
            help="Colours: skws-dark, skws-light, ansi-dark (the terminal's own), or a theme of Textual.",
            show_default="the last one used, or by the terminal",
        ),
    ] = None
    no_mouse: Annotated[bool, typer.Option("--no-mouse", help="Let the terminal handle the mouse.")] = False
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do not restore or keep queries, history and theme.")
    ] = False


@options.expanded
def tui(context: typer.Context, opts: TuiOptions, query: options.SourceAndWords = None) -> None:
    """The terminal UI: the best results in your data, or standing queries over a stream.

    \b
    skws tui postgresql://localhost/shop
    skws tui -r examples/movies/replay.jsonl --speed 1e8 tarantino
    """  # noqa: D301 - the character keeps lines as they are
    # Help must not load Textual.
    from skws_tui.entry import UiRequest, live_job, open_ui  # noqa: PLC0415

    if opts.theme is not None:
        from skws_tui.themes import check_theme  # noqa: PLC0415 - loads Textual

        check_theme(opts.theme)
    data = live_data(query or [], opts, needed=opts.schema is None)  # a schema can be shown alone
    if data.address == "-":
        raise UsageError("the source - is standard input, from which the terminal UI reads keys")
    text = option_values.query_text(data.words, opts.without)
    described_data = describe(data, opts, quiet=False, default=OnError.SKIP)
    job = live_job(**option_values.job_fields(opts, described_data, speed=opts.speed, engine=engine_of(opts)))
    replay_rate(job)  # refuses --speed before the screen is drawn
    request = UiRequest(
        job,
        schema_path=described_data.schema_path,
        queries=(text,) if text else (),
        theme=opts.theme,
        restore=not opts.fresh,
        no_expiry=described_data.no_expiry,
    )
    _check_query(request)
    _need_terminal(context.command_path)
    open_ui(request, mouse=not opts.no_mouse)


def _check_query(request: UiRequest) -> None:
    """Report invalid queries before the screen is drawn. Raises QueryError, UsageError."""
    if request.queries:
        from skws_tui.services.analyzer import plan_of_typed  # noqa: PLC0415 - loads only for given keywords

        for text in request.queries:
            plan_of_typed(request.job, text, request.job.schema)


def _need_terminal(command: str) -> None:
    """Raises UsageError without a terminal."""
    if not on_terminal():
        raise UsageError(f"{command} needs a terminal; without one, use skws watch, or skws serve for a page")
