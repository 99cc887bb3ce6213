"""Live sources: files that grow, paced replays, standard input, databases; followed from offset to offset."""
