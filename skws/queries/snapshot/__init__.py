"""Keyword search over a database as it is now: an index of it, and the best results first."""
