"""Derived pack: a pack in memory that selects, joins or changes the samples of open packs. Images are not copied.

The collection reads images from the parts of these packs. Its index is computed in memory from their indexes, and takes
about 70 bytes per sample. An array of the index, such as the sorted keys, is computed at first use.

A `PackRecipe` describes how to open a pack or make a collection in any process. A dataset is pickled as its recipe, and
a conversion takes a recipe as its source.
"""

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import __version__, codecs
from packer.errors import CorruptPack, InvalidRequest
from packer.pack.manifest import COLLECTION, VERSION, Manifest, canonical
from packer.pack.part_readers import open_unreplaced
from packer.pack.reader import OpenMember, Pack, VerifyMode
from packer.pack.sample_index import (
    ROWS,
    ColumnEntries,
    Index,
    bounds_of,
    concatenated,
    ends_in,
    file_forms,
    is_ends,
    key_order,
    lengths,
)
from packer.schema import KEY, MATRIX, PIXEL_KINDS, Field, Schema

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Makers = dict[str, Callable[[], Array]]
_CHUNK = 256  # records that are read at once


class LazyArrays(UserDict[str, Any]):
    """A mapping from names to arrays. A value may also be a function, which makes the array at first use."""

    def __getitem__(self, name: str) -> Array:
        if callable(self.data[name]):
            self.data[name] = self.data[name]()
        found: Array = self.data[name]
        return found


# ---- how to make a pack again


class PackRecipe(ABC):
    """A picklable description of how to open a pack, or to make a collection in memory."""

    @abstractmethod
    def open(self, verify: VerifyMode, *, isolate_damaged: bool = False) -> Pack:
        """Return the pack. The arguments are those of the constructor of `Pack`."""

    def pinned(self, pack: Pack) -> "PackRecipe":
        """Return a recipe for `pack`, a result of `open`. The recipe raises CorruptPack if the pack is replaced."""
        return self


@dataclass(frozen=True)
class FolderRecipe(PackRecipe):
    """A recipe that opens the pack in the folder `path`. `remote` is an argument of `Pack`.

    With `pack_id`, the recipe opens only the pack with this id. If that pack has grown, it opens the first `samples`.
    """

    path: Path
    pack_id: str | None = None
    samples: int = 0
    remote: Callable[[str], Pack] | None = None

    def open(self, verify: VerifyMode, *, isolate_damaged: bool = False) -> Pack:
        pack = open_unreplaced(self.path, lambda: self._opened(verify, isolate_damaged=isolate_damaged))
        if self.pack_id in (None, pack.manifest.pack_id):
            return pack
        if self.pack_id in pack.manifest.earlier_ids:  # `packer append` added samples at the end
            return selected(pack, np.arange(self.samples))
        pack.close()
        raise CorruptPack(f"{self.path}: the pack was replaced after the dataset was opened; open it again")

    def _opened(self, verify: VerifyMode, *, isolate_damaged: bool) -> Pack:
        return Pack(self.path, verify=verify, isolate_damaged=isolate_damaged, remote=self.remote)

    def pinned(self, pack: Pack) -> PackRecipe:
        return self if self.pack_id is not None else replace(self, pack_id=pack.manifest.pack_id, samples=len(pack))


@dataclass(frozen=True)
class ChangedPack(PackRecipe):
    """A recipe that opens `pack` and returns `step(pack)`. `step` calls a function such as `selected` or `renamed`."""

    pack: PackRecipe
    step: Callable[[Pack], Pack]

    def open(self, verify: VerifyMode, *, isolate_damaged: bool = False) -> Pack:
        return self.step(self.pack.open(verify, isolate_damaged=isolate_damaged))


@dataclass(frozen=True)
class JoinedPacks(PackRecipe):
    """A recipe that opens several packs and joins them. `prefixes` is the argument of `joined`."""

    packs: Sequence[PackRecipe]
    prefixes: Sequence[str]

    def open(self, verify: VerifyMode, *, isolate_damaged: bool = False) -> Pack:
        return joined([each.open(verify, isolate_damaged=isolate_damaged) for each in self.packs], self.prefixes)


# ---- the four ways to make a collection


