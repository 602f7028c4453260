"""Verification: reads a pack without changing it, and lists every problem.

quick    manifest, unknown and missing files, sizes, crc32 and sha256 of the index and of the extras
default  and the sha256 of each part, and where that differs the crc32 of every value, to name samples and fields
data     and the crc32 and a strict decode of every value, whatever the sha256 says

A subset N/M looks at every M-th part and at every M-th sample of all parts, so that the M subsets together look at
everything. A part that is damaged, or whose sha256 is not looked at, is read in a subprocess (isolated_reader.py): none
ends this one. An expected digest is that of packer.json, which covers all else: `sha256sum PACK/packer.json` tells it.
"""

import os
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from packer import codecs
from packer.codecs.base import Buffer, Codec
from packer.errors import CorruptPack, CrashingPart, InvalidRequest, PackerError
from packer.files.digest import file_bytes, file_sha256, part_bytes, part_sha256
from packer.files.safe_paths import components
from packer.formats.base import Reader
from packer.pack import manifest as manifests
from packer.pack import part_readers
from packer.pack.extra_files import ExtraFiles
from packer.pack.index import Index
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.manifest import EXTRAS, INDEX, IndexFile, Manifest, Part
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener
from packer.pack.unlisted_files import foreign_files, foreign_in_part

Depth = Literal["quick", "default", "data"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)
_SHOWN = 4  # of the files of a part


@dataclass(frozen=True)
class Subset:
    """Every `of`-th item, starting at `number` - 1; the subsets with numbers 1 to `of` contain each item once."""

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
    folder: Path, *, depth: Depth = "default", subset: Subset = EVERYTHING, expect: str | None = None
) -> Iterator[str]:
    """One line per problem, as it is found; a damaged file does not keep the others from being looked at.

    subset: of parts and samples; not for the quick depth, which looks at neither.
    expect: `sha256:` and the hex digest that packer.json shall have.
    Raises InvalidRequest where `folder` is no pack at all, or one of a newer version or unknown format.
    """
    if depth not in DEPTHS:
        raise InvalidRequest(f"depth={depth!r}: expected one of {', '.join(DEPTHS)}")
    if depth == "quick" and subset != EVERYTHING:
        raise InvalidRequest(
            "a quick verification reads no part, so there is no subset of it; leave one of the two out"
        )
    if expect is not None:
        yield from _unexpected(folder / manifests.NAME, expect)
    try:
        manifest = manifests.read(folder)
    except CorruptPack as error:
        yield str(error)
        return
    yield from _unknown(folder, manifest)
    try:
        check_mostly_holes(folder, manifest)
    except CorruptPack as error:  # whatever else is read would take as long as its sizes say
        yield str(error)
        return
    index = yield from _index(folder, manifest)
    yield from _extras(folder, manifest)
    parts = _Parts(folder, manifest, index, depth, subset=subset)
    first = 0
    try:
        for number, part in enumerate(manifest.parts):
            yield from parts.problems(part, first, hashed=number in subset)
            first += part.samples
    finally:
        parts.close()


def parse_digest(expect: str, name: str) -> str:
    """Return the hex digits of `sha256:HEX`; raises InvalidRequest, which names the file `name`."""
    wanted = expect.removeprefix("sha256:").lower()
    if not expect.startswith("sha256:") or not re.fullmatch("[0-9a-f]{64}", wanted):
        raise InvalidRequest(f"expect {expect!r:.100}: expected sha256: and 64 hex digits, as sha256sum {name} prints")
    return wanted


def _unexpected(path: Path, expect: str) -> Iterator[str]:
    wanted = parse_digest(expect, path.name)
    try:
        if file_bytes(path) > manifests.MOST_BYTES:
            return  # reading the manifest says so
        found = file_sha256(path)
    except PackerError:
        return  # reading the manifest says so
    if found != wanted:
        yield f"{path}: another pack than expected: its sha256 is {found}, expected {wanted}; get the pack again"


def _unknown(folder: Path, manifest: Manifest) -> Iterator[str]:
    for path in foreign_files(folder, manifest):
        yield f"{path}: unknown file: the manifest does not list it; remove it"


def _index(folder: Path, manifest: Manifest) -> Generator[str, None, Index | None]:
    """Problems of the index files; returns the index where there are none."""
    sound = True
    for file in manifest.index:
        problem = _numbers_file(folder / INDEX / file.name, file, "index file", "run packer index, or copy it again")
        if problem:
            sound = False
            yield problem
    try:
        return Index(folder, manifest) if sound else None
    except PackerError as error:
        yield str(error)
        return None


