"""A program that is given results: started for each post, with JSON on its standard input."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from typing import Final

from schema.errors import UsageError
from skws.watch.sinks.http import Outcome

SECONDS: Final = 60.0
_SHOWN: Final = 200  # characters of what it says


class Program:
    """A command line, split as a shell does; no shell runs it. Raises UsageError for what is none.

    Exit code 0 takes a post; anything else, or more than a minute, does not.
    The environment has ``SKWS_KEY``, the same each time a post is tried.
    """

    def __init__(self, text: str) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"command {text!r}: {error}") from None
        if not self._words:
            raise UsageError("command: expected a program and its arguments")
        self.shown = f"command:{self._words[0]}"

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt."""
        environment = {**os.environ, "SKWS_KEY": key}
        try:
            # A session of its own: what it has started ends with it, and Ctrl-C is not for it.
            process = subprocess.Popen(  # noqa: S603 - the user's own command; results are its input alone
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(taken=False, reason=error.strerror or str(error), final=True)
        with process:
            try:
                _, told = process.communicate(body, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return Outcome(taken=False, reason=f"did not end within {SECONDS:g} s")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if not process.returncode:
            return Outcome(taken=True)
        said = told.decode(errors="replace").strip()[-_SHOWN:]
        return Outcome(taken=False, reason=f"ended with {process.returncode}" + (f": {said}" if said else ""))

    def close(self) -> None:
        """Nothing is kept open."""