def selected(pack: Pack, indices: Indices) -> Pack:
    """Return a collection of the samples at `indices`, in this order. Raises InvalidRequest if an index is repeated."""
    values, counts = np.unique(indices, return_counts=True)
    if len(values) != len(indices):
        raise InvalidRequest(
            f"{pack.folder}: {int((counts > 1).sum())} samples are selected more than once, such as "
            f"{pack.index.key(int(values[counts.argmax()]))!r}; a pack contains each once, and weights= of "
            "packer.Loader repeats samples"
        )
    makers: Makers = {name: partial(_taken, pack.index.arrays, name, indices) for name in pack.index.arrays}
    makers["key_order"] = lambda: np.argsort(_ranks(pack.index.arrays["key_order"])[indices]).astype("<u8")
    wanted = set()
    if pack.manifest.incomplete:
        wanted = {pack.index.key(index) for index in indices.tolist()}
    changed = replace(pack.manifest, incomplete=tuple(item for item in pack.manifest.incomplete if item[0] in wanted))
    what = ["rows", _sha256(indices.astype("<i8"))]
    return _derived([pack], pack.members, _rows(pack)[indices], changed, makers, what=what)


def with_field(pack: Pack, field: Field, values: Sequence[Any] | Array) -> Pack:
    """Return a collection with an additional field. It replaces a field with the same name.

    Args:
        pack: the pack.
        field: the new field, of kind number, text, json, points or boxes.
        values: the decoded value of each sample, in order.

    Raises:
        InvalidRequest: the field has another kind, or a value does not fit it.
    """
    if field.kind in (*PIXEL_KINDS, "bytes") or field.name == KEY:
        raise InvalidRequest(f"field {field.name!r} of kind {field.kind}: expected number, text, json, points or boxes")
    codec = codecs.make(field)
    fields = {each.name: each for each in pack.schema} | {field.name: field}
    schema = Schema(tuple(fields.values()), pack.schema.form_of)
    if field.is_column:
        column = _column(field, values, len(pack))
        made = {f"number-{field.name}": column}
        encoded: Iterable[Any] = column
    else:
        if len(values) != len(pack):
            raise InvalidRequest(f"field {field.name!r}: expected {len(pack)} values, found {len(values)}")
        encoded = [codec.encode(value) for value in values]
        made = _entries(pack, schema, field.name, encoded)
    makers = _arrays_of(pack, without=[field.name]) | {name: partial(made.__getitem__, name) for name in made}
    makers["crc32"] = lambda: _with_crc32(pack, tuple(fields), field.name, encoded)
    changed = replace(pack.manifest, schema=schema)
    what = ["field", field.to_json(), _sha256(*made.values())]
    return _derived([pack], pack.members, _rows(pack), changed, makers, what=what)


def renamed(pack: Pack, names: Mapping[str, str]) -> Pack:
    """Return a collection whose fields have other names.

    Args:
        pack: the pack.
        names: old name -> new name.

    Raises:
        UnknownKey: the pack has no field with an old name.
        InvalidRequest: two fields would have one name, or the field `key` would be renamed.
    """
    for old in names:
        pack.schema[old]  # raises UnknownKey
    if KEY in {*names, *names.values()}:
        raise InvalidRequest(f"{pack.folder}: the field 'key' keeps its name")

    def new(name: str | None) -> str | None:
        return name and names.get(name, name)

    fields = [
        replace(each, name=str(new(each.name)), of=new(each.of), starts=new(each.starts), into=new(each.into))
        for each in pack.schema
    ]
    members = []
    for member in pack.members:
        stored = {names.get(name, name): member.names.get(name, name) for name in pack.schema.names}
        known = {name: old for name, old in stored.items() if name != old and old in member.manifest.schema}
        members.append(replace(member, names=known))
    makers = {}
    for name, maker in _arrays_of(pack).items():
        prefix, dash, field = name.partition("-")
        makers[f"{prefix}{dash}{names.get(field, field)}"] = maker
    changed = replace(pack.manifest, schema=Schema(tuple(fields), pack.schema.form_of))
    return _derived([pack], members, _rows(pack), changed, makers, what=["names", dict(names)])


