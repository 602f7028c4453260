"""Pack files: every file of a pack, with its size and sha256, as the manifest lists it."""

from typing import NamedTuple

from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.pack.part_readers import PartOpener


class PackFile(NamedTuple):
    """A part or another file of a pack: path in the pack, bytes, sha256, and number of samples (0 unless a part)."""

    name: str
    bytes: int
    sha256: str
    samples: int = 0
    is_folder: bool = False


def index_files(manifest: Manifest) -> list[PackFile]:
    """Return the files of the index, in the order of the manifest."""
    return [PackFile(f"{INDEX}/{file.name}", file.bytes, file.sha256) for file in manifest.index]


def extra_files(manifest: Manifest) -> list[PackFile]:
    """Return the extras, in the order of the manifest."""
    return [PackFile(f"{EXTRAS}/{file.name}", file.bytes, file.sha256) for file in manifest.extras]


def part_files(manifest: Manifest) -> list[PackFile]:
    """Return the parts, in the order of their numbers."""
    is_folder = bool(manifest.parts) and PartOpener(manifest.format, manifest.schema).is_folder
    return [PackFile(part.name, part.bytes, part.sha256, part.samples, is_folder) for part in manifest.parts]


def in_blocks(size: int, block_bytes: int = 4096) -> int:
    """Return a size, rounded up to whole blocks of a disk."""
    return -(-size // block_bytes) * block_bytes
