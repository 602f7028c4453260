"""Extraction: writes the original files of a pack. A file is equal to the original if the pack contains its bytes.

A value that was encoded again gets the stem of the original file, and the suffix of its codec (`.png`, `.jpg`), or
`.npy` for numbers. Images in a form that viewers cannot open are converted (`image_suffix` of the codec). All names are
checked before the first file is written.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from packer import codecs
from packer.codecs.base import Codec
from packer.copies.remote_pack import read_once
from packer.errors import BadInput, CorruptPack, CorruptRecord, InvalidRequest, PackExists
from packer.files.npy_arrays import npy_file
from packer.files.safe_paths import Collisions, components
from packer.files.storage_errors import failing
from packer.files.tree_writer import TreeWriter
from packer.files.work_folder import ANYTHING, work_folder
from packer.pack.extra_files import ExtraFiles
from packer.pack.reader import Pack
from packer.pack.source_paths import SourcePath, SourcePaths, asked_of_source
from packer.schema import PIXEL_KINDS, Buffer, Field, StoredForm
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_switches
from packer.system.progress_callback import ProgressCallback, ProgressCounter

_NUMBERS = (".npy",)  # for values that are not a file
_IMAGE = (".png",)  # for masks that replace files in colors
_SHOWN = 20
_TREE = "tree"
_MATRIX = "matrix"
_IN_PLACE = [1, 0, 0, 0, 1, 0]
_POSITIONS = ("points", "boxes", "json", "bytes")  # kinds that contain positions in an image, or may
_NAMES = {_TREE: ANYTHING}  # in the work folder


@dataclass(frozen=True)
class ExtractionSummary:
    """Counts and lists of the files of an extraction.

    Attributes:
        files: Number of written files, exact + reencoded. `bytes` is their total size.
        exact: Number of files with the original bytes. `reencoded` is the number of files with other bytes.
        changed: Field -> codec, for fields whose files do not have the original bytes.
        unmoved: Written fields with positions in px of the original images, although images were resized or cropped.
        unmoved_extras: Number of extras that may contain such positions.
        skipped: (path, reason) of files that are not in the pack or were not requested.
        damaged: A line for each damaged value that `skip_bad` skipped.
        left_behind: Number of extras that were too large to be packed.
        numbered: Fields of masks whose original files had colors. The written files contain class numbers.
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


