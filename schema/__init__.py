"""The stream schema: relations, joins, the join graph and the expanded schema.

The lowest layer: it knows nothing of keywords, windows or engines.
"""
