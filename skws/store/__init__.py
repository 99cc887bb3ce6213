"""The live tuples of a stream."""
