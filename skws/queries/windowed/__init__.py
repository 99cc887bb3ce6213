"""Keyword queries over the windows of an expression: ``WindowedOperator`` (``kind.py``) answers them."""
