"""The live tuples of a stream: what is true now."""
