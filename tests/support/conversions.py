"""Short ways to convert in tests."""

import hashlib
from pathlib import Path
from typing import Any

from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.sources.base import Source


def opened(root: Path, kind: str = "auto", **options: Any) -> Source:
    """A source with its options."""
    return SourceSpec(kind, options).open(root)[0]


def packed(root: Path, target: Path, *, kind: str = "auto", threads: int = 2, **options: Any) -> ConversionSummary:
    """Convert a folder, in its own order, also into the formats of other tools."""
    return convert_source(
        opened(root, kind), target, ConversionOptions(**{"order": "stored", **options}), threads=threads
    )


def digest(folder: Path) -> str:
    """sha256 over the names and bytes of all files of a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
