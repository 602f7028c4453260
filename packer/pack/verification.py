"""Verification: lists the problems of a pack.

| level   | checks |
|---|---|
| quick   | the manifest, unknown and missing files, sizes, the index and the extras |
| default | also the sha256 of each part. If it differs, the crc32 of every value shows the damaged samples |
| full    | also the crc32, the entries in the index and a strict decode of every value |

A subset N/M selects every M-th part for the comparison of sha256, and every M-th sample. The M subsets together select
everything. A damaged part is read in a subprocess (isolated_reader.py). The files of a pack behind a URL are downloaded
and their sha256 is compared.
"""

import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from packer import codecs
from packer.codecs.base import Buffer, Codec
from packer.errors import CorruptPack, CrashingPart, InvalidRequest, NoObject, ObjectChanged, PackerError
from packer.files.digest import file_bytes, file_sha256
from packer.files.safe_paths import components
from packer.formats.base import Reader
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.manifest import EXTRAS, INDEX, IndexFile, Manifest, Part
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener
from packer.pack.reader import Pack, member_folder
from packer.pack.sample_index import ColumnEntries, Index, crc32_problem
from packer.pack.unlisted_files import foreign_files, part_state
from packer.stores.url import StoreURL, URLPath

if TYPE_CHECKING:
    from packer.stores.store import Store, StoredObject

Level = Literal["quick", "default", "full"]
LEVELS: tuple[Level, ...] = get_args(Level)
_SHOWN = 4  # names of files
_PARTIAL = ".partial/"  # of a killed conversion; the next conversion to the URL removes it


@dataclass(frozen=True)
class Subset:
    """The numbers n with n % `of` == `number` - 1. Each number is in exactly one of the subsets 1 to `of`."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InvalidRequest(f"subset {self.number}/{self.of}: expected N/M with N from 1 to M")

    @classmethod
    def parse(cls, text: str) -> "Subset":
        """Parse `N/M`; raises InvalidRequest."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None:
            raise InvalidRequest(f"subset {text!r}: expected N/M, such as 1/10 for the first of ten")
        return cls(int(match[1]), int(match[2]))

    def __contains__(self, number: int) -> bool:
        return number % self.of == self.number - 1


EVERYTHING = Subset()


def problems(
    folder: Path, *, level: Level = "default", subset: Subset = EVERYTHING, expect: str | None = None
) -> Iterator[str]:
    """Yield one line for each problem of a pack, as soon as it is found.

    Args:
        folder: the pack, a folder or a URL. Level "full" and subsets need a folder.
        level: "quick", "default" or "full", see the table of the module.
        subset: the parts and samples to check; not for the level "quick".
        expect: `sha256:` and the hex digest that packer.json must have. None: any digest.

    Raises:
        InvalidRequest: `folder` is not a pack, or has a newer version or an unknown format.
    """
    if level not in LEVELS:
        raise InvalidRequest(f"level={level!r}: expected one of {', '.join(LEVELS)}")
    if level == "quick" and subset != EVERYTHING:
        raise InvalidRequest("level quick reads no part, so it has no subset; leave one of the two out")
    digest = None if expect is None else parse_digest(expect, manifests.NAME)
    if isinstance(folder, URLPath):
        if level == "full" or subset != EVERYTHING:
            raise InvalidRequest(f"{folder}: --level full and --subset need a pack on a disk; download the pack first")
        yield from _problems_at_url(folder.url, level, digest)
        return
    if digest is not None:
        with suppress(PackerError):  # reading the manifest reports it
            yield from _other_pack(folder / manifests.NAME, digest)
    try:
        manifest = manifests.read(folder)
    except CorruptPack as error:
        yield str(error)
        return
    for path in foreign_files(folder, manifest):
        yield f"{path}: unknown file: the manifest does not list it; remove it"
    try:
        check_mostly_holes(folder, manifest)
    except CorruptPack as error:  # reading the files would take as long as their sizes
        yield str(error)
        return
    damaged = set()
    for name, file in manifest.listed.items():
        if isinstance(file, IndexFile) and (problem := _file_problem(folder / name, file)):
            damaged.add(name.partition("/")[0])
            yield problem
    index = None
    if INDEX not in damaged:
        try:
            index = Index.open(folder, manifest)
        except PackerError as error:
            yield str(error)
    if EXTRAS not in damaged:
        try:
            for extra, _ in ExtraFiles(folder, manifest):
                components(extra)
        except PackerError as error:
            yield f"{folder / EXTRAS}: {error}"
    if manifest.members:
        yield from _problems_of_members(folder, manifest, level, subset)
        return
    with closing(_PartCheck(folder, manifest, index, level, subset)) as check:
        for number in range(len(manifest.parts)):
            yield from check.problems(number)


