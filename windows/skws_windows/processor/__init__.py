"""The stream processor for window expressions (window paper, Section 4)."""
