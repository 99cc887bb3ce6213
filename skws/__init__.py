"""Keyword queries, records and replay files, engines, results and the command line."""

__version__ = "0.1.0"
