"""A search of replay files by several processes of one machine. Docs: ``docs/architecture/live.md``."""
