"""LMDB layout: which tool wrote an LMDB, told by what lies beside it, by its keys and by its first value.

Asked in this order, the first that fits counts:

| what is there                                                     | layout         |
|-------------------------------------------------------------------|----------------|
| meta_info.txt, meta_info.pkl or _keys_cache.p beside data.mdb     | basicsr-lmdb   |
| a key NAME.meta beside the first key NAME                         | basicsr-lmdb   |
| `__keys__`; keys of 8 digits, no `__len__`: lists or dicts        | tensorpack-lmdb|
| `__keys__`; numbers as keys: bytes alone, by pyarrow              | image2lmdb     |
| numbers as keys: pairs of picture and label                       | efficient-lmdb |
| a Datum                                                           | caffe-lmdb     |
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal

from packer.errors import BadInput
from packer.images import file_suffixes
from packer.layouts import arrow_payload, datum, lmdb_page_walk, serialized
from packer.layouts.lmdb_page_walk import MAGIC, MAGIC_AT
from packer.sources._parse.folder_listing import shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records._random_access_files import OpenFile, is_pointer

Layout = Literal["basicsr-lmdb", "tensorpack-lmdb", "image2lmdb", "efficient-lmdb", "caffe-lmdb"]
KEYS, LENGTH, META = b"__keys__", b"__len__", b".meta"
SIDE_FILES = ("meta_info.txt", "meta_info.pkl", "_keys_cache.p")  # of BasicSR and its kin
LOOKED_AT = 2  # entries
_SUFFIXES = (".lmdb", ".mdb")
_DATA = "data.mdb"
_LOCKS = ("lock.mdb", "-lock")
_PADDED = 8  # digits
_TRIED = (
    f"tried: basicsr-lmdb ({', '.join(SIDE_FILES[:-1])} or {SIDE_FILES[-1]} beside it), tensorpack-lmdb, image2lmdb "
    "and efficient-lmdb (numbers as keys and the key __keys__), caffe-lmdb (values that are a Datum)"
)


def environments(names: Sequence[str]) -> list[str]:
    """Those of some files that are LMDBs by their names: data.mdb in a folder, or a file that ends in .lmdb."""
    return [name for name in names if PurePosixPath(name).suffix.lower() in _SUFFIXES and not is_lock(name)]


def is_lock(name: str) -> bool:
    """Whether a file only says who has an LMDB open."""
    return name.endswith(_LOCKS)


def side_files(folder: SourceRoot, name: str) -> list[str]:
    """Relative paths of BasicSR's files beside an LMDB."""
    place = PurePosixPath(name)
    if place.name != _DATA:
        return []
    return [str(place.with_name(side)) for side in SIDE_FILES if (folder.root / place.with_name(side)).is_file()]


def first_entries(folder: SourceRoot, name: str, count: int) -> list[tuple[bytes, bytes]] | None:
    """The first keys and values; None where the file is no LMDB. Raises BadInput for a damaged one."""
    start = folder.start(name, MAGIC_AT + len(MAGIC))
    if start[MAGIC_AT:] != MAGIC:
        return None
    file = OpenFile(folder, name)
    return [(entry.key, file.read(entry.offset, entry.size)) for entry in islice(lmdb_page_walk.entries(file), count)]


def may_be_one(folder: SourceRoot, name: str) -> bool:
    """Whether a file begins as an LMDB, or as what git-lfs leaves in the place of one."""
    start = folder.start(name, 64)
    return start[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC or (bool(environments([name])) and is_pointer(start))


def layout_of(folder: SourceRoot, name: str) -> Layout | None:
    """The layout of a file that may be an LMDB; None where none fits. Raises BadInput for a damaged file.

    What git-lfs left in the place of an LMDB is of the last layout, whose source says what it is.
    """
    found = first_entries(folder, name, LOOKED_AT)
    if found is None:
        return "caffe-lmdb"
    if side_files(folder, name) or (len(found) == LOOKED_AT and found[1][0] == found[0][0] + META):
        return "basicsr-lmdb"
    data = [(key, value) for key, value in found if key not in (KEYS, LENGTH)]
    if not data:
        return "efficient-lmdb" if found else None  # an empty one
    key, value = data[0]
    file = OpenFile(folder, name)
    if key.isdigit() and lmdb_page_walk.find(file, KEYS) is not None:
        is_padded = len(key) == _PADDED and lmdb_page_walk.find(file, LENGTH) is None
        return "tensorpack-lmdb" if is_padded and _is_datapoint(value) else _numbered(value)
    numbered = _numbered(value) if key.isdigit() else None
    return numbered or ("caffe-lmdb" if _is_datum(value) else None)


def other_layout(folder: SourceRoot, names: Sequence[str]) -> str | None:
    """What to say of an LMDB whose layout no source reads; None where there is no LMDB. Raises BadInput."""
    for name in names if len(names) == 1 else environments(names):
        found = first_entries(folder, name, 1)
        if found:
            ((key, value),) = found
            return (
                f"{shown(name)} is an LMDB of a layout that no source reads: {guess(folder, name)}; the first key is "
                f"{shown(repr(key[:40]))}, its value has {len(value)} bytes{_about_pair(value)}; {_TRIED}"
            )
    return None


def _about_pair(value: bytes) -> str:
    """What keeps a list of two from being a pair of efficient-lmdb; empty for every other value."""
    try:
        found = serialized.loads(value)
    except BadInput:
        return ""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        return ""
    try:
        serialized.pair(found)
    except BadInput as error:
        return f", no pair of efficient-lmdb: {error.message}"
    return ""


def guess(folder: SourceRoot, name: str) -> str:
    """What an LMDB may be whose entries are not of the layout that was asked for."""
    found = layout_of(folder, name)
    if found is not None:
        return f"it looks like {found}: --from {found}"
    file = OpenFile(folder, name)
    ((_, value),) = first_entries(folder, name, 1) or [(b"", b"")]
    if file_suffixes(value):
        return "these are bare picture files, as BasicSR stores them: --from basicsr-lmdb takes them by their keys"
    if lmdb_page_walk.find(file, KEYS) is not None:
        return "the key __keys__ is of Efficient-PyTorch, Image2LMDB or tensorpack, the first value is of none of them"
    if value[:1] == b"\x80":
        return (
            "these look pickled, as tensorpack and Efficient-PyTorch store them, but are no pairs of picture and label"
        )
    return "say another --from"


def _numbered(value: bytes) -> Layout | None:
    """The layout of a value under a number; pyarrow is not needed to tell."""
    if arrow_payload.is_payload(value):
        return "efficient-lmdb" if arrow_payload.holds_list(value) else "image2lmdb"
    try:
        serialized.pair(serialized.loads(value))
    except BadInput:
        return None
    return "efficient-lmdb"


def _is_datapoint(value: bytes) -> bool:
    if arrow_payload.is_payload(value):
        return True
    try:
        return isinstance(serialized.loads(value), (list, tuple, dict))
    except BadInput:
        return False


def _is_datum(value: bytes) -> bool:
    try:
        found = datum.parse(value)
    except BadInput:
        return False
    return bool(found.data) or found.has_floats
