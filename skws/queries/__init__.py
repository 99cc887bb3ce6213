"""Queries of all kinds over one stream: the session that answers them, and the kinds."""