def _problems_of_members(folder: Path, manifest: Manifest, level: Level, subset: Subset) -> Iterator[str]:
    """Yield the problems of the packs in a collection, and each value that differs from the value in its pack."""
    home = os.path.realpath(folder)
    for place in sorted({member_folder(home, member) for member in manifest.members}):
        try:
            manifests.read_pack(place)
        except PackerError as error:
            yield str(error)
        else:
            yield from problems(place, level=level, subset=subset)
    try:
        pack = Pack(folder)
    except PackerError as error:
        yield str(error)
        return
    with closing(pack):
        yield from pack.unlike_members()


def parse_digest(expect: str, name: str) -> str:
    """Return the hex digits of `sha256:HEX`. Raises InvalidRequest. `name` is the hashed file, for the message."""
    wanted = expect.removeprefix("sha256:").lower()
    if not expect.startswith("sha256:") or not re.fullmatch("[0-9a-f]{64}", wanted):
        raise InvalidRequest(f"expect {expect!r:.100}: expected sha256: and 64 hex digits, as sha256sum {name} prints")
    return wanted


def _other_pack(path: Path, digest: str) -> Iterator[str]:
    if file_bytes(path) <= manifests.MOST_BYTES and (found := file_sha256(path)) != digest:
        yield _other_pack_text(path, found, digest)


def _other_pack_text(where: object, found: str, digest: str) -> str:
    return f"{where}: another pack than expected: its sha256 is {found}, expected {digest}; get the pack again"


def _file_problem(path: Path, file: IndexFile) -> str | None:
    remedy = "run packer index, or copy the pack again" if path.parent.name == INDEX else "copy the pack again"
    if not os.path.lexists(path):
        return f"{path}: missing; {remedy}"
    try:
        size = file_bytes(path)
        return _difference(path, file, size, file_sha256(path) if size == file.bytes else "", remedy)
    except PackerError as error:
        return str(error)


def _difference(where: object, file: Part | IndexFile, size: int, sha256: str | None, remedy: str) -> str | None:
    if size != file.bytes:
        return f"{where}: cut or changed: {size} bytes, expected {file.bytes}; {remedy}"
    if sha256 not in (None, file.sha256):
        return f"{where}: damaged: its sha256 is not the manifest's; {remedy}"
    return None


# ---- parts


