"""``python -m tests.fuzz LANGUAGE NUMBER``: checks NUMBER inputs in a process with limited memory.

Prints the counts as JSON. With ``--fresh`` each run has different inputs; ``--last`` keeps the last input.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import tests.conftest  # noqa: F401 - the profile of Hypothesis
from tests.fuzz.fuzzing import fuzz
from tests.fuzz.languages import LANGUAGES

MEGABYTES: Final = 1024
"""The memory that a process may use in addition to that after a warm-up."""
WARM: Final = 5
SIZE: Final = Path("/proc/self/statm")


def limit_memory() -> None:
    """Limits the growth of the address space to ``MEGABYTES``, on systems that report its size."""
    if not SIZE.exists():
        return
    pages = int(SIZE.read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("languages", nargs="+", choices=sorted(LANGUAGES))
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--last", type=Path)
    options = parser.parse_args()
    with NamedTemporaryFile() as file:
        last = options.last or Path(file.name)
        for name in options.languages:  # imports what the languages import
            fuzz(LANGUAGES[name], WARM, fresh=False, last=last)
        limit_memory()
        for name in options.languages:
            counts = fuzz(LANGUAGES[name], options.number, fresh=options.fresh, last=last)
            print(json.dumps([name, *(kind_counts._asdict() for kind_counts in counts)]), flush=True)
            gc.collect()


if __name__ == "__main__":
    main()
