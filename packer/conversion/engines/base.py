"""Engine: builds the parts of a conversion, on this machine or on others.

The bytes of a pack do not depend on the engine: `build_part` builds every part, and only the conversion records, merges
and publishes them. Each file of this folder is an engine with a class `Engine`. An engine of many machines is a
`Cluster` of five calls, see _cluster_engine.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.conversion.conversion_run import ConversionRun


@dataclass(frozen=True)
class EngineOptions:
    """What the user asked of an engine.

    Attributes:
        address: of a cluster.
        nodes_scratch: a folder on every machine, where parts are built before they are copied or uploaded; None
            builds them in the work folder.
        threads: of each part; None for the default of the engine.
        to_store: the pack lies behind a URL.
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
        """Build all these parts, or raise. Nothing that could change a part continues afterwards."""