class _PartCheck:
    """Finds the problems of the parts of one pack. `index` is None if it is damaged; then no value is checked."""

    def __init__(self, folder: Path, manifest: Manifest, index: Index | None, level: Level, subset: Subset) -> None:
        self._folder = folder
        self._manifest = manifest
        self._names = manifest.schema.names
        self._index = index
        self._level = level
        self._subset = subset
        self._opener = PartOpener(manifest.format, manifest.schema)
        self._isolated = ReaderProcess(manifest.format, manifest.schema)
        self._columns = ColumnEntries(manifest.schema, manifest.index_names)
        self._codecs: dict[str, Codec] = {}
        if level == "full":
            self._codecs = {field.name: codecs.make(field) for field in manifest.schema}

    def close(self) -> None:
        self._isolated.close()

    def problems(self, number: int) -> Iterator[str]:
        """Yield the problems of one part."""
        part = self._manifest.parts[number]
        path = self._folder / part.name
        first = sum(other.samples for other in self._manifest.parts[:number])
        try:
            state = part_state(path, part, self._manifest, hashed=self._level != "quick" and number in self._subset)
        except PackerError as error:
            yield str(error)
            return
        for extra in state.foreign:
            yield f"{extra}: unknown file: the part does not list it; remove it"
        if state.bytes != part.bytes:
            yield f"{path}: cut, changed or missing files: {state.bytes} bytes, expected {part.bytes}; copy it again"
        if state.is_sound is False:
            yield from self._damaged(part, first)
        elif self._level == "full" or self._subset != EVERYTHING:
            yield from self._records(part, first, self._subset, isolated=not state.is_sound)

    def _damaged(self, part: Part, first: int) -> Iterator[str]:
        path = self._folder / part.name
        found = self._records(part, first, EVERYTHING, isolated=True)
        problem = next(found, None)
        if problem is not None or self._index is None:
            yield f"{path}: damaged part: its sha256 is not the manifest's; pack again from the source"
        else:
            files = self._opener.side_files()
            some = f", such as in {', '.join(files[:_SHOWN])}" if files else ""
            yield (
                f"{path}: damaged part: its sha256 is not the manifest's, but all its values are sound: other bytes "
                f"differ{some}; pack again from the source, or packer convert {self._folder} NEW "
                f"--to {self._manifest.format}"
            )
        if problem is not None:
            yield problem
            yield from found

    def _records(self, part: Part, first: int, subset: Subset, *, isolated: bool) -> Iterator[str]:
        path, index = self._folder / part.name, self._index
        if index is None:
            return
        try:
            with self._reader(path, part, isolated=isolated) as reader:
                for row in range(part.samples):
                    if first + row in subset:
                        for name, problem in self._record(index, reader, row, first + row):
                            yield f"{path} {index.describe(first + row, name)}: {problem}"
        except PackerError as error:
            yield str(error)

    def _reader(self, path: Path, part: Part, *, isolated: bool) -> AbstractContextManager[Reader]:
        if not isolated:
            return self._opener.shared(path, part, self._opener.check(path, part))
        reader = self._isolated.reader(path, part.samples)
        reader.check()
        return closing(reader)

    def _record(self, index: Index, reader: Reader, row: int, at: int) -> Iterator[tuple[str, str]]:
        """Yield (field, problem) of each damaged value of a sample. `row` counts in the part, `at` in the pack."""
        try:
            record = reader.read(row, self._names)
        except CrashingPart:
            raise
        except CorruptPack:
            record = {}  # read the values one at a time
        for name in self._names:
            try:
                value = record[name] if record else reader.read(row, (name,))[name]
                problem = self._value_problem(value, name, index, at)
            except CrashingPart:
                raise
            except CorruptPack as error:
                problem = f"cannot be read: {error}"
            if problem:
                yield name, problem

    def _value_problem(self, value: Buffer, name: str, index: Index, at: int) -> str | None:
        found, expected = zlib.crc32(value), index.crc32(at, name)
        if found != expected:
            return crc32_problem(found, expected)
        codec = self._codecs.get(name)
        try:
            if codec is not None:
                codec.decode(value)
                if codec.has_table:
                    codec.check(value)
            entries = self._columns.of(name, value, index.matrix(at))
        except PackerError as error:
            return f"does not decode: {error}"
        wrong = [file for file, entry in entries.items() if index.entry(at, file) != entry]
        return f"{INDEX}/{wrong[0]}.npy has another entry than this value; run packer index" if wrong else None


# ---- a pack behind a URL


def _problems_at_url(url: StoreURL, level: Level, digest: str | None) -> Iterator[str]:
    """Yield the problems of a pack behind a URL. Files are downloaded to compute their sha256."""
    from packer.pack.remote_head import read_manifest  # the client of the stores, which folders do not need
    from packer.stores.store import Store

    store, remedy = Store(url), "put the pack there again"
    try:
        pack, manifest = read_manifest(store)
    except CorruptPack as error:
        yield str(error)
        return
    if digest not in (None, pack.digest):
        yield _other_pack_text(store.url / manifests.NAME, pack.digest, str(digest))
    found = _objects(store, manifest.listed)
    for name in sorted(found.keys() - manifest.files):
        if not name.startswith(_PARTIAL):
            yield f"{store.url / name}: unknown object: the manifest does not list it; remove it"
    for name, file in manifest.listed.items():
        where, state = store.url / name, found.get(name)
        if state is None:
            yield f"{where}: missing; {remedy}"
            continue
        sha256 = None
        if state.bytes == file.bytes and (level != "quick" or isinstance(file, IndexFile)):
            with tempfile.TemporaryFile() as copy, suppress(NoObject, ObjectChanged):
                sha256 = store.fetch(name, copy.fileno(), bytes=state.bytes, etag=state.etag).sha256
            if sha256 is None:
                yield f"{where}: changed during the verification; run again"
        if problem := _difference(where, file, state.bytes, sha256, remedy):
            yield problem


def _objects(store: "Store", listed: Mapping[str, object]) -> "dict[str, StoredObject]":
    """Return name -> object. A web server cannot list its objects, so only the listed files are looked up."""
    if not store.url.is_web:
        return {found.name: found for found in store.objects()}
    states = {name: store.state(name) for name in listed}
    return {name: state for name, state in states.items() if state is not None}
