"""The file for spark-submit, which takes a file whose name does not end in ``.py``, as ``skws``, for a JAR.

``skws --submit-file`` prints its path. A cluster may receive this file alone,
and any Python may run it, so it imports no other file when it is loaded.
"""

import os
import sys


def main() -> None:
    """Run the command ``skws``."""
    # Otherwise the modules of this package would hide others with the same names.
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    os.environ["SKWS_SUBMITTED"] = "1"  # the engine is Spark
    try:
        from skws.cli import main as command  # noqa: PLC0415 - it may be missing here
    except ImportError as error:
        sys.exit(
            f"skws: {sys.executable} has no module {error.name}: "
            "set PYSPARK_PYTHON to the Python in which skws is installed"
        )
    command()


if __name__ == "__main__":
    main()
