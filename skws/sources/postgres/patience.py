"""Running a statement that may wait for others: it can be interrupted, and it waits only so long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg2
from psycopg2.extensions import connection

_LOOK_SECONDS: Final = 0.2


def patiently(connected: connection, statement: Callable[[], None], seconds: float) -> bool:
    """Runs ``statement`` on a connection; False if it was cancelled for lasting longer than ``seconds``.

    In a thread of its own: libpq lets no signal through while it waits.
    Raises what the statement raises.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            statement()
        except BaseException as error:  # raised again in the thread that asked
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    late = False
    try:
        left = seconds
        while thread.is_alive() and left > 0:
            thread.join(min(_LOOK_SECONDS, left))
            left -= _LOOK_SECONDS
        late = thread.is_alive()
    finally:
        if thread.is_alive():
            with suppress(psycopg2.Error):
                connected.cancel()
            thread.join()
    if raised and not late:
        raise raised[0]
    return not (late and raised)
