"""Measurements of queries in constant memory: ``python -m bench.bounded``."""