def joined(packs: Sequence[Pack], prefixes: Sequence[str]) -> Pack:
    """Return a collection of all samples of packs, one pack after another.

    Class lists are merged by name. The classes of the first pack keep their numbers, and classes that only later packs
    have follow. Hidden fields that are not in every pack are skipped.

    Args:
        packs: the packs. Their fields have equal kinds, dtypes, shapes and codecs.
        prefixes: text before the keys of each pack, such as "day1/"; "" to keep the keys.

    Raises:
        InvalidRequest: the fields differ, or masks have different class lists.
        BadInput: two samples have the same key.
    """
    if any(MATRIX.name in pack.schema for pack in packs):  # others have the pixels of the original images
        identity = np.eye(2, 3)[np.newaxis]
        packs = [
            pack if MATRIX.name in pack.schema else with_field(pack, MATRIX, identity.repeat(len(pack), 0))
            for pack in packs
        ]
    names = _common_names(packs)
    fields = [_merged_field([pack.schema[name] for pack in packs], packs) for name in names]
    schema = Schema(tuple(fields), packs[0].schema.form_of)
    packs = [_conformed(pack, schema, prefix) for pack, prefix in zip(packs, prefixes, strict=True)]
    for field in fields:
        if any(pack.index.contains(field.name) for pack in packs):  # in the index of one pack, so in that of all
            packs = [pack if pack.index.contains(field.name) else _with_stored(pack, field) for pack in packs]
    shared = set.intersection(*({*pack.index.arrays} for pack in packs))
    makers: Makers = {
        name: partial(concatenated, [pack.index.arrays for pack in packs], name) for name in sorted(shared)
    }
    makers["crc32"] = lambda: np.concatenate(
        [pack.index.arrays["crc32"][:, [pack.index.positions[name] for name in names]] for pack in packs]
    )
    keys, ends = makers["keys"], makers["key_ends"]  # a function that refers to `makers` would be a reference cycle
    makers["key_order"] = lambda: key_order(keys().tobytes(), ends())
    totals = [sum(member.manifest.samples for member in pack.members) for pack in packs]
    starts = np.cumsum([0, *totals])
    rows = np.concatenate([_rows(pack) + np.uint64(start) for pack, start in zip(packs, starts, strict=False)])
    members = [member for pack in packs for member in pack.members]
    manifests = [pack.manifest for pack in packs]
    changed = replace(
        manifests[0],
        samples=len(rows),
        schema=schema,
        options=_agreed([each.options for each in manifests]),
        source=_agreed([each.source for each in manifests]),
        skipped=(),
        incomplete=tuple(item for each in manifests for item in each.incomplete),
        extras=(),
    )
    return _derived(packs, members, rows, changed, makers, what=["joined"])


def _derived(
    packs: Sequence[Pack],
    members: Sequence[OpenMember],
    rows: npt.NDArray[np.uint64],
    changed: Manifest,
    makers: Mapping[str, Callable[[], Array]],
    *,
    what: Sequence[object],
) -> Pack:
    """Return a collection. Its id is a digest of the ids of `packs` and of `what`, a JSON description of the change."""
    ids = [pack.manifest.pack_id for pack in packs]
    manifest = replace(
        changed,
        format=COLLECTION,
        samples=len(rows),
        parts=(),
        index=(),
        members=(),
        written_by=f"packer {__version__}",
        version=VERSION,
        pack_id=hashlib.sha256(canonical({"made_of": ids, "by": list(what)})).hexdigest(),
    )
    index = Index(LazyArrays({**makers, ROWS: lambda: rows}), manifest.schema, len(rows), packs[0].folder)
    return Pack.derived(members, rows, manifest, index, made_of=packs)


# ---- parts of an index


def _arrays_of(pack: Pack, without: Collection[str] = ()) -> Makers:
    arrays = pack.index.arrays
    return {name: partial(arrays.__getitem__, name) for name in arrays if name.partition("-")[2] not in without}


def _rows(pack: Pack) -> npt.NDArray[np.uint64]:
    return pack.rows if pack.rows is not None else np.arange(len(pack), dtype=np.uint64)


