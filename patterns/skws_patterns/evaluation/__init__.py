"""Streaming evaluation of unambiguous PCEA under a sliding window (PCEA paper, Section 5)."""
