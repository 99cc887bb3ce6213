"""Hierarchical conjunctive queries: their definition, their q-trees, and their automata."""
