"""Field collector: what is to be known of one field, measured sample by sample.

`measure` is called in many threads and changes nothing; what it returns is small. `add` gets what it returned, in the
order of the samples, in one thread. `result` is plain JSON.
"""

from abc import ABC, abstractmethod
from typing import Any

from packer.codecs.base import StoredPicture
from packer.schema import Field


class Collector(ABC):
    """Base of all collectors; see the module's contract."""

    def __init__(self, field: Field) -> None:
        self.field = field

    @abstractmethod
    def measure(self, value: Any, stored: StoredPicture | None) -> Any:
        """What a decoded value adds; stored: what is known of a picture before it is decoded. Changes nothing."""

    @abstractmethod
    def add(self, measured: Any) -> None:
        """Take in what `measure` returned."""

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """What was found, as JSON has it."""
