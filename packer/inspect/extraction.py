"""Extraction: the original tree out of a pack, byte for byte where the bytes were kept.

What was encoded anew when it was packed is written under a name that says what it is: the original stem and the suffix
that its codec gives the bytes (`.png`, `.jpg`), or `.npy` for numbers. A picture whose bytes no viewer opens becomes
one that they do (`picture_suffix` of its codec). All names are checked before the first file is
written, and the folder appears complete or not at all.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import numpy as np

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptPack, CorruptRecord, InvalidRequest, PackExists
from packer.files.npy_arrays import npy_file
from packer.files.safe_paths import Collisions, components
from packer.files.storage_errors import failing
from packer.files.tree_writer import TreeWriter
from packer.files.work_folder import ANYTHING, work_folder
from packer.pack.extra_files import ExtraFiles
from packer.pack.reader import Pack
from packer.pack.source_paths import SourcePath, SourcePaths, asked_of_source
from packer.remote.read_once import read_once
from packer.schema import PIXEL_KINDS, Buffer, Field, StoredForm
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_switches
from packer.system.progress_callback import ProgressCallback, ProgressCounter

_NUMBERS = (".npy",)  # of values that are no file of their own
_PICTURE = (".png",)  # of masks in the place of files in colours
_SHOWN = 20
_TREE = "tree"
_MATRIX = "matrix"
_IN_PLACE = [1, 0, 0, 0, 1, 0]
_PLACED = ("points", "boxes", "json", "bytes")  # that say places in a picture, or may
_NAMES = {_TREE: ANYTHING}  # in the work folder


@dataclass(frozen=True)
class ExtractionSummary:
    """What an extraction wrote: exact + reencoded = files; bytes of all of them.

    changed: codec of each field whose files are not the original bytes. unmoved: names of fields whose files lie in the
    pixels of the source (boxes, points, what may say places), beside pictures that were moved when they were packed.
    unmoved_extras: how many files of no sample lie beside such pictures. skipped: (path, reason) of files that were
    left out or are not in the pack. damaged: a line per damaged sample that `skip_bad` left out.
    left_behind: how many files of no sample were too much to be packed along. numbered: names of masks that were files
    in colours and are written as the numbers that a table made of these: the files themselves are not in the pack.
    """

    files: int
    exact: int
    reencoded: int
    bytes: int
    changed: Mapping[str, str]
    unmoved: Sequence[str]
    unmoved_extras: int
    skipped: Sequence[tuple[str, str]]
    damaged: Sequence[str]
    left_behind: int
    numbered: Sequence[str]


@dataclass
class _Extracted:
    """What has been written so far."""

    files: int = 0
    exact: int = 0
    reencoded: int = 0
    bytes: int = 0
    changed: dict[str, str] = field(default_factory=dict)
    unmoved: dict[str, None] = field(default_factory=dict)
    unmoved_extras: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left_behind: int = 0
    numbered: dict[str, None] = field(default_factory=dict)


def extract(
    pack: str | PathLike[str],
    target: str | PathLike[str],
    *,
    only_exact: bool = False,
    skip_bad: bool = False,
    scratch: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> ExtractionSummary:
    """Write the files that a pack was made of into the new folder `target`, which appears complete or not at all.

    pack: its folder, or a URL. scratch: of one at a URL, see packer.remote.read_once.
    only_exact: leave out what was encoded anew. skip_bad: leave out damaged values, instead of ending with the first.
    progress: called with a packer.system.progress_callback.Progress after each sample; its bytes are those written.
    Raises PackExists; InvalidRequest where names are unsafe or collide, all listed; CorruptPack, StorageError, Locked;
    StoreError of a URL.
    """
    check_switches({"only_exact": only_exact, "skip_bad": skip_bad})
    folder, target = path_or_url(pack), path_or_url(target)
    _check_target(folder, target)
    with read_once(
        folder, scratch=path_or_url(scratch) if scratch is not None else None, extras=True, apart=True
    ) as opened:
        counter = ProgressCounter(len(opened), progress)
        work = _Extraction(opened, folder, only_exact=only_exact, skip_bad=skip_bad)
        work.check_names()
        with work_folder(target.with_name(f".{target.name}.extract"), _NAMES) as place:
            try:
                place.clear()  # of a run that was killed
                with TreeWriter.inside(place, _TREE) as tree:
                    found = work.write(tree, counter)
                    tree.sync()
                _check_target(folder, target)
                place.publish(_TREE, place.above, target.name)
            finally:
                place.clear()
    lists = {name: tuple(getattr(found, name)) for name in ("unmoved", "skipped", "damaged", "numbered")}
    return ExtractionSummary(**{**vars(found), **lists})


def _check_target(folder: Path, target: Path) -> None:
    with failing(target, "ask for the folder"):  # links that change while they are followed
        place = target.resolve()
    if not isinstance(folder, URLPath) and folder.resolve() in (place, *place.parents):
        raise InvalidRequest(f"{target}: lies inside the pack {folder}; choose a folder beside it")
    if os.path.lexists(target):
        raise PackExists(f"{target}: already there; extract writes a new folder, choose another name")
    if not target.parent.is_dir():
        raise InvalidRequest(f"{target}: its parent folder does not exist; make it first")


class _Extraction:
    """One extraction; the names are settled twice in the same way, so that memory holds no list of files."""

    def __init__(self, pack: Pack, where: Path, *, only_exact: bool, skip_bad: bool) -> None:
        self._pack = pack
        self._where = where
        self._origins = SourcePaths(pack)
        self._extras = ExtraFiles(pack.folder, pack.manifest)
        self._only_exact = only_exact
        self._skip_bad = skip_bad
        self._matrices = pack.index.column(_MATRIX) if _MATRIX in pack.schema else None
        self._codecs: dict[str, Codec] = {}
        self._forms: dict[str, StoredForm] = {}
        self._numbers = _masks_in_colours(pack)

    def check_names(self) -> None:
        """Raise InvalidRequest, listing every name that is unsafe or collides with another."""
        seen = Collisions()
        problems: list[str] = []
        for index in range(len(self._pack)):
            for origin in self._chosen(index, _Extracted()):
                try:
                    path = self._path(index, origin)
                    components(path)
                except InvalidRequest as error:
                    problems.append(f"{self._pack.where(index, origin.name)}: {error}")
                    continue
                except CorruptPack:
                    continue  # reading the value to write it says so
                other = seen.add(path)
                if other is not None:
                    problems.append(f"{self._pack.where(index, origin.name)}: {path!r} collides with {other!r}")
        for path, _ in self._extras:
            problems += _extra_problem(self._where, path, seen)
        if problems:
            more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            raise InvalidRequest(
                f"{self._where}: {len(problems)} file names cannot be written, nothing was extracted; some file "
                "system takes them for one, or they lead elsewhere:",
                reasons=[*problems[:_SHOWN], *more],
            )

    def write(self, tree: TreeWriter, progress: ProgressCounter) -> _Extracted:
        """Write every file; raises CorruptPack unless damaged values are to be left out."""
        found = _Extracted()
        has_moved = False
        for index in range(len(self._pack)):
            before = found.bytes
            written = []
            for origin in self._chosen(index, found):
                try:
                    self._write(tree, index, origin, found)
                    written.append(origin)
                except CorruptPack as error:
                    if not self._skip_bad:
                        raise
                    found.damaged.append(str(error))
            if self._are_moved(index, written):
                has_moved = True
                found.unmoved |= dict.fromkeys(origin.name for origin in written if _may_say_places(origin.field))
            progress.add(1, found.bytes - before)
        for path, content in self._extras:
            tree.write(components(path), content)
            found.bytes += len(content)
            found.files += 1
            found.exact += 1
            found.unmoved_extras += has_moved
        left = self._pack.manifest.source.get("left_behind")
        count = left.get("files") if isinstance(left, dict) else 0
        found.left_behind = count if isinstance(count, int) else 0
        return found

    def _chosen(self, index: int, found: _Extracted) -> Iterator[SourcePath]:
        """The files to be written for a sample; the others are noted."""
        try:
            origins = self._origins.of(index)
        except CorruptPack as error:
            if not self._skip_bad:
                raise
            found.damaged.append(str(error))
            return
        for origin in origins:
            if origin.field is None and origin.name in self._numbers:
                mask = self._numbers[origin.name]
                found.numbered[mask.name] = None
                origin = SourcePath(mask.name, origin.path, mask, exact=False)
            if origin.field is None:
                found.skipped.append((origin.path, f"field {origin.name!r} is not in the pack"))
                continue
            if not origin.exact:
                found.changed[origin.name] = origin.field.codec
                if self._only_exact:
                    found.skipped.append((origin.path, f"field {origin.name!r} was encoded anew, {origin.field.codec}"))
                    continue
            yield origin

    def _write(self, tree: TreeWriter, index: int, origin: SourcePath, found: _Extracted) -> None:
        path = components(self._path(index, origin))
        with self._pack.record(index, (origin.name,)) as record:
            value = record[origin.name]
            data = value if origin.exact else self._content(index, origin, value)
            tree.write(path, data)
            found.bytes += len(data)
        found.files += 1
        found.exact += origin.exact
        found.reencoded += not origin.exact

    def _are_moved(self, index: int, written: Sequence[SourcePath]) -> bool:
        """Whether pictures were written for a sample whose pixels lie elsewhere than in the source."""
        has_pictures = any(origin.field is not None and origin.field.kind in PIXEL_KINDS for origin in written)
        return has_pictures and self._matrices is not None and self._matrices[index].ravel().tolist() != _IN_PLACE

    def _path(self, index: int, origin: SourcePath) -> str:
        """The path that does not lie about the bytes: reads a value that was encoded anew, since it may tell."""
        if origin.exact or origin.field is None:
            return origin.path
        with self._pack.record(index, (origin.name,)) as record:
            of_file = self._suffixes(origin.name, record[origin.name])
            suffixes = of_file or (_PICTURE if self._is_drawn(origin) else _NUMBERS)
        if (picture := self._codec(origin.name).picture_suffix) is not None:
            suffixes = (picture,)
        folder, slash, name = origin.path.rpartition("/")
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in suffixes:
            return origin.path
        return f"{folder}{slash}{stem or name}{suffixes[0]}"

    def _suffixes(self, name: str, value: Buffer) -> tuple[str, ...]:
        """As the codec of the value says: empty where it is no file of its own."""
        if name not in self._forms:
            self._forms[name] = self._pack.schema.stored_form(name)
        return self._forms[name].suffixes(value)

    def _is_drawn(self, origin: SourcePath) -> bool:
        """Whether a mask of numbers stands in the place of its file in colours, which was a picture."""
        return any(mask.name == origin.name for mask in self._numbers.values())

    def _codec(self, name: str) -> Codec:
        if name not in self._codecs:
            self._codecs[name] = codecs.make(self._pack.schema[name])
        return self._codecs[name]

    def _content(self, index: int, origin: SourcePath, value: Buffer) -> Buffer:
        """A value that was encoded anew, as a file."""
        codec = self._codec(origin.name)
        try:
            if codec.picture_suffix is not None:
                return codec.as_picture(value)
            if self._suffixes(origin.name, value):
                return value
            array = np.asarray(codec.decode(value))
            if self._is_drawn(origin):
                picture = replace(self._pack.schema[origin.name], codec="png")
                return codecs.make(picture).encode(array)
        except (BadInput, CorruptPack) as error:
            raise CorruptRecord(f"{self._pack.where(index, origin.name)}: does not decode: {error}") from error
        return npy_file(array)


def _masks_in_colours(pack: Pack) -> dict[str, Field]:
    """For each field that held the files of a mask in colours the mask of their numbers, where the pack has it."""
    tables = asked_of_source(pack.manifest.options).get("mask_colours")
    names = [name for name in tables if name in pack.schema] if isinstance(tables, dict) else []
    return {f"{name}_file": pack.schema[name] for name in names if pack.schema[name].kind == "mask"}


def _may_say_places(field: Field | None) -> bool:
    if field is None:
        return False
    return field.kind in _PLACED or (field.kind == "number" and field.shape != ())


def _extra_problem(folder: Path, path: str, seen: Collisions) -> list[str]:
    """Why a file of no sample cannot be written, if so."""
    try:
        components(path)
    except InvalidRequest as error:
        return [f"{folder}: a file of no sample: {error}"]
    other = seen.add(path)
    return [] if other is None else [f"{folder}: a file of no sample, {path!r}, collides with {other!r}"]
