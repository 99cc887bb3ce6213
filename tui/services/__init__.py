"""What the terminal UI does, without Textual: the run behind it, what it remembers, what it can be asked."""