def _taken(arrays: Mapping[str, Array], name: str, indices: Indices) -> Array:
    if bounds_of(name) is not None:
        return _ragged(arrays[name], ends_in(arrays, name), indices)
    if is_ends(name):
        return np.cumsum(lengths(arrays[name])[indices], dtype="<u8")
    return np.ascontiguousarray(arrays[name][indices])


def _ragged(data: Array, ends: Array, indices: Indices) -> Array:
    """Return the entries of the samples at `indices`. `ends` has the end of the entries of each sample in `data`."""
    counts = lengths(ends)
    starts = ends.astype(np.int64) - counts
    chosen = counts[indices]
    shifts = starts[indices] - (np.cumsum(chosen) - chosen)
    return data[np.repeat(shifts, chosen) + np.arange(int(chosen.sum()))]


def _ranks(order: Array) -> Indices:
    ranks = np.empty(len(order), np.int64)
    ranks[order.astype(np.int64)] = np.arange(len(order))
    return ranks


def _column(field: Field, values: Sequence[Any] | Array, count: int) -> Array:
    given = np.asarray(values)
    if given.shape != (count, *(field.shape or ())):
        raise InvalidRequest(
            f"field {field.name!r}: expected values of shape {(count, *(field.shape or ()))}, found {given.shape}"
        )
    column = given.astype(np.dtype(field.dtype).newbyteorder("<"))
    if not np.array_equal(column, given, equal_nan=given.dtype.kind == "f"):
        raise InvalidRequest(f"field {field.name!r}: its {given.dtype} values do not fit {field.dtype}")
    return np.ascontiguousarray(column.reshape(count, -1) if field.shape else column)


def _entries(pack: Pack, schema: Schema, name: str, values: Sequence[bytes]) -> dict[str, Array]:
    files = {f"{kind}-{name}" for kind in ("values", "value_ends", "count", "row_values", "box_size")}
    columns = ColumnEntries(schema, files)
    entries = [columns.of(name, value, pack.index.matrix(at)) for at, value in enumerate(values)]
    made = {
        file: np.frombuffer(b"".join([entry[file] for entry in entries]), dtype).reshape(-1, *shape)
        for file, (dtype, shape) in file_forms(schema, files).items()
        if file in files and not is_ends(file)
    }
    return {**made, f"value_ends-{name}": np.cumsum(list(map(len, values)), dtype="<u8")}


def _with_crc32(pack: Pack, names: Sequence[str], changed: str, values: Iterable[Any]) -> Array:
    """Return the crc32 array for the fields `names`. `values` are the new encoded values of the field `changed`."""
    old = pack.index.arrays["crc32"]
    table = np.empty((len(pack), len(names)), "<u4")
    for at, name in enumerate(names):
        if name == changed:
            table[:, at] = [zlib.crc32(value) for value in values]
        else:
            table[:, at] = old[:, pack.index.positions[name]]
    return table


def _sha256(*arrays: Array) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def stored_values(pack: Pack, name: str) -> Iterator[bytes]:
    """Yield the encoded value of the field `name` of each sample."""
    for start in range(0, len(pack), _CHUNK):
        with pack.records(range(start, min(start + _CHUNK, len(pack))), [name]) as records:
            yield from (bytes(record[name]) for record in records)


# ---- fields of several packs


def _common_names(packs: Sequence[Pack]) -> list[str]:
    """Return the fields that all packs have. Raises InvalidRequest if a pack lacks a field that is not hidden."""
    everywhere = set.intersection(*({*pack.schema.names} for pack in packs))
    seen = {field.name: pack for pack in packs for field in pack.schema if not field.hidden and field.name != "split"}
    for name, pack in seen.items():
        if name not in everywhere:
            other = next(each for each in packs if name not in each.schema)
            raise InvalidRequest(
                f"{pack.folder} has the field {name!r}, and {other.folder} does not; open both with the same fields="
            )
    return [name for name in packs[0].schema.names if name in everywhere]


