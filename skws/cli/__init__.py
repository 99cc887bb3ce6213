"""The command line: one command a file. Nothing is searched here; that is ``skws.search``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit. Interrupts count from here on, while all else loads."""
    # Else NumPy's linear algebra, which is not used, begins with threads that spin for a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from skws.cli.main import main as run_this_process  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        print("skws: interrupted", file=sys.stderr)
        sys.exit(130)
    run_this_process()
