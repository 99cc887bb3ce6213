"""Divides the results of a session among tasks: by root, by key, by query, or by time."""
