"""A new vulnerability meets the inventory: saved searches over the packages and changelogs of a Debian."""
