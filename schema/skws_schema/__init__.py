"""The stream schema: relations, joins and the join graph.

The lowest layer: no keywords, no windows, no engines.
"""
