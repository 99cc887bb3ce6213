"""The terminal UI: a Textual app over a live search. ``services`` hold all that needs no terminal."""
