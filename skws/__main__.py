"""``python -m skws``: the command line, for when the command itself is not on the path."""

from skws.cli import main

if __name__ == "__main__":
    main()
