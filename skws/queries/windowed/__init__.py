"""Keyword queries over the windows of an expression: ``WindowedOperator`` (``windowed_kind.py``) answers them."""
