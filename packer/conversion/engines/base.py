"""Engine: builds the parts of a conversion, on this machine or on others.

Each file in this folder is an engine with a class `Engine`. Every engine calls `build_part`, so the bytes of a pack do
not depend on the engine. An engine for many machines derives from `ClusterEngine` in _cluster_engine.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.conversion.conversion_run import ConversionRun


@dataclass(frozen=True)
class EngineOptions:
    """The options of an engine.

    Attributes:
        address: the address of the cluster.
        nodes_scratch: a folder on every machine in which parts are built; None for the work folder.
        threads: the number of threads for each part; None for the default of the engine.
        to_store: True if the pack is behind a URL.
    """

    address: str | None = None
    nodes_scratch: Path | None = None
    threads: int | None = None
    to_store: bool = False


class Engine(ABC):
    """Builds the parts of one conversion.

    Attributes:
        options: the options.
        notes: lines for the user on lost attempts.
    """

    def __init__(self, options: EngineOptions) -> None:
        """Check the options; raises InvalidRequest for those that the engine does not have."""
        self.options = options
        self.notes: list[str] = []

    @abstractmethod
    def build(self, run: ConversionRun, numbers: Iterator[int]) -> None:
        """Build all these parts. Afterwards, also after an error, no task changes a part."""
