"""WebDataset: a tar file per part, with the indexes of DALI and wids. The members with one name are a sample.

Layout of `part-00000/` (see also `_foreign_part`):

| file            | content                                                                                           |
|-----------------|---------------------------------------------------------------------------------------------------|
| data.tar        | a member for each field of each sample, sample after sample, in ustar, not compressed             |
|                 | (packer.layouts.tar); times, permissions and owners are the same for all                          |
| data.idx        | DALI's index: `v1.2 SAMPLES`, then a line per sample: suffix, offset of the data, size and name   |
|                 | of each member                                                                                    |
| shardindex.json | wids's index: the shard, its number of samples and bytes                                          |
| values.npz      | the places of values; whole numbers, keys and hidden fields                                       |

A member has the name NAME.SUFFIX. NAME is the key in letters that no reader splits (see `MemberNames`).

| field               | SUFFIX                                                                                        |
|---------------------|-----------------------------------------------------------------------------------------------|
| slot image          | the suffix of the image's file: jpg, png ...                                                  |
| slot label          | cls, in decimal digits                                                                        |
| whole numbers       | `<field>.cls`                                                                                 |
| arrays of one shape | `<field>.npy`: a header, and the encoded value                                                |
| images              | `<field>.<suffix of its file>`; text `<field>.txt`; JSON `<field>.json`                       |
| other values        | `<field>.bin`: the encoded value, such as the float32 x and y of points of any number         |

Source: webdataset e0953f9 (base_plus_ext, group_by_keys, tariterators); DALI, tools/wds2idx.py.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np

from packer.errors import InvalidRequest
from packer.files.npy_arrays import npy_header
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, ForeignWriter, holds_files
from packer.layouts import tar
from packer.schema import KEY, PIXEL_KINDS, Field, Schema

SUFFIX = ""
_DATA, _INDEX, _SHARDS = "data.tar", "data.idx", "shardindex.json"
_MEMBER_BYTES = 800  # about, of the header and padding of a member
_BY_KIND = {"text": "txt", "json": "json"}
_MOST_NAME = tar.MOST_NAME_BYTES


def _is_whole(field: Field) -> bool:
    return LABEL.fits(field)


def _held(schema: Schema) -> tuple[str, ...]:
    """Return all fields except whole numbers, the key and hidden fields."""
    return tuple(field.name for field in schema if not (field.hidden or field.name == KEY or _is_whole(field)))


def prefixes(schema: Schema) -> dict[str, str]:
    """Return field -> first part of its suffix, such as `depth` of `depth.npy`; empty for fields with a slot.

    Prefixes are in lower case, because WebDataset readers convert suffixes to lower case.
    """
    found: dict[str, str] = {}
    for field in schema:
        if field.hidden or field.name == KEY:
            continue
        if field.slot is not None:
            found[field.name] = ""
            continue
        names = (field.name.lower() + "_" * number for number in count())
        found[field.name] = next(name for name in names if name not in found.values())
    return found


LAYOUT = ForeignLayout("WebDataset readers", _DATA, (_INDEX, _SHARDS), _held)


class Writer(ForeignWriter):
    """Appends a member for each field. The indexes begin with the number of samples, so they are written at the end."""

    layout = LAYOUT
    slots = (IMAGE, LABEL)

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return payload_bytes + values * 2 * _MEMBER_BYTES

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        suffixes = {}
        for name, prefix in prefixes(schema).items():
            last = "cls" if _is_whole(schema[name]) else _suffix(schema, name, b"")
            if last == "bin" and schema[name].kind in PIXEL_KINDS and holds_files(schema, name):
                last = {"image": "jpg", "mask": "png", "depth": "npy"}[schema[name].kind] + " (or as its file)"
            suffixes[name] = f".{prefix}.{last}" if prefix else f".{last}"
        return {KEY: KEY, **suffixes} if KEY in schema else suffixes

    def _begin(self, payload_bytes: int) -> None:
        self._file = self._make(_DATA)
        self._at = 0
        self._lines: list[bytes] = []
        self._names = MemberNames(most_suffix=max(map(len, prefixes(self.schema).values()), default=0) + 6)
        self._fields = [self.schema[name] for name in prefixes(self.schema)]
        self._prefixes = prefixes(self.schema)
        self._headers = {
            name: npy_header(np.dtype(form.array[0]).newbyteorder("<").str, form.array[1])
            for name in self._held
            if (form := self.schema.stored_form(name)).array is not None
        }

    def _check(self, values: Mapping[str, bytes]) -> None:
        largest = max(map(len, values.values()), default=0)
        if largest > tar.MOST_MEMBER_BYTES - (1 << 20):
            raise InvalidRequest(f"{self.path}: a value of {largest:,} bytes, tar holds less than 8 GiB; use hdf5")

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        members = sorted((self._member(field, values[field.name]) for field in self._fields), key=lambda each: each[0])
        name = self._names.take(values.get(KEY, b""), row)
        spans, line = {}, []
        for suffix, field, before, value in members:
            called = b"%s.%s" % (name, suffix.encode())
            size = len(before) + len(value)
            start = self._at + tar.BLOCK_BYTES
            self._file.writelines((tar.header(called, size), before, value, tar.padding(size)))
            spans[field] = (start + len(before), len(value))
            line.append(b"%s %d %d %s" % (suffix.encode(), start, size, called))
            self._at = start + size + len(tar.padding(size))
        self._lines.append(b" ".join(line) + b"\n")
        self._place([spans[held] for held in self._held])

    def _member(self, field: Field, value: bytes) -> tuple[str, str, bytes, bytes]:
        """Return (suffix, name of the field, bytes before the value, value) of a field's member."""
        prefix = self._prefixes[field.name]
        before, last = b"", _suffix(self.schema, field.name, value)
        if _is_whole(field):
            (number,) = np.frombuffer(value, np.dtype(field.dtype).newbyteorder("<")).tolist()
            value, last = b"%d" % number, "cls"
        elif last == "npy" and field.name in self._headers:
            before = self._headers[field.name]
        return (f"{prefix}.{last}" if prefix else last), field.name, before, value

    def _complete(self) -> None:
        self._file.write(tar.END)
        self._make(_INDEX).writelines((b"v1.2 %d\n" % len(self._lines), *self._lines))
        shard = {"url": _DATA, "nsamples": len(self._lines), "filesize": self._at + len(tar.END)}
        listed = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [shard]}
        self._make(_SHARDS).write(json.dumps(listed, indent=2, sort_keys=True).encode() + b"\n")


