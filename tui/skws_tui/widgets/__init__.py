"""The widgets of the terminal UI, by part of the screen."""
