"""Keyword queries over windows of an expression, answered by ``WindowedOperator`` (``windowed_kind.py``)."""
