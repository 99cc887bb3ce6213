"""The widgets of the terminal UI, by the part of the screen."""
