"""A schema guessed from samples of its tables: types, keys, references."""
