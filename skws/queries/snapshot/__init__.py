"""Keyword search over a database as it is now, best results first."""
