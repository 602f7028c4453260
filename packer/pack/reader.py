"""Reader: an open pack with manifest, index and part readers; every size is checked before a part is mapped."""

import functools
import os
import threading
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, CorruptPack, CorruptRecord, DamagedObject, InvalidRequest, PackerError
from packer.files.digest import part_sha256
from packer.formats.base import Reader, Record
from packer.pack import manifest, part_readers
from packer.pack.index import Index
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.manifest import INDEX
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import Key, PartLease, PartOpener
from packer.pack.unlisted_files import sha256_of_listed
from packer.registry import import_or_explain
from packer.schema import Buffer
from packer.system.machine_limits import Machine

VerifyMode = Literal["first", "always", "never", "open"]
VERIFY: tuple[VerifyMode, ...] = get_args(VerifyMode)
_SMALL_BYTES = 64 << 20  # a pack that is read ahead whatever memory is free
_MOST_OPENINGS = 20  # of one pack, which is replaced each time
_NOWHERE: Mapping[str, Path] = MappingProxyType({})


@functools.cache
def _gathering() -> ModuleType:
    """Loaded when a batch is gathered: it brings OpenCV, which reading records does without."""
    return import_or_explain("packer.system.array_gathering", "batches of raw images")


class _Closable(Protocol):
    """What `open_unreplaced` opens."""

    def close(self) -> object:
        """Give it back."""


Opened = TypeVar("Opened", bound=_Closable)


def open_unreplaced(path: Path, opened: Callable[[], Opened]) -> Opened:
    """Open what is at `path` by several steps, and begin again if something else takes its place meanwhile.

    `convert --overwrite` swaps a pack's folder and then empties the old one. So what was opened is one pack, or a part
    of it, only if the path still leads to the same inode afterwards; neither a success nor an error counts otherwise.
    """
    for _ in range(_MOST_OPENINGS):
        before = _identity(path)
        try:
            found = opened()
        except PackerError:
            if _identity(path) == before:
                raise
            continue
        if _identity(path) == before:
            return found
        found.close()
    raise CorruptPack(f"{path}: replaced {_MOST_OPENINGS} times while it was opened; open it when it stays")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and time of the last change, which a rename sets; None where nothing is."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


class PartSupply(Protocol):
    """Brings the parts of a pack that need not be there yet, such as those of a pack behind a URL."""

    @property
    def url(self) -> str:
        """Where the pack is, for messages."""

    def key(self, number: int) -> Key:
        """The identity of a part in the process's table of readers, the same wherever and whenever it is brought."""

    def where(self, number: int) -> str:
        """A part's place, for messages."""

    def lease(self, number: int) -> PartLease:
        """A part, brought where it is not there; it stays until the lease is closed. May take long, and raise."""

    @property
    def room_bytes(self) -> int | None:
        """How many bytes of parts can be there at once; None where that is not limited."""

    @property
    def part_bytes(self) -> Sequence[int]:
        """How many of these each part takes."""

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        """Bring these parts in the background, in this order, as long as there is room.

        more: after those that were to be brought before, instead of in their place.
        """

    def discard(self, number: int) -> None:
        """A part was found damaged: bring it again for the next lease, unless it has the manifest's sha256 here."""

    def give_up(self, parts: Sequence[int]) -> None:
        """These parts will not be needed soon, and make room for others first."""

    def close(self) -> None:
        """Nobody needs a part any more; may be called twice, and in a forked child."""


