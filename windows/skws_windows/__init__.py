"""Windows, which determine the lifespans of tuples."""
