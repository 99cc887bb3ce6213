"""The command line: one command a file. Options build a job; hosts run it."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit. Interrupts are handled while the rest loads."""
    # Else NumPy's linear algebra, which is not used, starts threads that spin for a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from skws.cli.main import main as run_this_process  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        print("skws: interrupted", file=sys.stderr)
        sys.exit(130)
    run_this_process()
