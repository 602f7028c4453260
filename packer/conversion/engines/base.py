"""Engine: builds parts, here or on other machines, and hands each one that is finished to the conversion.

A pack's bytes do not depend on the engine: build_part makes the parts, wherever it runs, and the conversion alone
records, merges and publishes them. A file of this folder is an engine, and its class `Engine` is found by its name.
An engine of many machines is a `Cluster` of four calls, see _cluster_engine.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packer.conversion.build_part import FinishedPart, PartSpec
from packer.conversion.done_records import DoneRecords
from packer.conversion.encode import Encoder


@dataclass(frozen=True)
class EngineOptions:
    """address: of a cluster. nodes_scratch: a folder on every machine of it, where parts are built before they are
    copied into the work folder, or uploaded; None builds them there. threads: of each part; None for what the engine
    has. to_store: whether the pack lies behind a URL."""

    address: str | None = None
    nodes_scratch: Path | None = None
    threads: int | None = None
    to_store: bool = False


class Job(Protocol):
    """The conversion, as far as an engine needs it. Only `add` may be called by any thread."""

    records: DoneRecords

    @property
    def encoder(self) -> Encoder:
        """What makes the records of the plan."""

    @property
    def spec(self) -> PartSpec:
        """Of the parts to come; it only reads once a sample is known to be bad."""

    def progress(self, samples: int, source_bytes: int) -> None:
        """So many more are done."""

    def note(self, item: Sequence[str]) -> None:
        """Count what the manifest will say of a sample; raises BadInputs where that becomes too much."""

    def refuse(self, number: int, reasons: Sequence[str]) -> None:
        """These samples of a part cannot be packed."""

    def add(self, done: FinishedPart) -> None:
        """A part and its index entries are in their folders, synced; nothing is recorded once a sample is bad."""


class Engine(ABC):
    """Made for one conversion. notes: lines on what befell it that are worth knowing."""

    def __init__(self, options: EngineOptions) -> None:
        """Raises InvalidRequest for options that the engine does not have."""
        self.options = options
        self.notes: list[str] = []

    @abstractmethod
    def build(self, job: Job, numbers: Iterator[int]) -> None:
        """Build these parts, all of them unless it raises; nothing runs on afterwards that could change a part."""
