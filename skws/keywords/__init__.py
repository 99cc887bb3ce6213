"""Keyword search in texts: one analysis, the query language, matching, highlighting, suggestions.

Batch, stream, terminal UI and explain all match keywords with this package, and nothing else uses Whoosh.
"""
