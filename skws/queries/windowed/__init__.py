"""Queries over the windows of expressions, and the windows themselves (``skws windows``)."""
