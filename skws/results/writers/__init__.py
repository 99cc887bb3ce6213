"""Results written out, one format a file: for programs (jsonl, csv, parquet) and for people (table, tree).

``formats`` opens them, and loads them all.
"""

from skws.results.writers.base import Writer
from skws.results.writers.destination import OutputClosedError, OutputError, destination

__all__ = [
    "OutputClosedError",
    "OutputError",
    "Writer",
    "destination",
]
