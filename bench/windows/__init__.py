"""Window expressions compared with loops written by hand, and with session windows of other engines."""