class Pack:
    """Records of one pack by sample index. Belongs to the process that opened it; may be read by many threads."""

    def __init__(
        self,
        folder: Path,
        *,
        verify: str = "first",
        apart: bool = False,
        copies: Mapping[str, Path] = _NOWHERE,
        on_close: Callable[[], object] | None = None,
        supply: PartSupply | None = None,
    ) -> None:
        """verify: check a value's crc32 the "first" time that this object reads it, "always" or "never".

        "open" is "first", and hashes each part by plain reads before its first value is read, so that a damaged one or
        a failing disk is met at once. apart: each part is hashed so, and a damaged one is read nevertheless, in a
        process of its own, for what is still sound in it. copies: by the name of a part or of the index folder, where
        it is read instead, because it was copied to a faster place. on_close: called once, after the readers were given
        back; not where opening the pack fails. supply: brings each part when it is first read, of a pack in whose
        folder there are only the manifest and the index; it is closed as `on_close` is called.
        Raises InvalidRequest where `folder` is no pack, CorruptPack where a file is missing, cut or damaged.
        """
        if verify not in VERIFY:
            raise InvalidRequest(f"verify={verify!r}: expected one of {', '.join(VERIFY)}")
        self.folder = folder
        self.verify = verify
        self.pid = os.getpid()
        self.manifest = manifest.read(folder)
        self.schema = self.manifest.schema
        self._supply = supply
        if supply is None:
            check_mostly_holes(folder, self.manifest, copies=copies)
        self.index = Index(copies.get(INDEX, folder / INDEX).parent, self.manifest)
        self._opener = PartOpener(self.manifest.format, self.schema)
        self._parts = [(copies.get(part.name, folder / part.name), part) for part in self.manifest.parts]
        if supply is None:
            self._keys = [self._opener.check(path, part) for path, part in self._parts]
        else:
            self._keys = [supply.key(number) for number in range(len(self._parts))]
        self._ends = list(accumulate(part.samples for part in self.manifest.parts))
        self._apart = ReaderProcess(self.manifest.format, self.schema) if apart else None
        self._is_plain = not apart and verify != "open" and supply is None  # parts are there, and read as they are
        self._hashing = threading.Lock()
        self._hashed: dict[int, bool] = {}
        self._damaged: dict[int, Reader] = {}
        self._checks: dict[str, Callable[[Buffer], None]] = {}
        self._field_count = len(self.schema)
        self._checked = bytearray((self._field_count * len(self.index) + 7) // 8)
        self.readahead = _fits_memory(sum(part.bytes for part in self.manifest.parts))
        part_readers.open_readers.own(self._keys)
        self._closing = weakref.finalize(self, _close, self._keys, self.pid, self._apart, supply, on_close)

    def close(self) -> None:
        """Give the readers back; may be called twice, and is called when nobody has the pack any more."""
        self._closing()

    def __len__(self) -> int:
        return self.manifest.samples

    @property
    def is_mapped(self) -> bool:
        """Whether records are views of mapped files; otherwise each is read into memory of its own."""
        return self._opener.is_mapped

    def locate(self, index: int) -> tuple[int, int]:
        """Part number and row in it of a sample, 0 <= index < len."""
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    @property
    def supply(self) -> PartSupply | None:
        """What brings the parts of this pack when they are read; None where they are all there."""
        return self._supply

    def part_numbers(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Part number of each sample, 0 <= index < len."""
        return np.searchsorted(np.asarray(self._ends, np.int64), indices, side="right")

    def reader(self, number: int) -> Reader:
        """Open one part; the caller closes it. Nobody in this process may have it open: `record` shares one."""
        return open_unreplaced(self._parts[number][0], lambda: self._opened(number))

    def _opened(self, number: int) -> Reader:
        path, part = self._parts[number]
        if self._opener.check(path, part) != self._keys[number]:
            # --overwrite may have put another pack in the place of ours
            raise CorruptPack(f"{path}: part was replaced since the pack was opened; open the pack again")
        return self._opener.open(path, part.samples, readahead=self.readahead)

    def record(self, index: int, names: Sequence[str], *, check: bool = True) -> AbstractContextManager[Record]:
        """The named encoded values of a sample, valid inside the block; raises CorruptRecord, CorruptPack.

        check: False leaves comparing to the caller, value by value, with `compare`.
        """
        return _PinnedRecord(self, index, names, check=check)

    @contextmanager
    def records(self, indices: Sequence[int], names: Sequence[str]) -> Iterator[list[Record]]:
        """As `record`, for many samples: all of them are valid inside the block."""
        with ExitStack() as pins:
            try:
                found = self._read(indices, names, pins)
            except CorruptPack:
                if self._supply is None:
                    raise
                pins.pop_all().close()
                self._renew(indices, names)
                found = self._read(indices, names, pins)
            yield found

    def _renew(self, indices: Sequence[int], names: Sequence[str]) -> None:
        """Read these samples one by one, so that each damaged part is brought again."""
        for index in indices:
            with self.record(index, names):
                pass

    def _read(self, indices: Sequence[int], names: Sequence[str], pins: ExitStack) -> list[Record]:
        """The named values of many samples, valid until `pins` is closed."""
        found: list[Record] = []
        readers: dict[int, Reader] = {}
        for index in indices:
            number, row = self.locate(index)
            if number not in readers:
                if self._may_wait(number) and readers:
                    found[:] = [{name: bytes(value) for name, value in record.items()} for record in found]
                    readers.clear()
                    pins.pop_all().close()
                readers[number] = pins.enter_context(self.pinned(number))
            values = readers[number].read(row, names)
            if self.verify != "never":
                self.check(index, values)
            found.append(values)
        return found

    def gather(self, indices: npt.NDArray[np.int64], name: str, out: npt.NDArray[np.uint8]) -> None:
        """Copy a field whose values have one size into uint8 (len(indices), size); raises as `record` does."""
        try:
            self._gather(indices, name, out)
        except CorruptPack:
            if self._supply is None:
                raise
            self._renew(indices.tolist(), (name,))
            self._gather(indices, name, out)

    def _gather(self, indices: npt.NDArray[np.int64], name: str, out: npt.NDArray[np.uint8]) -> None:
        found: dict[int, tuple[list[int], list[int]]] = {}
        for position, index in enumerate(indices.tolist()):
            number, row = self.locate(index)
            rows, positions = found.setdefault(number, ([], []))
            rows.append(row)
            positions.append(position)
        values: list[Buffer] = [b""] * len(indices)
        with ExitStack() as pins:
            for number, (rows, positions) in found.items():
                if self._may_wait(number):
                    values = [bytes(value) for value in values]
                    pins.pop_all().close()
                reader = pins.enter_context(self.pinned(number))
                for position, value in zip(positions, reader.values(rows, name), strict=True):
                    if len(value) != out.shape[1]:
                        raise CorruptPack(
                            f"{self.where(int(indices[position]), name)}: expected {out.shape[1]} bytes, "
                            f"found {len(value)}; pack again"
                        )
                    values[position] = value
            _gathering().gather(values, out)
        for position in self._unverified(indices, name):
            self.check(int(indices[position]), {name: out[position].data})

    def pinned(self, number: int) -> AbstractContextManager[Reader]:
        """The reader of a part, which stays open inside the block; a damaged one's where parts are read apart."""
        if self._is_plain:
            return part_readers.open_readers.pinned(self._keys[number], lambda: self.reader(number))
        if (self._apart is not None or self.verify == "open") and not self._is_sound(number):
            return nullcontext(self._damaged[number])
        if self._supply is not None:
            return self._leased(number, self._supply)
        return part_readers.open_readers.pinned(self._keys[number], lambda: self.reader(number))

    def _may_wait(self, number: int) -> bool:
        """Whether a part may have to be brought: who waits for that must not keep others from being removed for it."""
        return self._supply is not None and not part_readers.open_readers.is_open(self._keys[number])

    @contextmanager
    def _leased(self, number: int, supply: PartSupply) -> Iterator[Reader]:
        key, readers = self._keys[number], part_readers.open_readers
        entry = readers.pin_open(key)
        if entry is None:
            part = self.manifest.parts[number]
            lease = supply.lease(number)  # not under the lock of all readers: it may be a download
            entry = readers.pin_leased(
                key, lambda: self._opener.open(lease.path, part.samples, readahead=self.readahead), lease
            )
        try:
            yield entry.reader
        finally:
            readers.unpin(key, entry)

    @contextmanager
    def _part_path(self, number: int) -> Iterator[Path]:
        """Where a part is, inside the block."""
        if self._supply is None:
            yield self._parts[number][0]
            return
        lease = self._supply.lease(number)
        try:
            yield lease.path
        finally:
            lease.close()

    def _is_sound(self, number: int) -> bool:
        """Whether a part is what the manifest says, hashed once; raises CorruptPack where it may not be read then."""
        part = self.manifest.parts[number]
        if number in self._hashed:
            return self._hashed[number]
        with self._part_path(number) as path, self._hashing:  # threads come to a part at once
            if number not in self._hashed:
                self._opener.check(path, part)
                try:
                    if self._apart is None:
                        found = sha256_of_listed(path, part, self.manifest)
                    else:
                        found = part_sha256(path, most_bytes=part.bytes)  # what may be damaged is not opened here
                except CorruptPack:  # more than the manifest says, or a link: there may be sound samples nevertheless
                    if self._apart is None:
                        raise
                    found = ""
                if found != part.sha256 and self._apart is None:
                    raise CorruptPack(
                        f"{path}: damaged part: sha256 {found[:16]}..., the manifest says {part.sha256[:16]}...; "
                        "packer verify names the samples; copy or pack it again"
                    )
                if found != part.sha256 and self._apart is not None:
                    self._damaged[number] = self._apart.reader(path, part.samples)
                self._hashed[number] = found == part.sha256
            return self._hashed[number]

    def _unverified(self, indices: npt.NDArray[np.int64], name: str) -> list[int]:
        """Positions of those whose value is to be compared with its crc32."""
        if self.verify == "never":
            return []
        if self.verify == "always":
            return list(range(len(indices)))
        bits = indices * self._field_count + self.index.positions[name]
        done = np.frombuffer(self._checked, np.uint8)[bits >> 3] >> (bits & 7).astype(np.uint8) & 1
        missing: list[int] = np.flatnonzero(done == 0).tolist()
        return missing

    def verified_values(self) -> int:
        """How many values have been compared with their crc32, each counted once."""
        return sum(byte.bit_count() for byte in self._checked)

    def check(self, index: int, values: Record) -> None:
        """Compare the values of a sample with their crc32, as `verify` of the pack says; raises CorruptRecord."""
        first = index * self._field_count
        for name, value in values.items():
            bit = first + self.index.positions[name]
            if self.verify != "always" and self._checked[bit >> 3] >> (bit & 7) & 1:
                continue
            self.compare(index, name, value)
            # two threads may lose one of two bits here: then a value is checked once more than needed
            self._checked[bit >> 3] |= 1 << (bit & 7)

    def add_check(self, name: str, check: Callable[[Buffer], None]) -> None:
        """Compare values of this field with themselves too, whenever their crc32 is compared.

        A crc32 says that a value is what was packed; this, that what it says of itself is true, in a pack that anybody
        may have made. check: raises DamagedImage.
        """
        self._checks[name] = check

    def compare(self, index: int, name: str, value: Buffer) -> None:
        """Raise CorruptRecord where the value's crc32 is not the one in the index, or it contradicts itself."""
        found = zlib.crc32(value)
        if found != self.index.crc32(index, name):
            raise CorruptRecord(
                f"{self.where(index, name)}: damaged record: crc32 {found:08x}, "
                f"the index says {self.index.crc32(index, name):08x}; pack again from the source"
            )
        check = self._checks.get(name)
        if check is not None:
            try:
                check(value)
            except BadInput as error:
                raise CorruptRecord(f"{self.where(index, name)}: does not decode: {error}") from error

    def where(self, index: int, name: str) -> str:
        """Part, sample, key and field, for messages."""
        number = self.locate(index)[0]
        path = self._parts[number][0] if self._supply is None else self._supply.where(number)
        return f"{path} {self.index.describe(index, name)}"


class _PinnedRecord:
    """The `with` block of `Pack.record`: a class, as packer.pack.part_readers.ReaderPin."""

    __slots__ = ("_check", "_index", "_names", "_pack", "_pin")
    _pin: AbstractContextManager[Reader]

    def __init__(self, pack: Pack, index: int, names: Sequence[str], *, check: bool) -> None:
        self._pack = pack
        self._index = index
        self._names = names
        self._check = check

    def __enter__(self) -> Record:
        try:
            return self._read()
        except DamagedObject:  # it has been fetched twice
            raise
        except CorruptPack:
            if self._pack.supply is None:
                raise
            number = self._pack.locate(self._index)[0]
            self._pack.supply.discard(number)
            part_readers.open_readers.drop(self._pack.supply.key(number))
        return self._read()

    def _read(self) -> Record:
        pack = self._pack
        number, row = pack.locate(self._index)
        self._pin = pack.pinned(number)
        reader = self._pin.__enter__()
        try:
            values = reader.read(row, self._names)
            if self._check and pack.verify != "never":
                pack.check(self._index, values)
        except BaseException:
            self._pin.__exit__(None, None, None)
            raise
        return values

    def __exit__(self, *_: object) -> None:
        self._pin.__exit__(None, None, None)


def _fits_memory(size_bytes: int) -> bool:
    """Whether half of the free memory holds a pack; a small one is not worth reading the limits of cgroups for."""
    free = None if size_bytes < _SMALL_BYTES else Machine().free_memory()
    return free is None or size_bytes < free // 2


def _close(
    keys: list[Key],
    pid: int,
    apart: ReaderProcess | None,
    supply: PartSupply | None,
    on_close: Callable[[], object] | None,
) -> None:
    try:
        if pid == os.getpid():  # a child after fork has a table of its own
            part_readers.open_readers.disown(keys)
            if apart is not None:
                apart.close()
    finally:
        if supply is not None:
            supply.close()
        if on_close is not None:
            on_close()
