"""Source paths: the original file of each value of a sample.

The hidden field `files` contains the paths (json: field -> relative path). In packs of image folders without this
field, the key is the path of `image`, and `.png` is appended if Pillow decoded the file. Samples of Python objects have
no files. Their paths are the names of the files that `extract` writes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packer import codecs
from packer.errors import CorruptRecord, InvalidRequest
from packer.images.backends import pillow_other_formats as pillow
from packer.pack.manifest import PACK_KIND, conversions
from packer.pack.reader import Pack
from packer.schema import PIXEL_KINDS, Field

SELECTED = "rows"  # option of a pack as the source: sha256 of the numbers of the rows of a collection in memory
_NAME = "files"
_BY_KEY = ("folder", "listed-files")  # kinds of source whose keys are the paths of their images


@dataclass(frozen=True, slots=True)
class SourcePath:
    """The original file of one value.

    Attributes:
        name: name of the field.
        path: relative path in the source. Not checked: a hostile pack may contain any path.
        field: the field; None if the pack does not contain this field.
        exact: True if the encoded value is the bytes of the file, False if it was converted.
    """

    name: str
    path: str
    field: Field | None
    exact: bool


class SourcePaths:
    """The original files of the samples of an open pack."""

    def __init__(self, pack: Pack, *, needs_files: bool = True) -> None:
        """Use an open pack.

        Args:
            needs_files: for a pack without paths, True raises InvalidRequest, and False makes `of` return no files.
        """
        self._pack = pack
        self._moved = "matrix" in pack.schema
        self._codec = None
        given = asked_of_source(pack.manifest.options).get("options")
        self._decodes = isinstance(given, dict) and given.get("decode_with") == "pillow"
        if _NAME in pack.schema and pack.schema[_NAME].kind == "json":
            self._codec = codecs.make(pack.schema[_NAME])
        self._is_by_key = pack.manifest.source.get("kind") in _BY_KEY and "image" in pack.schema
        if needs_files and self._codec is None and not self._is_by_key:
            raise InvalidRequest(
                f"{pack.folder}: the paths of the original files are unknown: there is no field 'files'; "
                "pack again without --preset and --fields"
            )

    def of(self, index: int) -> Sequence[SourcePath]:
        """Return the original files of the sample with this index; raises CorruptRecord, CorruptPack."""
        if self._codec is None and not self._is_by_key:
            return []
        if self._codec is None:
            key = self._pack.index.key(index)
            return [self._origin("image", f"{key}.png" if self._decodes and pillow.is_readable(key) else key)]
        with self._pack.record(index, (_NAME,)) as record:
            found = self._codec.decode(record[_NAME])
        if not isinstance(found, dict) or not all(isinstance(path, str) for path in found.values()):
            raise CorruptRecord(
                f"{self._pack.where(index, _NAME)}: expected a path for each field, found {found!r:.80}; "
                "pack again from the source"
            )
        return [self._origin(name, path) for name, path in found.items()]

    def _origin(self, name: str, path: str) -> SourcePath:
        if name not in self._pack.schema:
            return SourcePath(name, path, None, exact=False)
        field = self._pack.schema[name]
        return SourcePath(name, path, field, exact=self.is_exact(field))

    def is_exact(self, field: Field) -> bool:
        """Return True if the encoded values of a field are the bytes of files."""
        return codecs.codec_class(field).verbatim and not (self._moved and field.kind in PIXEL_KINDS)


def made_of(pack: Pack) -> dict[str, Any]:
    """Return what the manifest of another pack contains about its source, if the source is this pack."""
    found = {"kind": PACK_KIND, "options": pack.manifest.options}
    if pack.is_in_memory and pack.rows is not None:
        found[SELECTED] = hashlib.sha256(pack.rows.tobytes()).hexdigest()
    return found


def asked_of_source(options: dict[str, Any]) -> dict[str, Any]:
    """Return what the manifest contains about the original source, also for a pack converted from a pack."""
    asked = conversions(options)[0].get("source")
    return asked if isinstance(asked, dict) and asked.get("kind") != PACK_KIND else {}
