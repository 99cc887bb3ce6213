"""Files as a source: those that grow, and those that arrive whole, one by one or in a directory."""
