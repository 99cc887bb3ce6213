"""The state and the work behind the screens, without Textual."""
