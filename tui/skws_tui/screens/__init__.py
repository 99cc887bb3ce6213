"""The screens of the terminal UI, one a module."""
