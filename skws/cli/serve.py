"""``skws serve``: a job behind HTTP, for other programs and for people."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from skws.cli import option_values, options
from skws.cli.data import describe, live_data
from skws.cli.watch import with_json_errors
from skws.durable import PRIVATE, checkpoint_folder, replace_file
from skws.hosts import LOOPBACK, is_loopback
from skws.jobs.log import Log, LogFormat
from skws.serve.server_options import Access, StreamLimits
from skws.spec.enums import EngineChoice, EngineName, ToldUpdates
from skws.spec.job import Job
from skws_schema.budgets import size_text
from skws_schema.errors import ConfigurationError, UsageError, shown

TOKEN: Final = "SKWS_SERVE_TOKEN"  # noqa: S105 - the name of the variable
_TOKEN_FILE: Final = "token"  # noqa: S105 - in the checkpoint
_LEAST_TOKEN: Final = 16
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True)
class ServeOptions(options.DurableOptions, options.LiveOptions):
    """The options of ``skws serve``."""

    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0: any free one."),
    ] = 8080
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Host name of the server, besides localhost; may be repeated.",
            show_default=False,
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with the token that requests must carry, created if missing; or set {TOKEN}.",
            readable=False,
        ),
    ] = None
    engine: options.Engine = EngineChoice.AUTO
    memory: options.Memory = None
    updates: options.Updates = ToldUpdates.TELL
    keep: Annotated[
        int, typer.Option("--keep", metavar="MB", min=1, help="Megabytes of events to keep for subscribers.")
    ] = 64
    most_queries: Annotated[
        int, typer.Option("--most-queries", metavar="N", min=1, help="Maximum number of saved searches.")
    ] = 100_000
    most_streams: Annotated[
        int, typer.Option("--most-streams", metavar="N", min=1, help="Maximum number of open event streams.")
    ] = 5_000
    log_format: options.LoggedAs = LogFormat.TEXT
    quiet: options.Quiet = False


@options.expanded
def serve(
    opts: ServeOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help=f"The data: {options.SOURCES}, kafka://..., replay:PATH."),
    ] = None,
) -> None:
    """Serve searches, saved searches and their results over HTTP, until interrupted.

    skws serve postgresql://localhost/shop
    """
    data = live_data(words or [], opts)
    if data.words:
        raise UsageError(f"expected one SOURCE to serve, found another: {shown(data.words[0])}")
    if data.address == "-":
        raise UsageError(
            "the source - is standard input, which cannot be served: expected files, a database or a topic"
        )
    if opts.engine is EngineChoice.SPARK:
        raise UsageError("--engine spark: searches over HTTP are answered in process; expected auto or local")
    described_data = describe(data, opts, quiet=opts.quiet)
    fields = option_values.job_fields(opts, described_data, engine=EngineName.LOCAL)
    job = Job({}, sinks=tuple(opts.sink or ()), **fields)
    notes = Log(opts.log_format, opts.quiet)
    with with_json_errors(notes):
        _serve(job, notes, opts)


def _serve(job: Job, notes: Log, opts: ServeOptions) -> None:
    from skws.serve.server import listening_socket, serving  # noqa: PLC0415 - FastAPI and uvicorn are an extra

    access = Access(
        _token(opts.host, opts.token_file, job.checkpoint, notes),
        _names(opts.host, opts.name or []),
        addresses=not is_loopback(opts.host),
    )
    listener = listening_socket(opts.host, opts.port)
    limits = StreamLimits(most=opts.most_streams)
    keep = opts.keep * _MEGABYTE
    with serving(
        job, access, listener, notes, keep=keep, most_saved=opts.most_queries, limits=limits
    ) as served_job:
        address, port = listener.getsockname()[:2]
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}/"
        notes.info("serving", f"serving at {url} (events: the latest {size_text(keep)})", url=url)
        served_job.run()


def _token(host: str, file: Path | None, checkpoint: Path | None, notes: Log) -> str | None:
    """The token that requests must carry; None if they need none. Raises UsageError, StateError."""
    of_variable = os.environ.get(TOKEN)
    if of_variable is not None and file is not None:
        raise UsageError(f"{TOKEN} and --token-file both set the token: give only one of them")
    if of_variable is not None:
        return _checked_token(of_variable.strip(), TOKEN)
    if file is None and is_loopback(host):
        return None
    if file is None and checkpoint is None:
        raise UsageError(
            f"--host {host}: other machines can connect, so requests must carry a token: give"
            f" --token-file FILE (created if missing) or set {TOKEN}"
        )
    if file is None and checkpoint is not None:
        checkpoint_folder(checkpoint)
        file = checkpoint / _TOKEN_FILE
    assert file is not None  # noqa: S101 - one of the two
    return _token_of(file, notes)


def _token_of(file: Path, notes: Log) -> str:
    try:
        return _checked_token(file.read_text(encoding="utf-8").strip(), str(file))
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)
        replace_file(file, token.encode() + b"\n", mode=PRIVATE)
        notes.info("token", f"requests must carry the token in {file}", file=str(file))
        return token
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token-file {file}: cannot read: {error}") from None


def _checked_token(token: str, label: str) -> str:
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"{label}: not a token: expected {_LEAST_TOKEN} or more printable ASCII characters without blanks"
        )
    return token


def _names(host: str, names: list[str]) -> frozenset[str]:
    return LOOPBACK | {host.lower()} | {name.lower() for name in names}
