"""The stream schema: relations, joins, the join graph and the expanded schema.

The lowest layer: no keywords, no windows, no engines.
"""