def extract(
    pack: str | PathLike[str],
    target: str | PathLike[str],
    *,
    only_exact: bool = False,
    skip_bad: bool = False,
    scratch: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> ExtractionSummary:
    """Write the original files of a pack into the new folder `target`, and return a summary.

    The folder appears when all files are complete. After an error, the folder does not exist.

    Args:
        pack: Folder or URL of the pack.
        target: The new folder.
        only_exact: True skips files that were encoded again. False writes them.
        skip_bad: True skips damaged values. False raises an error for the first damaged value.
        scratch: Folder for the parts of a pack at a URL (packer.copies.remote_pack). None for the default.
        progress: Called with a packer.system.progress_callback.Progress after each sample, with the written bytes.

    Raises:
        PackExists: `target` exists.
        InvalidRequest: Names are unsafe or collide. The error lists them.
        CorruptPack, StorageError, StoreError: The pack cannot be read or the files cannot be written.
        Locked: Another process writes `target`.
    """
    check_switches({"only_exact": only_exact, "skip_bad": skip_bad})
    folder, target = path_or_url(pack), path_or_url(target)
    _check_target(folder, target)
    with read_once(
        folder, scratch=path_or_url(scratch) if scratch is not None else None, extras=True, isolate_damaged=True
    ) as opened:
        counter = ProgressCounter(len(opened), progress)
        work = _Extraction(opened, folder, only_exact=only_exact, skip_bad=skip_bad)
        work.check_names()
        with work_folder(target.with_name(f".{target.name}.extract"), _NAMES) as place:
            try:
                place.clear()  # of a run that was killed
                with TreeWriter.inside(place, _TREE) as tree:
                    work.write(tree, counter)
                    tree.sync()
                _check_target(folder, target)
                place.publish(_TREE, place.above, target.name)
            finally:
                place.clear()
    return work.summary()


def _check_target(folder: Path, target: Path) -> None:
    with failing(target, "ask for the folder"):  # links that change while they are followed
        place = target.resolve()
    if not isinstance(folder, URLPath) and folder.resolve() in (place, *place.parents):
        raise InvalidRequest(f"{target}: is inside the pack {folder}; choose another folder")
    if os.path.lexists(target):
        raise PackExists(f"{target}: exists; extract writes a new folder, choose another name")
    if not target.parent.is_dir():
        raise InvalidRequest(f"{target}: its parent folder does not exist; make it first")


class _Extraction:
    """One extraction. `check_names` and `write` each compute the names, so no list of all files is in memory."""

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
        self._masks = _masks_in_colors(pack)
        self._exact = self._reencoded = self._bytes = self._unmoved_extras = 0
        self._changed: dict[str, str] = {}
        self._unmoved: dict[str, None] = {}
        self._numbered: dict[str, None] = {}
        self._skipped: list[tuple[str, str]] = []
        self._damaged: list[str] = []

    def summary(self) -> ExtractionSummary:
        left = self._pack.manifest.source.get("left_behind")
        left_behind = left.get("files") if isinstance(left, dict) else 0
        return ExtractionSummary(
            files=self._exact + self._reencoded,
            exact=self._exact,
            reencoded=self._reencoded,
            bytes=self._bytes,
            changed=self._changed,
            unmoved=tuple(self._unmoved),
            unmoved_extras=self._unmoved_extras,
            skipped=tuple(self._skipped),
            damaged=tuple(self._damaged),
            left_behind=left_behind if isinstance(left_behind, int) else 0,
            numbered=tuple(self._numbered),
        )

    def check_names(self) -> None:
        """Raise InvalidRequest for names that are unsafe or collide with another name. The error lists them."""
        seen = Collisions()
        problems: list[str] = []
        for index in range(len(self._pack)):
            for origin in self._files(index):
                if self._skip_reason(origin):
                    continue
                try:
                    path = self._path(index, origin)
                except CorruptPack:
                    continue  # `write` raises it again
                problems += _name_problems(self._pack.where(index, origin.name), path, seen)
        for path, _ in self._extras:
            problems += _name_problems(f"{self._where}: a file of no sample", path, seen)
        if problems:
            more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            raise InvalidRequest(
                f"{self._where}: {len(problems)} file names cannot be written, nothing was extracted; they collide on "
                "some file system, or lead out of the folder:",
                reasons=[*problems[:_SHOWN], *more],
            )

    def write(self, tree: TreeWriter, progress: ProgressCounter) -> None:
        """Write every file. Damaged values are skipped if `skip_bad` is True. Otherwise they raise CorruptPack."""
        has_moved = False
        self._damaged.clear()  # `check_names` read the same samples
        for index in range(len(self._pack)):
            before = self._bytes
            written = []
            for origin in self._files(index):
                if not origin.exact and origin.field is not None:
                    self._changed[origin.name] = origin.field.codec
                if reason := self._skip_reason(origin):
                    self._skipped.append((origin.path, reason))
                    continue
                try:
                    self._write(tree, index, origin)
                    written.append(origin)
                except CorruptPack as error:
                    self._skip_damaged(error)
            if self._are_moved(index, written):
                has_moved = True
                self._unmoved |= dict.fromkeys(origin.name for origin in written if _has_positions(origin.field))
            progress.add(1, self._bytes - before)
        for path, content in self._extras:
            tree.write(components(path), content)
            self._bytes += len(content)
            self._exact += 1
            self._unmoved_extras += has_moved

    def _files(self, index: int) -> list[SourcePath]:
        """Return the files to write for a sample. A mask in colors whose file is not packed becomes class numbers."""
        try:
            origins = list(self._origins.of(index))
        except CorruptPack as error:
            self._skip_damaged(error)
            return []
        for number, origin in enumerate(origins):
            if origin.field is None and (mask := self._masks.get(origin.name)) is not None:
                self._numbered[mask.name] = None
                origins[number] = SourcePath(mask.name, origin.path, mask, exact=False)
        return origins

    def _skip_damaged(self, error: CorruptPack) -> None:
        """Add a damaged value to the summary if `skip_bad` is True. Otherwise raise its error."""
        if not self._skip_bad:
            raise error
        self._damaged.append(str(error))

    def _skip_reason(self, origin: SourcePath) -> str:
        if origin.field is None:
            return f"field {origin.name!r} is not in the pack"
        if self._only_exact and not origin.exact:
            return f"field {origin.name!r} was encoded again, {origin.field.codec}"
        return ""

    def _write(self, tree: TreeWriter, index: int, origin: SourcePath) -> None:
        path = components(self._path(index, origin))
        with self._pack.record(index, (origin.name,)) as record:
            value = record[origin.name]
            data = value if origin.exact else self._content(index, origin, value)
            tree.write(path, data)
            self._bytes += len(data)
        self._exact += origin.exact
        self._reencoded += not origin.exact

    def _are_moved(self, index: int, written: Sequence[SourcePath]) -> bool:
        """Return True if images of the sample were written that `convert` resized, cropped or rotated."""
        has_images = any(origin.field is not None and origin.field.kind in PIXEL_KINDS for origin in written)
        return has_images and self._matrices is not None and self._matrices[index].ravel().tolist() != _IN_PLACE

    def _path(self, index: int, origin: SourcePath) -> str:
        """Return the path of a file, with a suffix that fits its bytes. This reads a value that was encoded again."""
        if origin.exact or origin.field is None:
            return origin.path
        with self._pack.record(index, (origin.name,)) as record:
            of_file = self._suffixes(origin.name, record[origin.name])
            suffixes = of_file or (_IMAGE if self._is_drawn(origin) else _NUMBERS)
        if (image := self._codec(origin.name).image_suffix) is not None:
            suffixes = (image,)
        folder, slash, name = origin.path.rpartition("/")
        stem, _, suffix = name.rpartition(".")
        if f".{suffix.lower()}" in suffixes:
            return origin.path
        return f"{folder}{slash}{stem or name}{suffixes[0]}"

    def _suffixes(self, name: str, value: Buffer) -> tuple[str, ...]:
        """Return the suffixes that fit a value, or an empty tuple if the value is not a file."""
        if name not in self._forms:
            self._forms[name] = self._pack.schema.stored_form(name)
        return self._forms[name].suffixes(value)

    def _is_drawn(self, origin: SourcePath) -> bool:
        """Return True if `origin` is a mask of class numbers that may replace an original file in colors."""
        return any(mask.name == origin.name for mask in self._masks.values())

    def _codec(self, name: str) -> Codec:
        if name not in self._codecs:
            self._codecs[name] = codecs.make(self._pack.schema[name])
        return self._codecs[name]

    def _content(self, index: int, origin: SourcePath, value: Buffer) -> Buffer:
        """Return the bytes of the file for `value`, if the original bytes are not in the pack."""
        codec = self._codec(origin.name)
        try:
            if codec.image_suffix is not None:
                return codec.as_image(value)
            if self._suffixes(origin.name, value):
                return value
            array = np.asarray(codec.decode(value))
            if self._is_drawn(origin):
                image = replace(self._pack.schema[origin.name], codec="png")
                return codecs.make(image).encode(array)
        except (BadInput, CorruptPack) as error:
            raise CorruptRecord(f"{self._pack.where(index, origin.name)}: does not decode: {error}") from error
        return npy_file(array)


def _masks_in_colors(pack: Pack) -> dict[str, Field]:
    """Return a dict: field of mask files in colors -> field with the class numbers of these masks."""
    tables = asked_of_source(pack.manifest.options).get("mask_colors")
    names = [name for name in tables if name in pack.schema] if isinstance(tables, dict) else []
    return {f"{name}_file": pack.schema[name] for name in names if pack.schema[name].kind == "mask"}


def _has_positions(field: Field | None) -> bool:
    return field is not None and (field.kind in _POSITIONS or (field.kind == "number" and field.shape != ()))


def _name_problems(where: str, path: str, seen: Collisions) -> list[str]:
    """Return the reasons why a file cannot be written to `path`, or an empty list. Reasons begin with `where`."""
    try:
        components(path)
    except InvalidRequest as error:
        return [f"{where}: {error}"]
    other = seen.add(path)
    return [] if other is None else [f"{where}: {path!r} collides with {other!r}"]
