"""The static check: whether windows can pile up without bound."""
