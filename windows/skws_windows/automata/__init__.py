"""Automata of window expressions: k-SLA, their closure properties, regular expressions, S-MSO."""
