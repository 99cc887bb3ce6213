"""Window expressions beside loops written by hand, and beside session windows of other engines."""
