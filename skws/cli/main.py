"""Runs a command, and turns every error into a message and an exit code. SKWS_DEBUG=1 shows tracebacks.

Each command is a module of ``skws.cli`` of the same name, with a function of that name (and ``COMMAND``, a
class, if it parses its own arguments), or with ``app``, a group of commands. The measurements exist
only in a checkout.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from skws import __version__
from skws.cli.options import GroupedHelpCommand
from skws.cli.terminal import StepsLine, tell
from skws.extras import missing_extra
from skws.memory import DEFAULT, expect_long_lived_objects, use
from skws.sinks.base import OutputClosedError
from skws.sinks.text import visible
from skws_schema import budgets
from skws_schema.budgets import watch_steps
from skws_schema.errors import SchemaError, SkwsError, UsageError

COMMANDS: Final = {
    "demo": "A first look: half a century of films in a minute.",
    "search": "All results of a query over replay files, or in a database.",
    "watch": "Results of standing queries over a live source, as they arrive.",
    "serve": "Serve searches and saved searches over HTTP, with a page.",
    "tui": "The terminal UI, over a live source or a replay.",
    "networks": "The candidate networks of a query: the shapes of its results.",
    "explain": "The plan of a query: keywords, window, networks, operators.",
    "windows": "The windows of a window expression over a replay.",
    "schema": "Check, show or infer a schema.",
    "bounds": "Check whether a query needs only constant memory, and run it.",
    "query": "Add, remove or list the queries of a running job.",
    "cache": "Show or clear the indexes on disk.",
    "bench": "Measure skws on this machine (in a checkout of the sources).",
}
BENCH: Final = "bench"
_MEASUREMENTS: Final = Path(__file__).parents[2] / "bench" / "commands.py"
SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``, in that order; their descriptions are not shortened."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Format the list without loading a command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the command; for an unknown name load all, so that typer can suggest one."""
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands and (name == cmd_name or name != BENCH or _MEASUREMENTS.is_file()):
                self.commands[name] = _load_command(name)
        return super().get_command(ctx, cmd_name)


@cache
def _load_command(name: str) -> Any:
    """The command of that name. It is cached: building one takes as long as a short search."""
    if name == BENCH and not _MEASUREMENTS.is_file():
        raise UsageError("skws bench needs a checkout of the sources: the measurements are not installed")
    module = import_module("bench.commands" if name == BENCH else f"skws.cli.{name}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        group.name = name
        return group
    command_app = typer.Typer(add_completion=False, **SETTINGS)
    command_app.command(name, cls=getattr(module, "COMMAND", GroupedHelpCommand))(getattr(module, name))
    return typer.main.get_command(command_app)


_EPILOG = """\b
First steps:
  skws demo
  skws search FOLDER WORDS
  skws tui postgresql://USER@HOST/DATABASE
The schema is inferred from the data and saved; --schema FILE overrides it.
Searches run in process; --engine spark or --master URL runs them on Spark.

\b
Exit codes: 0 success, 1 runtime error, 2 invalid command line or query,
3 invalid schema or file of queries, 4 source not available, 5 bad records,
130 interrupted.
"""

app = typer.Typer(
    name="skws",
    help="Continuous keyword search over relational data streams.",
    epilog=_EPILOG,
    no_args_is_help=True,
    cls=LazyGroup,
    **SETTINGS,
)


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"skws {__version__}")
        raise typer.Exit


def _show_submit_file(is_set: bool) -> None:
    if is_set:
        typer.echo(Path(__file__).parents[1] / "submit.py")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    submit_file: Annotated[
        bool,
        typer.Option(
            "--submit-file",
            help="Print the path of the file to pass to spark-submit.",
            callback=_show_submit_file,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Continuous keyword search over relational data streams."""


@cache
def _parser() -> Any:
    return typer.main.get_command(app)


INTERRUPTED = 130
_OF_PYDANTIC = "Value error, "  # before the reasons of newer versions of typer
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Typer brings its own copy of click in newer versions, and takes click's in older ones.
_USAGE_ERROR = typer.BadParameter.__bases__[0]
_CLICK_ERROR = _USAGE_ERROR.__bases__[0]


def main() -> None:
    """Run the command line of this process, and exit."""
    _stand_in_for_closed_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    if not _debugging():
        # Libraries log what they raise as well; one message is enough.
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        use(DEFAULT, _print_message)
        expect_long_lived_objects()
        with watch_steps(StepsLine().watch):
            code = _parser()(args=list(arguments), prog_name="skws", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, OutputClosedError):
        _close_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _report_interrupt()
    except Exception as error:  # noqa: BLE001, RUF100 - the last resort: no traceback reaches the user
        _drop_unwritten()
        return _report_error(budgets.refused() if isinstance(error, MemoryError) else error)
    finally:
        budgets.use(None)
    if code == INTERRUPTED:  # some versions of typer return this code in place of the exception
        return _report_interrupt()
    return code if isinstance(code, int) else 0


def _report_interrupt() -> int:
    print("skws: interrupted", file=sys.stderr)
    return INTERRUPTED


def _report_error(error: Exception) -> int:
    """Print an error; returns the exit code."""
    if _debugging():
        raise error
    if isinstance(error, ImportError):
        error = missing_extra(error) or error
    if isinstance(error, SchemaError) and len(error.problems) > 1:
        _print_message(f"{len(error.problems)} problems\n{error}")
    elif isinstance(error, SkwsError):
        _print_message(str(error))
    elif isinstance(error, _CLICK_ERROR):
        print(_usage_message(error), file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    elif isinstance(error, OSError) and error.errno in _DISK_FULL:
        _print_message(
            f"cannot write to {error.filename or 'standard output, or to a temporary file'}: {error.strerror}"
        )
    else:
        _print_message(f"unexpected {type(error).__name__}: {error} (SKWS_DEBUG=1 shows where)")
    return error.exit_code if isinstance(error, SkwsError) else 1


def _debugging() -> bool:
    return os.environ.get("SKWS_DEBUG") == "1"


def _usage_message(error: Exception) -> str:
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error)
    message = visible(str(getattr(error, "format_message", lambda: error)())).replace(_OF_PYDANTIC, "")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "skws"
    if "No such option: -" in message and "No such option: --" not in message:
        message += " (to leave out tuples with a word, write -- before the query: -- tarantino -trailer)"
    return f"skws: {message}\nTry '{command} --help'."


def _print_message(message: str) -> None:
    tell(f"skws: {message}")


def _stand_in_for_closed_streams() -> None:
    """Reopen standard streams that the caller closed; files would otherwise get their descriptors.

    Writing to a closed standard output must fail, since results would be lost; notes may be lost.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)
            os.set_inheritable(null, True)
            setattr(sys, name, open(null, mode, closefd=False))  # noqa: SIM115 - until the process ends


def _drop_unwritten() -> None:
    """Flush now: Python would retry on exit, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_stdout()


def _close_stdout() -> None:
    """Redirect standard output to the null device: Python flushes it on exit, and would complain."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as in tests
        return
