"""The terminal UI: a Textual app over a live search. ``services`` is everything that needs no terminal."""
