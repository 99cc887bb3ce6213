"""The live search: standing queries of any kind over one stream, whoever drives it."""
