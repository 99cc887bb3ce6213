"""The widgets of the terminal UI, one a module."""
