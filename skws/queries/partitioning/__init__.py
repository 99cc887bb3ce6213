"""How the results of a session are divided among tasks: by root, by key, by query, or by time."""
