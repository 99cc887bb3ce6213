"""Automata over streams of tuples: CCEA, PCEA and, without data, PFA."""
