"""Source paths: which file of the original tree each value of a sample was.

The hidden field `files` says it (json: field -> relative path); where an image folder was packed without it, the key
is the path of `image`, of one that Pillow decoded with `.png` behind it. Whether a value still is the file's bytes
follows from its codec and from whether pixels moved. Of Python objects, which lie nowhere, paths are the names that
`extract` gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packer import codecs
from packer.errors import CorruptRecord, InvalidRequest
from packer.images.backends import pillow_other_formats as pillow
from packer.pack.manifest import PACK_KIND
from packer.pack.reader import Pack
from packer.schema import PIXEL_KINDS, Field

SELECTED = "rows"  # in what was asked of a pack as the source: sha256 of the rows that were copied, if not all
_NAME = "files"
_BY_KEY = ("folder", "listed-files")  # kinds of source whose keys are the paths of their images


@dataclass(frozen=True, slots=True)
class SourcePath:
    """name: of the field. path: relative, as the pack has it, not to be trusted. field: None where it is not packed."""

    name: str
    path: str
    field: Field | None
    exact: bool


class SourcePaths:
    """The origins of every sample of an open pack."""

    def __init__(self, pack: Pack, *, needs_files: bool = True) -> None:
        """needs_files: whether InvalidRequest is raised where the pack does not say which files its values were; else
        there are none.
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
                f"{pack.folder}: the pack does not say which files its values were: it has no field 'files'; "
                "pack again with it: without --preset and --fields"
            )

    def of(self, index: int) -> Sequence[SourcePath]:
        """The origins of one sample; raises CorruptRecord, CorruptPack."""
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
        """Whether the field's values are the bytes of files."""
        return codecs.codec_class(field).verbatim and not (self._moved and field.kind in PIXEL_KINDS)


def conversions(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of every conversion on the way from the original source to a pack, the first one first."""
    found = [options]
    while True:
        asked = found[-1].get("source")
        before = asked.get("options") if isinstance(asked, dict) and asked.get("kind") == PACK_KIND else None
        if not isinstance(before, dict):
            return found[::-1]
        found.append(before)


def asked_of_source(options: dict[str, Any]) -> dict[str, Any]:
    """What was asked of the original folder; for a pack of a pack that stands inside."""
    asked = conversions(options)[0].get("source")
    return asked if isinstance(asked, dict) and asked.get("kind") != PACK_KIND else {}
