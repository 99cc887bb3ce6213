"""Files as a source: files that grow or arrive whole, alone or in a directory."""
