"""Standing queries from a file that may change: each with its own ranking, sinks and limit."""
