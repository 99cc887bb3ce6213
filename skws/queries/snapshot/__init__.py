"""Search in what a database, folder or file has now, best results first: ``search.py``."""
