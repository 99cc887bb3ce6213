"""Scores of results, the best ones at every instant, groups of near-duplicates."""