def _merged_field(fields: Sequence[Field], packs: Sequence[Pack]) -> Field:
    """Return one field for all packs, with the class names of all. Raises InvalidRequest if the fields differ."""
    first = fields[0]
    classes = tuple(dict.fromkeys(name for field in fields for name in field.classes or ())) or None
    limits = [field.max_pixels for field in fields if field.max_pixels is not None]
    merged = replace(first, classes=classes, max_pixels=max(limits, default=None))
    for field, pack in zip(fields, packs, strict=True):
        if replace(field, classes=classes, max_pixels=merged.max_pixels, slot=first.slot) != merged:
            raise InvalidRequest(
                f"field {first.name!r} is {first.kind} {first.codec} {first.shape} in {packs[0].folder}, and "
                f"{field.kind} {field.codec} {field.shape} in {pack.folder}; packer convert --codec makes them equal"
            )
        if field.kind != "number" and not _is_start(field.classes, classes):
            raise InvalidRequest(
                f"field {first.name!r} has other classes in {pack.folder} than in {packs[0].folder}, and a "
                f"{field.kind} keeps its numbers; pack again with --classes-from {packs[0].folder}"
            )
    return merged


def _is_start(names: Sequence[str] | None, classes: Sequence[str] | None) -> bool:
    return list(names or ()) == list(classes or ())[: len(names or ())]


def _conformed(pack: Pack, schema: Schema, prefix: str) -> Pack:
    """Return the pack with the fields and class numbers of `schema`, and `prefix` before each key."""
    for field in schema:
        if field.kind == "number" and not _is_start(pack.schema[field.name].classes, field.classes):
            pack = with_field(pack, field, _renumbered(pack, field))
    return _prefixed(pack, prefix) if prefix else pack


def only_fields(pack: Pack, names: Sequence[str]) -> Pack:
    """Return the pack with only the fields `names`, the key and the hidden fields."""
    fields = tuple(field for field in pack.schema if field.hidden or field.name in (KEY, *names))
    if len(fields) == len(pack.schema):
        return pack
    schema = Schema(fields, pack.schema.form_of)
    makers = _arrays_of(pack, without={*pack.schema.names} - {*schema.names})
    makers["crc32"] = lambda: pack.index.arrays["crc32"][:, [pack.index.positions[field.name] for field in fields]]
    changed = replace(pack.manifest, schema=schema)
    return _derived([pack], pack.members, _rows(pack), changed, makers, what=["only", list(schema.names)])


def _with_stored(pack: Pack, field: Field) -> Pack:
    codec = codecs.make(field)
    return with_field(pack, field, [codec.decode(value) for value in stored_values(pack, field.name)])


def _renumbered(pack: Pack, field: Field) -> Sequence[Any] | Array:
    """Return the values of a number field with the class numbers of `field`. Values without a class do not change."""
    old, new = pack.schema[field.name].classes or (), field.classes or ()
    numbers = np.asarray([new.index(name) for name in old])

    def mapped(values: Array) -> Array:
        is_class = (values >= 0) & (values < len(old))
        return np.where(is_class, numbers[np.where(is_class, values, 0).astype(np.int64)], values).astype(values.dtype)

    if field.is_column:
        return mapped(pack.index.column(field.name))
    codec = codecs.make(pack.schema[field.name])
    return [mapped(codec.decode(value)) for value in stored_values(pack, field.name)]


def _prefixed(pack: Pack, prefix: str) -> Pack:
    text, data = prefix.encode("utf-8", "surrogateescape"), pack.index.arrays["keys"].tobytes()
    bounds = [0, *pack.index.arrays["key_ends"].tolist()]
    values = [text + data[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    makers = _arrays_of(pack)  # in the same order
    makers["keys"] = lambda: np.frombuffer(b"".join(values), np.uint8)
    makers["key_ends"] = lambda: np.cumsum([len(value) for value in values], dtype="<u8")
    makers["crc32"] = lambda: _with_crc32(pack, pack.schema.names, KEY, values)
    incomplete = tuple((prefix + key, reason) for key, reason in pack.manifest.incomplete)
    changed = replace(pack.manifest, incomplete=incomplete)
    return _derived([pack], pack.members, _rows(pack), changed, makers, what=["prefix", prefix])


def _agreed(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries that have an equal value in all mappings."""
    first, *others = mappings
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
