"""Reader: an open pack or collection. `Pack` locates a sample, reads its encoded values, and compares their crc32.

A collection has no parts: its rows are rows of other packs, the members. Values in its index (the key, numbers, and
added fields) come from the index, all others from the parts of the members.
"""

import functools
import os
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, CorruptPack, CorruptRecord, DamagedObject, InvalidRequest
from packer.formats.base import Reader, Record
from packer.pack import manifest
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.manifest import INDEX, Manifest, MemberPack
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_access import CheckedParts, JoinedParts, LocalParts, Parts, PartSupply, SuppliedParts
from packer.pack.part_readers import PartOpener, open_readers
from packer.pack.sample_index import ROWS, Index, crc32_problem
from packer.registry import import_or_explain
from packer.schema import Buffer
from packer.stores.url import is_url
from packer.system.machine_limits import Machine

VerifyMode = Literal["first", "always", "never", "open"]
VERIFY: tuple[VerifyMode, ...] = get_args(VerifyMode)
_SMALL_BYTES = 64 << 20  # a smaller pack is always read ahead
_NOWHERE: Mapping[str, Path] = MappingProxyType({})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@functools.cache
def _gathering() -> ModuleType:
    """Import and return packer.system.buffer_stacking at first use, because only `gather` needs it and OpenCV."""
    return import_or_explain("packer.system.buffer_stacking", "batches of raw images")


@dataclass(frozen=True)
class OpenMember:
    """An open pack with parts: a pack itself, or a member of a collection.

    Attributes:
        folder: the folder of the member.
        manifest: its manifest.
        parts: its parts.
        is_mapped: True if records are slices of mapped files, False if they are copies in memory.
        names: field of the collection -> field of the member, for fields whose names differ.
    """

    folder: Path
    manifest: Manifest
    parts: Parts
    is_mapped: bool
    names: Mapping[str, str]

    @property
    def is_remote(self) -> bool:
        """True if the pack is behind a URL."""
        return self.parts.supply is not None

    @property
    def place(self) -> str:
        """The URL of a remote pack, or its folder."""
        return self.parts.supply.url if self.parts.supply is not None else str(self.folder)


