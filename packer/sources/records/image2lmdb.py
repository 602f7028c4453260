"""Image2LMDB: images with numbers as keys, as Fangyh09/Image2LMDB writes them. The LMDB does not contain labels.

Fields: key and image (the bytes of the file). A list next to the LMDB can contain the file names. If no name repeats,
the name is the key, otherwise the number. Samples are sorted by number, which is ImageFolder's order.

Layout: the key is the number in decimal digits. The value is bytes, serialized by pyarrow.serialize
(packer.layouts.pyarrow_serialized). `__keys__` and `__len__` are serialized in the same way. The list
NAME_images_idx.txt next to NAME.lmdb has a line for each file: file name without folders, space, number.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from packer.errors import BadInput
from packer.layouts import serialized
from packer.schema import Field
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._random_access_files import OpenFile, UnpackedFile
from packer.sources.records._record_source import IMAGE

SPECIFICITY = -1
_LIST = "_images_idx.txt"


class Source(LMDBSource):
    """An LMDB of Image2LMDB, or a folder of LMDBs."""

    kind = "image2lmdb"
    title = "LMDB of images without labels, by pyarrow"

    def __init__(self, root: Path, *, named_splits: bool = False, follow_links: bool = False) -> None:
        """Find all records. Raises BadInput for a damaged LMDB, InvalidRequest for another layout.

        If `named_splits` is false, files of several splits also raise InvalidRequest.
        """
        self._lists: list[dict[int, str]] = []
        self._list(root, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def parse(cls, value: bytes) -> dict[str, Any]:
        found: Any = serialized.loads(value)
        if not isinstance(found, bytes):
            raise BadInput(f"expected bytes alone, found {type(found).__name__}")
        return {"image": found}

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        super().find(name, file, size)
        self._lists.append(self._listed_names(f"{name.removesuffix(PurePosixPath(name).suffix)}{_LIST}"))

    def _listed_names(self, name: str) -> dict[int, str]:
        """Return number -> file name from the list next to an LMDB."""
        found: dict[int, str] = {}
        lines = (self._table(name) or b"").decode("utf-8", "surrogateescape").splitlines()
        for at, line in enumerate(lines, 1):
            file, space, number = line.rstrip().rpartition(" ")
            if not line.strip():
                continue
            if not space or not file or not number.isdecimal() or int(number) in found:
                raise BadInput(
                    f"{self.folder.root / name}: line {at}: expected a name and a number that comes once, found "
                    f"{line[:80]!r}"
                )
            found[int(number)] = file
        return found

    def choose_fields(self) -> Sequence[Field]:
        names = [self._lists[number].get(at, "") for number, at in zip(self._numbers, self._ids, strict=True)]
        self.notes.append("no labels: Image2LMDB does not store them; the folder that was packed has them")
        is_named = all(names) and len(set(names)) == len(names) and len(self._lists) == 1
        self._names = names if is_named else []
        return [IMAGE]
