"""Results: their shape, their identity, and the formats in which they are written."""