def _suffix(schema: Schema, name: str, value: bytes) -> str:
    """Return the suffix of a value's file without the dot, such as `jpg`. The field must not be a whole number."""
    field, form = schema[name], schema.stored_form(name)
    if field.kind in _BY_KIND:
        return _BY_KIND[field.kind]
    found = form.suffixes(value)
    if found:
        return found[0].removeprefix(".")
    return "npy" if form.array is not None else "bin"


class MemberNames:
    """Chooses the names of the samples of one part, row after row. It remembers 8 bytes per name.

    A name is the key without its suffix. `_` replaces all characters except letters, digits, `-`, `_` and `/`, because
    readers cut a name at its first dot, and DALI at spaces. The row is added if the name is taken, too long or empty:
        cat/a.b.jpg -> cat/a_b      cat/a.b.png -> cat/a_b-7  because cat/a_b is taken      ../__x__.jpg -> x/x__
    """

    def __init__(self, *, most_suffix: int) -> None:
        """Begin without names. `most_suffix` is the size in bytes of the longest suffix, including the dot."""
        self._most = _MOST_NAME - most_suffix
        self._taken: set[bytes] = set()

    def take(self, key: bytes, row: int) -> bytes:
        """Return a name for a row, which no other row gets. Raises InvalidRequest."""
        for name in self._candidates(key, row):
            mark = hashlib.blake2b(name, digest_size=8).digest()
            if mark not in self._taken:
                self._taken.add(mark)
                return name
        raise InvalidRequest(f"row {row}: every name for it is taken; use another format")

    def _candidates(self, key: bytes, row: int) -> Iterator[bytes]:
        stem = re.sub(rb"\.[A-Za-z0-9]{1,5}$", b"", key)
        plain = re.sub(rb"[^A-Za-z0-9_/-]", b"_", stem)
        plain = re.sub(rb"/+", b"/", plain).strip(b"/")
        plain = b"/".join(part.lstrip(b"_") or b"x" for part in plain.split(b"/")) if plain else b""
        if plain and len(plain) <= self._most:
            yield plain
        short = plain[: max(0, self._most - 24)].rstrip(b"/")
        yield b"%s-%d" % (short or b"sample", row)
        yield from (b"%s-%d-%d" % (short or b"sample", row, number) for number in range(1, 1000))


class Reader(ForeignReader):
    """Returns slices of data.tar and values.npz."""

    layout = LAYOUT
