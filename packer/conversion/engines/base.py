"""Engine: base class of all engines. An engine builds the parts of a conversion, on this machine or on a cluster.

Each file in this folder contains a class `Engine`. The bytes of a pack do not depend on the engine, because all engines
share the code of `build_part`. An engine for a cluster derives from `ClusterEngine` in _cluster_engine.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.conversion.pack_build import ConversionRun


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine.

    Attributes:
        address: the address of the cluster; None for the default address.
        worker_scratch: a folder on every machine in which parts are built; None to build in the shared work folder.
        threads: the number of threads for each part; None for the default of the engine.
        to_store: True if the pack is behind a URL.
    """

    address: str | None = None
    worker_scratch: Path | None = None
    threads: int | None = None
    to_store: bool = False


class Engine(ABC):
    """Base class of engines, which build the parts of one conversion.

    Attributes:
        notes: lines for the user, filled by `build`.
    """

    def __init__(self, options: EngineOptions) -> None:
        """Create an engine. Options that the engine does not support raise InvalidRequest."""
        self.options = options
        self.notes: list[str] = []

    @abstractmethod
    def build(self, run: ConversionRun, numbers: Iterator[int]) -> None:
        """Build the parts with these numbers, and pass each finished part to `run.publication`.

        No worker still writes when this method returns or raises an error.
        """
