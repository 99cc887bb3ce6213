"""Saved searches for vulnerabilities over the packages and changelogs of a Debian system."""
