"""What every writer of results does."""

from __future__ import annotations

from abc import ABC, abstractmethod

from skws.results.model import Result


class Writer(ABC):
    """Takes results one by one, each written as it comes unless the format holds it back."""

    @abstractmethod
    def write(self, result: Result) -> None:
        """Raises OutputError, OutputClosedError."""

    def finish(self) -> None:  # noqa: B027 - most formats hold nothing back
        """Write what is held back; called once, after the last result of a run that ended well."""

    def abandon(self) -> None:  # noqa: B027 - as above
        """Let go of what is held back; called once, if the run failed."""
