"""Automata over streams of tuples: PCEA."""