class Pack:
    """The records of one pack, by sample index.

    Thread-safe. A forked child must not use a pack of its parent, but may open the same folder.

    Attributes:
        folder: the folder of the pack.
        verify: when the crc32 of a value is compared, see the constructor.
        pid: number of the process that opened the pack.
        manifest: the manifest.
        schema: the fields of the pack.
        index: the index.
        readahead: True if the pack fits into half of the free memory. Then the system reads ahead in its parts.
        is_mapped: True if records are slices of mapped files, False if they are copies in memory.
        parts: the open parts. For a collection, the parts of its members.
        listed_parts: the entries of the parts in the manifests of the members.
        part_bytes: size of all parts.
        members: the members of a collection. For another pack, the pack itself.
        rows: uint64 (n,): for each sample of a collection its row, counted over all members; None for a pack.
    """

    def __init__(
        self,
        folder: Path,
        *,
        verify: str = "first",
        isolate_damaged: bool = False,
        copies: Mapping[str, Path] = _NOWHERE,
        on_close: Callable[[], object] | None = None,
        supply: PartSupply | None = None,
        remote: "Callable[[str], Pack] | None" = None,
    ) -> None:
        """Open a pack.

        Args:
            folder: the folder with the manifest. It also contains the index and the parts, unless `copies` or `supply`
                replace them.
            verify: when to compare the crc32 of a value: at each read ("always"), at the first ("first"), or not at all
                ("never"). With "open", as "first", and the sha256 of a part is compared before its first read.
            isolate_damaged: True compares the sha256 of parts, and reads damaged parts in another process. False reads
                all parts in this process.
            copies: name of a part or of the index folder -> the path that replaces it.
            on_close: called once when the pack is closed, unless the constructor raised.
            supply: downloads the parts when they are read. Closed with the pack.
            remote: opens a member of a collection that is behind a URL. With `supply`, it opens all members. None
                refuses members behind URLs.

        Raises:
            InvalidRequest: `folder` is not a pack, or `remote` does not fit the members.
            CorruptPack: a file is missing, truncated or damaged.
        """
        if verify not in VERIFY:
            raise InvalidRequest(f"verify={verify!r}: expected one of {', '.join(VERIFY)}")
        found = manifest.read(folder)
        opening = _Opening(verify, isolate_damaged, copies, supply)
        packs: list[Pack] = []
        if remote is not None and supply is None and not any(is_url(member.path) for member in found.members):
            raise InvalidRequest(
                f"{folder}: is in a folder with all its members, and cache=, cache_limit= and patience= are for URLs; "
                "leave them out"
            )
        if found.members:
            if copies:
                raise InvalidRequest(
                    f"{folder}: a collection is read in its folder only; packer convert makes it a pack"
                )
            members = []
            home = os.path.realpath(folder)
            for member in found.members:
                if remote is not None and (supply is not None or is_url(member.path)):
                    packs.append(remote(member.path))
                    own = replace(opening, supply=packs[-1].supply)
                    members.append(_open_member(folder, member, packs[-1].folder, own))
                else:
                    members.append(_open_member(folder, member, member_folder(home, member), opening))
        else:
            if supply is None:
                check_mostly_holes(folder, found, copies=copies)
            members = [opening.member(folder, found)]
        index = Index.open(copies.get(INDEX, folder / INDEX).parent, found)
        rows = index.arrays[ROWS] if found.members else None
        self._assemble(folder, found, index, members, rows, verify=verify, on_close=on_close, made_of=packs)

    @classmethod
    def derived(
        cls,
        members: Sequence[OpenMember],
        rows: npt.NDArray[np.uint64],
        found: Manifest,
        index: Index,
        *,
        made_of: "Sequence[Pack]",
    ) -> "Pack":
        """Return a collection in memory, without a folder.

        Args:
            members: the packs with the values. Another open pack may share them.
            rows: the attribute `rows` of the collection.
            found: the manifest of the collection.
            index: the index of the collection.
            made_of: the open packs of the members, which are closed with the collection. It has the `verify` of the
                first.
        """
        pack = cls.__new__(cls)
        pack._assemble(
            members[0].folder, found, index, members, rows, verify=made_of[0].verify, on_close=None, made_of=made_of
        )
        return pack

    def _assemble(
        self,
        folder: Path,
        found: Manifest,
        index: Index,
        members: Sequence[OpenMember],
        rows: npt.NDArray[np.uint64] | None,
        *,
        verify: VerifyMode,
        on_close: Callable[[], object] | None,
        made_of: "Sequence[Pack]",
    ) -> None:
        self.folder = folder
        self.verify = verify
        self.pid = os.getpid()
        self.manifest = found
        self.schema = found.schema
        self.index = index
        self.members = tuple(members)
        self.rows = rows
        self._row_numbers = rows.data if rows is not None else None  # faster than NumPy for one number
        self.is_mapped = all(member.is_mapped for member in members)
        self.listed_parts = [part for member in members for part in member.manifest.parts]
        self.part_bytes = sum(part.bytes for part in self.listed_parts)
        self.readahead = _fits_memory(self.part_bytes)
        self.parts: Parts = members[0].parts
        if rows is not None:
            self.parts = JoinedParts([(member.parts, member.names) for member in members])
        self._ends = list(accumulate(part.samples for part in self.listed_parts))
        self._starts = np.asarray([0, *self._ends][:-1], np.int64)
        if rows is not None and len(rows) and int(rows.max()) >= self._ends[-1]:
            raise CorruptPack(f"{folder}: rows point outside the members; make the collection again")
        # fields that are read from the index: in a collection, the parts may have other values
        self._indexed: frozenset[str] | None = None
        if rows is not None:
            self._indexed = frozenset(name for name in self.schema.names if index.contains(name))
            _check_fields(folder, members, {*self.schema.names} - self._indexed)
        self._checks: dict[str, Callable[[Buffer], None]] = {}
        self._field_count = len(self.schema)
        self._checked = bytearray((self._field_count * len(self.index) + 7) // 8)  # a bit for each value
        open_readers.own(self.parts.keys)
        self._closing = weakref.finalize(self, _close, self.parts, self.pid, on_close)
        self._made_of = tuple(made_of)

    def close(self) -> None:
        """Release the readers. A second call has no effect. The garbage collector also closes a pack."""
        self._closing()
        for pack in self._made_of:
            pack.close()

    def __len__(self) -> int:
        return self.manifest.samples

    @property
    def supply(self) -> PartSupply | None:
        """The supply that downloads the parts of this pack. None for local parts, and for parts of several packs."""
        return self.parts.supply

    @property
    def is_in_memory(self) -> bool:
        """True for a collection in memory, which is not saved in a folder."""
        return self.rows is not None and not self.manifest.members

    def locate(self, index: int) -> tuple[int, int]:
        """Return (number of the part, row in the part) of the sample `index`, 0 <= index < len."""
        row = index if self._row_numbers is None else self._row_numbers[index]
        number = bisect_right(self._ends, row)
        return number, row - (self._ends[number - 1] if number else 0)

    def part_numbers(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the part of each sample, int64, 0 <= index < len."""
        rows = indices if self.rows is None else self.rows[indices].astype(np.int64)
        return np.searchsorted(self._starts, rows, side="right") - 1

    # ---- reading

    def record(self, index: int, names: Sequence[str], *, check: bool = True) -> AbstractContextManager[Record]:
        """Return a `with` block that yields the named encoded values of a sample, valid inside the block.

        Args:
            index: 0 <= index < len.
            names: fields.
            check: True compares the crc32 as `verify` requires. False compares none, because you call `compare` for
                each value.

        Raises:
            CorruptRecord: a value is damaged.
            CorruptPack: the part is damaged.
        """
        return _PinnedRecord(self, index, names, check=check) if names else nullcontext({})

    @contextmanager
    def records(self, indices: Sequence[int], names: Sequence[str]) -> Iterator[list[Record]]:
        """Return a `with` block that yields a list of records, valid inside the block. Errors are those of `record`."""
        with ExitStack() as pins:
            try:
                found = self._read(indices, names, pins)
            except CorruptPack:
                pins.pop_all().close()
                self._fetch_again(indices, names)
                found = self._read(indices, names, pins)
            yield found

    def gather(self, indices: npt.NDArray[np.int64], name: str, out: npt.NDArray[np.uint8]) -> None:
        """Copy the encoded values of a field of fixed size into an array.

        Args:
            indices: samples.
            name: the field.
            out: uint8 (len(indices), size of a value).

        Raises:
            CorruptRecord: a value is damaged.
            CorruptPack: the part is damaged, or a value has another size.
        """
        try:
            self._gather(indices, name, out)
        except CorruptPack:
            self._fetch_again(indices.tolist(), (name,))
            self._gather(indices, name, out)

    def _fetch_again(self, indices: Sequence[int], names: Sequence[str]) -> None:
        """Read samples one by one, which downloads damaged remote parts again. Raises CorruptPack for a local part."""
        for index in indices:
            with self.record(index, names):
                pass

    def _read(self, indices: Sequence[int], names: Sequence[str], pins: ExitStack) -> list[Record]:
        """Return the named values of many samples, valid until `pins` is closed.

        Before a download, values that were read are copied and their parts are unpinned.
        """
        found: list[Record] = [{}] * len(indices)
        stored, indexed = self._divided(names)
        for number, places in self._by_part(np.asarray(indices, np.int64)).items():
            if self.parts.may_download(number):
                found = [{name: bytes(value) for name, value in record.items()} for record in found]
                pins.pop_all().close()
            reader = pins.enter_context(self.parts.pinned(number))
            for position, row in places:
                found[position] = reader.read(row, stored)
                if self.verify != "never":
                    self.check(indices[position], found[position])
        if indexed:
            found = [self._with_indexed(values, index, indexed) for index, values in zip(indices, found, strict=True)]
        return found

    def _by_part(self, indices: npt.NDArray[np.int64]) -> dict[int, list[tuple[int, int]]]:
        numbers = self.part_numbers(indices)
        inside = (indices if self.rows is None else self.rows[indices].astype(np.int64)) - self._starts[numbers]
        found: dict[int, list[tuple[int, int]]] = {}
        for position, (number, row) in enumerate(zip(numbers.tolist(), inside.tolist(), strict=True)):
            found.setdefault(number, []).append((position, row))
        return found

    def _divided(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        if self._indexed is None or self._indexed.isdisjoint(names):
            return names, ()
        return [name for name in names if name not in self._indexed], [name for name in names if name in self._indexed]

    def _with_indexed(self, values: Record, index: int, names: Sequence[str]) -> Record:
        return {**values, **{name: self.index.value(index, name) for name in names}}

    def _gather(self, indices: npt.NDArray[np.int64], name: str, out: npt.NDArray[np.uint8]) -> None:
        values: list[Buffer] = [b""] * len(indices)
        with ExitStack() as pins:
            for number, places in self._by_part(indices).items():
                if self.parts.may_download(number):
                    values = [bytes(value) for value in values]
                    pins.pop_all().close()
                reader = pins.enter_context(self.parts.pinned(number))
                found = reader.values([row for _, row in places], name)
                for (position, _), value in zip(places, found, strict=True):
                    if len(value) != out.shape[1]:
                        raise CorruptPack(
                            f"{self.where(int(indices[position]), name)}: expected {out.shape[1]} bytes, "
                            f"found {len(value)}; pack again"
                        )
                    values[position] = value
            _gathering().gather(values, out)
        for position in self._unverified(indices, name):
            self.check(int(indices[position]), {name: out[position].data})

    # ---- checking

    def _unverified(self, indices: npt.NDArray[np.int64], name: str) -> list[int]:
        """Return the positions in `indices` of samples whose field `name` must be compared with its crc32."""
        if self.verify == "never":
            return []
        if self.verify == "always":
            return list(range(len(indices)))
        bits = indices * self._field_count + self.index.positions[name]
        done = np.frombuffer(self._checked, np.uint8)[bits >> 3] >> (bits & 7).astype(np.uint8) & 1
        missing: list[int] = np.flatnonzero(done == 0).tolist()
        return missing

    def check(self, index: int, values: Record) -> None:
        """Compare values with their crc32, at each call if `verify` is "always", else once. Raises CorruptRecord."""
        first = index * self._field_count
        for name, value in values.items():
            bit = first + self.index.positions[name]
            if self.verify != "always" and self._checked[bit >> 3] >> (bit & 7) & 1:
                continue
            self.compare(index, name, value)
            # two threads may lose one of two bits here: then a value is compared twice
            self._checked[bit >> 3] |= 1 << (bit & 7)

    def add_check(self, name: str, check: Callable[[Buffer], None]) -> None:
        """Add a function that checks the values of a field. It runs after each comparison of a crc32.

        A hostile pack may contain inconsistent values with a correct crc32.

        Args:
            name: the field.
            check: raises BadInput for an inconsistent value.
        """
        self._checks[name] = check

    def compare(self, index: int, name: str, value: Buffer) -> None:
        """Raise CorruptRecord if the crc32 of a value is not that in the pack, or if a check of `add_check` fails."""
        found = zlib.crc32(value)
        if found != self.index.crc32(index, name):
            raise CorruptRecord(f"{self.where(index, name)}: {crc32_problem(found, self.index.crc32(index, name))}")
        check = self._checks.get(name)
        if check is not None:
            try:
                check(value)
            except BadInput as error:
                raise CorruptRecord(f"{self.where(index, name)}: does not decode: {error}") from error

    def unlike_members(self) -> Iterator[str]:
        """Yield a line for each value whose crc32 in the collection differs from the crc32 in the member pack."""
        starts = np.cumsum([0, *(member.manifest.samples for member in self.members)])
        rows = np.arange(len(self)) if self.rows is None else self.rows.astype(np.int64)
        for member, start, stop in zip(self.members, starts, starts[1:], strict=False):
            at = np.flatnonzero((rows >= start) & (rows < stop))
            index = Index.open(member.folder, manifest.read(member.folder))  # it may have grown
            for name in sorted({*self.schema.names} - (self._indexed or frozenset())):
                stored = index.arrays["crc32"][rows[at] - start, index.positions[member.names.get(name, name)]]
                differing = at[self.index.arrays["crc32"][at, self.index.positions[name]] != stored]
                yield from (
                    f"{self.folder} {self.index.describe(found, name)}: another crc32 than in {member.folder}; make "
                    "the collection again"
                    for found in differing.tolist()
                )

    def where(self, index: int, name: str) -> str:
        """Return a text for messages that names the part, sample, key and field of a value."""
        return f"{self.parts.where(self.locate(index)[0])} {self.index.describe(index, name)}"


@dataclass(frozen=True)
class _Opening:
    verify: str
    isolate_damaged: bool
    copies: Mapping[str, Path]
    supply: PartSupply | None

    def member(self, folder: Path, found: Manifest, names: Mapping[str, str] = _NO_NAMES) -> OpenMember:
        opener = PartOpener(found.format, found.schema)
        readahead = _fits_memory(sum(part.bytes for part in found.parts))
        parts: Parts
        if self.supply is None:
            paths = [self.copies.get(part.name, folder / part.name) for part in found.parts]
            parts = LocalParts(paths, found, opener, readahead=readahead)
        else:
            parts = SuppliedParts(self.supply, found, opener, readahead=readahead)
        if self.isolate_damaged or self.verify == "open":
            isolated = ReaderProcess(found.format, found.schema) if self.isolate_damaged else None
            parts = CheckedParts(parts, found, isolated=isolated)
        return OpenMember(folder, found, parts, opener.is_mapped, names)


def member_folder(home: str, member: MemberPack) -> Path:
    """Return the folder of a member of the collection `home`, a path without links. Raises InvalidRequest for a URL."""
    if is_url(member.path):
        raise InvalidRequest(
            f"{home}: its member {member.path} is behind a URL: give packer.open cache=, a folder for its parts"
        )
    return Path(os.path.normpath(os.path.join(home, member.path)))


def _open_member(folder: Path, member: MemberPack, path: Path, opening: _Opening) -> OpenMember:
    """Open the pack `path` as `member` of the collection `folder`. Raises CorruptPack if it is not this member."""
    try:
        found = manifest.read(path)
    except InvalidRequest as error:
        raise CorruptPack(
            f"{folder}: its member {member.path} is missing: {error.message}; bring it back, or make the collection "
            "again"
        ) from error
    if member.pack_id in found.earlier_ids:  # `packer append` added parts at the end
        ends = accumulate(part.samples for part in found.parts)
        parts = tuple(part for part, end in zip(found.parts, ends, strict=True) if end <= member.samples)
        found = replace(found, parts=parts, samples=sum(part.samples for part in parts), pack_id=member.pack_id)
    if found.pack_id != member.pack_id or found.samples != member.samples or found.members:
        raise CorruptPack(
            f"{folder}: its member {member.path} is another pack: its pack id is {found.pack_id:.12}, expected "
            f"{member.pack_id:.12}; bring the pack back, or make the collection again"
        )
    return opening.member(path, found, member.names)


def _check_fields(folder: Path, members: Sequence[OpenMember], names: Collection[str]) -> None:
    """Raise CorruptPack if a member of the collection in `folder` lacks one of the fields `names`."""
    for member in members:
        for stored in (member.names.get(name, name) for name in names):
            if stored not in member.manifest.schema:
                raise CorruptPack(f"{folder}: {member.folder} has no field {stored!r}; make the collection again")


class _PinnedRecord:
    """The result of `Pack.record`, a context manager. A class is faster than a generator."""

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
        except DamagedObject:  # the part was downloaded twice already
            raise
        except CorruptPack:
            if not self._pack.parts.fetch_again(self._pack.locate(self._index)[0]):
                raise
        return self._read()

    def _read(self) -> Record:
        pack = self._pack
        number, row = pack.locate(self._index)
        self._pin = pack.parts.pinned(number)
        reader = self._pin.__enter__()
        try:
            stored, indexed = pack._divided(self._names)
            values = reader.read(row, stored)
            if self._check and pack.verify != "never":
                pack.check(self._index, values)
            if indexed:
                values = pack._with_indexed(values, self._index, indexed)
        except BaseException:
            self._pin.__exit__(None, None, None)
            raise
        return values

    def __exit__(self, *_: object) -> None:
        self._pin.__exit__(None, None, None)


def _fits_memory(size_bytes: int) -> bool:
    """Return True if the pack fits into half of the free memory. Small packs skip the slow reads of cgroup limits."""
    free = None if size_bytes < _SMALL_BYTES else Machine().free_memory()
    return free is None or size_bytes < free // 2


def _close(parts: Parts, pid: int, on_close: Callable[[], object] | None) -> None:
    try:
        if pid == os.getpid():  # a forked child has an empty cache
            open_readers.disown(parts.keys)
        parts.close()
    finally:
        if on_close is not None:
            on_close()
