"""Results: their shape, their identity, and the formats they are written in."""
