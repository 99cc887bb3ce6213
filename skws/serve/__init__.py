"""A running job behind HTTP: searches, saved searches, their events, a page for users."""
