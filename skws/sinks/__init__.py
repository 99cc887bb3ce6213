"""Where results go: an encoder for each format, and files, standard output, databases, web hooks."""
