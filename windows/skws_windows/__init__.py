"""Windows and the lifespans they give to tuples."""
