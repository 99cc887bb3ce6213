"""Keyword search in texts: one analysis, the query language, matching, highlighting, suggestions.

Batch, stream, terminal UI and explain all match keywords with this package. No other package uses Whoosh.
"""