def _extras(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Problems of the files of no sample: their bytes, and where these are sound, their names."""
    found = [_numbers_file(folder / EXTRAS / file.name, file, "file", "copy it again") for file in manifest.extras]
    yield from filter(None, found)
    if any(found):
        return
    try:
        for path, _ in ExtraFiles(folder, manifest):
            components(path)
    except PackerError as error:
        yield f"{folder / EXTRAS}: {error}"


def _numbers_file(path: Path, file: IndexFile, noun: str, remedy: str) -> str | None:
    if not os.path.lexists(path):
        return f"{path}: missing {noun}; {remedy}"
    try:
        if file_bytes(path) == file.bytes and file_sha256(path) == file.sha256:
            return None
    except PackerError as error:
        return str(error)
    found = path.stat().st_size
    what = f"{found} bytes, expected {file.bytes}" if found != file.bytes else "its sha256 is not the manifest's"
    return f"{path}: damaged {noun}: {what}; {remedy}"


class _Parts:
    """What is wrong with the parts of one pack."""

    def __init__(
        self, folder: Path, manifest: Manifest, index: Index | None, depth: str, *, subset: Subset = EVERYTHING
    ) -> None:
        """index: None where it is damaged; then values cannot be checked one by one."""
        self._folder = folder
        self._manifest = manifest
        self._schema = manifest.schema
        self._index = index
        self._depth = depth
        self._subset = subset
        self._opener = PartOpener(manifest.format, manifest.schema)
        self._apart = ReaderProcess(manifest.format, manifest.schema)
        self._codecs: dict[str, Codec] = {}
        if depth == "data":
            self._codecs = {field.name: codecs.make(field) for field in self._schema}

    def close(self) -> None:
        """End what was started."""
        self._apart.close()

    def problems(self, part: Part, first: int, *, hashed: bool = True) -> Iterator[str]:
        """Problems of one part; first: index of its first sample in the pack; hashed: whether it is in the subset."""
        path = self._folder / part.name
        sound = None  # not known
        try:
            key = self._opener.check(path, part)
            found, foreign = part_bytes(path), list[Path]()
            hashed = hashed and self._depth != "quick"
            if hashed:
                sound = found == part.bytes and part_sha256(path) == part.sha256
            if found != part.bytes or sound is False:
                foreign = yield from self._foreign(path, part)
            if foreign:  # what the part itself lists may be sound
                without = {os.fsencode(left.relative_to(path)) for left in foreign}
                found = part_bytes(path, without=without)
                if hashed:
                    sound = found == part.bytes and part_sha256(path, without=without) == part.sha256
            if found != part.bytes:  # of a file the opener knows
                yield f"{path}: files are cut, changed or missing: {found} bytes, expected {part.bytes}; copy it again"
        except PackerError as error:
            yield str(error)
            return
        if sound is False:
            yield from self._damaged(part, first)
        elif self._index is not None and (self._depth == "data" or self._subset != EVERYTHING):
            yield from self._records(self._index, part, self._subset, key=key if sound else None, first=first)

    def _damaged(self, part: Part, first: int) -> Iterator[str]:
        """A part whose sha256 is another: its values tell which samples that concerns, and whether any.

        The sha256 is one of all its files, so that it does not tell in which of them another byte is.
        """
        path = self._folder / part.name
        found = self._records(self._index, part, EVERYTHING, key=None, first=first) if self._index is not None else None
        problem = next(found, None) if found is not None else None
        if found is None or problem is not None:
            yield f"{path}: damaged part: its sha256 is not the manifest's; pack again from the source"
        else:
            files = self._opener.side_files()
            some = f", such as in {', '.join(files[:_SHOWN])}" if files else ""
            yield (
                f"{path}: damaged part: its sha256 is not the manifest's, though every value in it is sound: bytes "
                f"differ that hold no value{some}; pack again from the source, or packer convert {self._folder} NEW "
                f"--to {self._manifest.format}"
            )
        if found is not None and problem is not None:
            yield problem
            yield from found

    def _foreign(self, path: Path, part: Part) -> Generator[str, None, list[Path]]:
        """A problem for everything in the part that it does not list; returns that."""
        found: list[Path] = []
        try:
            for left in foreign_in_part(path, part, self._manifest):
                found.append(left)
                yield f"{left}: unknown file: the part does not list it; remove it"
        except PackerError as error:
            yield str(error)
        return found

    def _reader(self, part: Part, key: part_readers.Key | None) -> AbstractContextManager[Reader]:
        """The part, open in this process, where a data set may have it open; without a key in one of its own."""
        path = self._folder / part.name
        if key is None:
            reader = self._apart.reader(path, part.samples)
            reader.check()
            return closing(reader)
        return self._opener.shared(path, part, key)

    def _records(
        self, index: Index, part: Part, subset: Subset, *, key: part_readers.Key | None, first: int
    ) -> Iterator[str]:
        path = self._folder / part.name
        try:
            with self._reader(part, key) as reader:
                for row in range(part.samples):
                    if first + row in subset:
                        for name, problem in self._record(index, reader, row, first + row):
                            yield f"{path} {index.describe(first + row, name)}: {problem}"
        except PackerError as error:
            yield str(error)

    def _record(self, index: Index, reader: Reader, row: int, at: int) -> Iterator[tuple[str, str]]:
        try:
            record = reader.read(row, self._schema.names)
        except CrashingPart:
            raise
        except CorruptPack:
            record = {}  # one value at a time tells which
        for name in self._schema.names:
            try:
                value = record[name] if record else reader.read(row, (name,))[name]
                problem = self._value(value, name, index.crc32(at, name))
            except CrashingPart:
                raise
            except CorruptPack as error:
                problem = f"cannot be read: {error}"
            if problem:
                yield name, problem

    def _value(self, value: Buffer, name: str, expected: int) -> str | None:
        found = zlib.crc32(value)
        if found != expected:
            return f"damaged record: crc32 {found:08x}, the index says {expected:08x}; pack again from the source"
        try:
            if name in self._codecs:
                codec = self._codecs[name]
                codec.decode(value)
                if codec.has_table:
                    codec.check(value)
        except PackerError as error:
            return f"does not decode: {error}"
        return None
