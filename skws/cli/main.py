"""Runs a command, and turns every error into a message and an exit code. SKWS_DEBUG=1 shows tracebacks."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence

import typer

from skws.cli.terminal import StepsLine, tell
from skws.extras import missing_extra
from skws.memory import DEFAULT, use
from skws.sinks.destination import OutputClosedError
from skws.sinks.text import visible
from skws_schema import memory
from skws_schema.errors import SchemaError, SkwsError
from skws_schema.memory import watch_steps

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
        from skws.cli.app import app  # noqa: PLC0415 - an interrupt while it loads is caught here

        use(DEFAULT, _tell)
        with watch_steps(StepsLine().watch):
            code = app(args=list(arguments), prog_name="skws", standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, OutputClosedError):
        _close_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except Exception as error:  # noqa: BLE001, RUF100 - the last resort: no traceback reaches the user
        _drop_unwritten()
        return _failed(memory.refused() if isinstance(error, MemoryError) else error)
    finally:
        memory.use(None)
    if code == INTERRUPTED:  # some versions of typer make this of the exception
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    print("skws: interrupted", file=sys.stderr)
    return INTERRUPTED


def _failed(error: Exception) -> int:
    """Print an error; returns the exit code."""
    if _debugging():
        raise error
    if isinstance(error, ImportError):
        error = missing_extra(error) or error
    if isinstance(error, SchemaError) and len(error.problems) > 1:
        _tell(f"{len(error.problems)} problems\n{error}")
    elif isinstance(error, SkwsError):
        _tell(str(error))
    elif isinstance(error, _CLICK_ERROR):
        print(_usage_message(error), file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    elif isinstance(error, OSError) and error.errno in _DISK_FULL:
        _tell(
            f"cannot write to {error.filename or 'standard output, or to a temporary file'}: {error.strerror}"
        )
    else:
        _tell(f"unexpected {type(error).__name__}: {error} (SKWS_DEBUG=1 shows where)")
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


def _tell(message: str) -> None:
    tell(f"skws: {message}")


def _stand_in_for_closed_streams() -> None:
    """Open standard streams that the caller closed: else files would get their numbers.

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
