"""Results written out, one format a file: for programs (jsonl, csv, parquet) and for people (table, tree)."""

from skws.results.writers.base import Writer
from skws.results.writers.destination import OutputClosedError, OutputError, destination
from skws.results.writers.formats import OutputFormat, open_writer

__all__ = [
    "OutputClosedError",
    "OutputError",
    "OutputFormat",
    "Writer",
    "destination",
    "open_writer",
]
