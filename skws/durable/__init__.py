"""Files that outlive their process: grown by whole pieces or replaced as a whole, private, with checksums."""
