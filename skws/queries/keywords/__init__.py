"""Keyword queries: the engines that answer them, and their memory."""
