"""Keyword queries over the windows of an expression: ``WindowedQueries`` (``kind.py``) answers them."""
