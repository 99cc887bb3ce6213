"""Records, batches of them, and their values as columns and blocks."""
