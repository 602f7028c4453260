"""Manifest: packer.json, the description of a pack. It is written last. Its sha256 detects any changed byte.

The file is canonical JSON (sorted keys, no spaces, ASCII, one final newline) with these members:

| member | content |
|---|---|
| magic, version | "packer", and 1 or 2; packs of version 1 have fewer files in `index` |
| written_by | "packer 0.1.0" |
| format | "lmdb" ... |
| samples | number of samples |
| schema | descriptions of the fields, see schema.py |
| options | the options of the conversion |
| source | {kind, samples, files, bytes, digest} |
| parts | [{name, samples, bytes, sha256}] |
| index | [{name, bytes, crc32, sha256}] |
| extras | the files under extras/, in the form of `index`; absent if there are none |
| members | [{path, pack_id, samples, names}] of a collection, which has no parts; absent in other packs |
| skipped | [[key, reason], ...] |
| incomplete | [[key, missing content], ...] |
| pack_id | sha256 of the parts, the index, the extras, the members without their paths, and the options |
| sha256 | sha256 of this file with this value set to 64 zeros |

All versions have magic, version and sha256, so that a damaged file and a newer version are distinguished. `excess`
limits the cost of parsing. The file contains no time, host, absolute path or random value: equal input gives equal
bytes.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from packer import codecs
from packer.errors import DOCS, CorruptPack, InvalidRequest
from packer.files.safe_paths import open_file
from packer.files.storage_errors import failing
from packer.layouts.json_text import json_value
from packer.schema import Schema

NAME = "packer.json"
COLLECTION = "collection"  # the format of a collection
PACK_KIND = "pack"  # the kind of a source that is itself a pack
INDEX, EXTRAS = "index", "extras"  # folders in a pack
APPENDED = "appended"  # in options and source: an entry for each source that `packer append` added
VERSION = 2  # of new packs; version 1 is read, too
_MAX_INTEGER = 1 << 62
_MOST_PATH_BYTES = 4096
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ZEROS = "0" * 64


@dataclass(frozen=True)
class Part:
    """One data file of the pack, or a folder of data files.

    Attributes:
        name: name in the folder of the pack.
        samples: number of samples.
        bytes: size of the file, or of all files in the folder.
        sha256: sha256 of the file, or the digest of the folder that packer.files.digest computes.
    """

    name: str
    samples: int
    bytes: int
    sha256: str

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> "Part":
        """Parse a JSON object. If it is invalid, raise KeyError, TypeError or ValueError."""
        return cls(_file_name(item["name"]), _count(item["samples"]), _count(item["bytes"]), _digest(item["sha256"]))


@dataclass(frozen=True)
class IndexFile:
    """One .npy file in index/ or extras/.

    Attributes:
        name: name in its folder.
        bytes: size of the file.
        crc32: crc32 of the file, which is compared when the pack is opened.
        sha256: sha256 of the file, which `packer verify` compares.
    """

    name: str
    bytes: int
    crc32: int
    sha256: str

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> "IndexFile":
        """Parse a JSON object. If it is invalid, raise KeyError, TypeError or ValueError."""
        return cls(_file_name(item["name"]), _count(item["bytes"]), _count(item["crc32"]), _digest(item["sha256"]))


@dataclass(frozen=True)
class MemberPack:
    """A pack whose rows a collection contains.

    Attributes:
        path: relative path with / from the folder of the collection to the pack, or the URL of the pack.
        pack_id: id of the pack.
        samples: number of samples of the pack.
        names: field of the collection -> field of the pack. It contains only fields whose names differ.
    """

    path: str
    pack_id: str
    samples: int
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> "MemberPack":
        """Parse a JSON object. If it is invalid, raise KeyError, TypeError or ValueError."""
        path, names = _text(item["path"]), _object(item["names"])
        if not path or path.startswith("/") or "\0" in path or len(path) > _MOST_PATH_BYTES:
            raise ValueError(f"path {path!r:.140} of a member is not a relative path")
        return cls(
            path, _digest(item["pack_id"]), _count(item["samples"]), {name: _text(names[name]) for name in names}
        )


_File = TypeVar("_File", Part, IndexFile)


@dataclass(frozen=True)
class Manifest:
    """The content of packer.json; the table of the module describes the members."""

    format: str
    samples: int
    schema: Schema
    options: dict[str, Any]
    source: dict[str, Any]
    parts: tuple[Part, ...]
    index: tuple[IndexFile, ...]
    written_by: str
    skipped: tuple[tuple[str, str], ...] = field(default=())
    incomplete: tuple[tuple[str, str], ...] = field(default=())
    extras: tuple[IndexFile, ...] = field(default=())
    members: tuple[MemberPack, ...] = field(default=())
    pack_id: str = ""
    version: int = VERSION

    @property
    def listed(self) -> dict[str, Part | IndexFile]:
        """Relative path -> entry, for all files of the pack except packer.json."""
        return {
            **{part.name: part for part in self.parts},
            **{f"{INDEX}/{file.name}": file for file in self.index},
            **{f"{EXTRAS}/{file.name}": file for file in self.extras},
        }

    @property
    def files(self) -> frozenset[str]:
        """Relative paths of all files of the pack."""
        return frozenset({NAME, *self.listed})

    @property
    def index_names(self) -> frozenset[str]:
        """Names of the files of the index, without .npy."""
        return frozenset(file.name.removesuffix(".npy") for file in self.index)

    @property
    def validated(self) -> bool:
        """True if the conversion of the original data decoded each image file (`validate="full"`)."""
        first = conversions(self.options)[0]
        source = first.get("source")
        is_original = isinstance(source, dict) and source.get("kind", PACK_KIND) != PACK_KIND
        return is_original and first.get("validate") == "full"

    @property
    def earlier_ids(self) -> list[object]:
        """The id of this pack before each `packer append`. The samples of these earlier packs are its first samples."""
        entries = self.options.get(APPENDED)
        return [entry.get("after") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def sealed(self) -> "Manifest":
        """Return a copy of the manifest with the correct pack_id."""
        return replace(self, pack_id=_pack_id(self))

    def check(self) -> None:
        """Raise InvalidRequest if the manifest has more bytes, values or options than `read` accepts."""
        found = excess(self.to_bytes()) or _excess_of_options(self)
        if found is not None:
            raise InvalidRequest(
                f"{NAME} of this pack would have {found}; reduce skipped samples, fields, classes, options, or parts "
                f"(--part-size); {DOCS}/understand/format.md has the limits"
            )

    def to_bytes(self) -> bytes:
        """Return the bytes of packer.json."""
        return hashed(self._to_json())

    def _to_json(self) -> dict[str, Any]:
        """Return the members of packer.json, except sha256."""
        data = {
            "magic": "packer",
            "version": self.version,
            "written_by": self.written_by,
            "format": self.format,
            "samples": self.samples,
            "schema": self.schema.to_json(),
            "options": self.options,
            "source": self.source,
            "parts": [vars(part) for part in self.parts],
            "index": [vars(file) for file in self.index],
            "skipped": [list(item) for item in self.skipped],
            "incomplete": [list(item) for item in self.incomplete],
            "pack_id": self.pack_id,
        }
        if self.extras:
            data["extras"] = [vars(file) for file in self.extras]
        if self.members:
            data["members"] = [vars(member) for member in self.members]
        return data


def _instead(path: Path) -> str:
    """Return the end of an error message for a path that is not a pack: what to do, such as the source to convert."""
    from packer.sources import _recognition  # reading packs does not need it

    found = _recognition.recognize_records(path)
    if found is None:
        return "packer convert makes one"
    name, sentence = found
    return f"this is {sentence}: packer convert --from {name} converts it"


def read(folder: Path) -> Manifest:
    """Read the manifest of a pack.

    Raises:
        CorruptPack: the file is damaged.
        InvalidRequest: `folder` is not a pack, or has a newer version.
        StorageError: the file cannot be read.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        if not os.path.lexists(folder):
            raise InvalidRequest(f"{folder}: not a pack: it does not exist; packer convert makes packs")
        raise InvalidRequest(f"{folder}: not a pack: expected a folder with {NAME}; {_instead(folder)}")
    with open_file(path) as file, failing(path, "read"):
        size = os.fstat(file.fileno()).st_size
        raw = file.read(min(size, MOST_BYTES) + 1)  # no larger, because the whole size is allocated
    return parse(path, raw)


def read_pack(folder: Path) -> Manifest:
    """Read the manifest of a pack with parts. Raises the errors of `read`, and InvalidRequest for a collection."""
    return with_parts(folder, read(folder))


def with_parts(where: object, manifest: Manifest) -> Manifest:
    """Return `manifest`. Raises InvalidRequest for a collection, which has no parts. `where` is its folder or URL."""
    if manifest.members:
        raise InvalidRequest(
            f"{where}: a collection, whose samples are in other packs; packer convert makes a pack of it"
        )
    return manifest


def parse(path: Path | str, raw: bytes) -> Manifest:
    """Parse the bytes of a manifest.

    Args:
        path: the file or URL, for messages.
        raw: content of packer.json.

    Raises:
        CorruptPack: the bytes are damaged.
        InvalidRequest: the manifest has a newer version.
    """
    data = _parse(path, raw)
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise CorruptPack(f"{path}: hostile or damaged: version {version!r:.40}; copy or pack it again")
    if version > VERSION:
        raise InvalidRequest(f"{path}: version {version}, this packer reads up to {VERSION}; install a newer packer")
    manifest = _build(path, data)
    if canonical({**manifest._to_json(), "sha256": data["sha256"]}) != raw:  # unknown members, other types
        raise CorruptPack(f"{path}: hostile or damaged: not what packer writes; copy or pack it again")
    return manifest


def _parse(path: Path | str, raw: bytes) -> dict[str, Any]:
    """Return the JSON object after checking its magic and sha256."""
    found = excess(raw)
    if found is not None:
        raise CorruptPack(f"{path}: hostile or damaged: {found}; copy or pack it again")
    try:
        # as ASCII: json also accepts UTF-16, whose quotes `excess` does not find
        data = json_value(raw.decode("ascii"))
        magic = data.get("magic") if isinstance(data, dict) else None
        if magic != "packer":
            raise ValueError(f"magic {magic!r:.40}, not 'packer'")
        own = data.get("sha256")
        # the first place of this text, because no other text of the manifest can contain the hash of the manifest
        if type(own) is not str or own != _hash_of(raw.replace(own.encode(), _ZEROS.encode(), 1)):
            raise ValueError("its content does not have its sha256")
    except (ValueError, RecursionError) as error:  # encoding raises them too, such as for 1e999
        raise CorruptPack(f"{path}: damaged: not what packer wrote: {error!s:.200}; copy or pack it again") from error
    return dict(data)


def _build(path: Path | str, data: dict[str, Any]) -> Manifest:
    try:
        manifest = Manifest(
            format=_text(data["format"]),
            samples=_count(data["samples"]),
            schema=codecs.described(Schema.from_json(data["schema"])),
            options=_options(data["options"]),
            source=_source(data["source"]),
            parts=_distinct([Part.from_json(item) for item in data["parts"]]),
            index=_distinct([IndexFile.from_json(item) for item in data["index"]]),
            written_by=_text(data["written_by"]),
            skipped=tuple((_text(key), _text(reason)) for key, reason in data["skipped"]),
            incomplete=tuple((_text(key), _text(reason)) for key, reason in data["incomplete"]),
            extras=_distinct([IndexFile.from_json(item) for item in data.get("extras", ())]),
            members=tuple(MemberPack.from_json(item) for item in data.get("members", ())),
            pack_id=_text(data["pack_id"]),
            version=data["version"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptPack(f"{path}: hostile or damaged: {error!s:.200}; copy or pack it again") from error
    found = _excess_of_options(manifest)
    if found is not None:
        raise CorruptPack(f"{path}: hostile or damaged: {found}; copy or pack it again")
    is_collection = bool(manifest.members)
    fits = not manifest.parts if is_collection else sum(part.samples for part in manifest.parts) == manifest.samples
    if not fits or is_collection != (manifest.format == COLLECTION) or manifest.pack_id != _pack_id(manifest):
        raise CorruptPack(f"{path}: hostile or damaged: counts or pack id do not fit the parts; copy or pack it again")
    return manifest


def _source(value: Any) -> dict[str, Any]:
    source = _object(value)
    checks: dict[str, Callable[[Any], object]] = {
        "kind": _text,
        "digest": _text,
        **dict.fromkeys(("samples", "files", "bytes"), _count),
        "left_behind": lambda left: [_count(_object(left)[name]) for name in ("files", "bytes")],
    }
    for name in checks.keys() & source.keys():
        checks[name](source[name])
    return source


def _options(value: Any) -> dict[str, Any]:
    options = _object(value)
    for each in conversions(options):
        source = _object(each.get("source", {}))
        _object(source.get("options", {}))
        for text in (source.get("kind", ""), *_list(source.get("sidecars", []))):
            _text(text)
    return options


def conversions(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the options of each conversion that led to a pack, beginning with the conversion of the original data.

    If a pack was converted from another pack, its options contain the options of that pack.
    """
    found = [options]
    while True:
        source = found[-1].get("source")
        before = source.get("options") if isinstance(source, dict) and source.get("kind") == PACK_KIND else None
        if not isinstance(before, dict):
            return found[::-1]
        found.append(before)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {value!r:.40}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.40}")
    return value


def _distinct(files: list[_File]) -> tuple[_File, ...]:
    if len({file.name for file in files}) != len(files):
        raise ValueError("a file is listed twice")
    return tuple(files)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r:.40}")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_INTEGER:
        raise TypeError(f"expected a count, found {value!r:.40}")
    return value


def _file_name(value: Any) -> str:
    if not _FILE_NAME.fullmatch(_text(value)):
        raise ValueError(f"file name {value!r:.140} is not one that packer writes")
    return str(value)


def _digest(value: Any) -> str:
    if not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"expected a sha256, found {value!r:.80}")
    return str(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(data: dict[str, Any]) -> bytes:
    """Return `data` as JSON with sorted keys, without spaces, in ASCII. Raises ValueError for NaN and infinity."""
    return _CANONICAL.encode(data).encode("ascii") + b"\n"


def hashed(data: dict[str, Any]) -> bytes:
    """Return canonical JSON of `data` with a member `sha256`: the sha256 of this JSON when the member is all zeros."""
    own = _hash_of(canonical({**data, "sha256": _ZEROS}))
    return canonical({**data, "sha256": own})


def _hash_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _excess_of_options(manifest: Manifest) -> str | None:
    for name, value in (("options", manifest.options), ("source", manifest.source)):
        size = len(canonical(value))
        if size > MOST_OPTIONS_BYTES:
            return f"{size:,} bytes of {name}, expected at most {MOST_OPTIONS_BYTES:,}"
    return None


def _pack_id(manifest: Manifest) -> str:
    files: Sequence[Part | IndexFile] = (*manifest.parts, *manifest.index, *manifest.extras)
    digests = [[file.name, file.sha256] for file in files]
    content: dict[str, Any] = {"files": digests, "options": manifest.options}
    if manifest.members:  # without their paths: a moved collection has the same id
        content["members"] = [[member.pack_id, member.names] for member in manifest.members]
    return hashlib.sha256(canonical(content)).hexdigest()


# ---- limits: the cost of parsing a manifest, the same for reading and writing
#
# JSON of 64 MiB may contain 21 million lists, and deep nesting causes recursion. A few fast passes over the bytes
# therefore check these limits before the JSON is parsed. They leave room for large packs.

MOST_BYTES = 32 << 20  # 100,000 skipped samples take 13 MB, 40,000 parts 5 MB.
MOST_VALUES = 1_000_000  # Commas, colons and opening brackets. A skipped sample has 3, a part 8.
MOST_LEVELS = 256  # Each generation of packs converted from packs has 2.
MOST_TEXT_BYTES = 64 << 10  # A path has at most 4 KB.
MOST_DIGITS = 40  # A float has 24.
MOST_OPTIONS_BYTES = 1 << 20  # Packs converted from this pack contain its options, too.

_STRUCTURE = b",:[{"
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_SEPARATED = bytes.maketrans(b',:[]{}"', b" " * 7)
_NOT_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))


def excess(raw: bytes) -> str | None:
    """Return a text that names the limit that the bytes of a manifest exceed, or None. Does not parse the JSON."""
    if len(raw) > MOST_BYTES:
        return f"more than {MOST_BYTES:,} bytes"
    # replace escapes by text of the same length: the remaining quotes begin and end texts
    pieces = raw.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"', 2 * MOST_VALUES + 2)
    texts, outside = pieces[1::2], pieces[::2]
    if len(texts) > MOST_VALUES:
        return f"more than {MOST_VALUES:,} texts"
    if max(map(len, texts), default=0) > MOST_TEXT_BYTES:
        return f"a text of {max(map(len, texts)):,} bytes, expected at most {MOST_TEXT_BYTES:,}"
    return _excess_of_structure(b'"'.join(outside))


def _excess_of_structure(outside: bytes) -> str | None:
    values = len(outside.translate(None, _NOT_STRUCTURE))
    if values > MOST_VALUES:
        return f"{values:,} values, expected at most {MOST_VALUES:,}"
    steps = memoryview(outside.translate(_BRACKETS, _NOT_BRACKETS)).cast("b")
    levels = max(accumulate(steps), default=0)
    if levels > MOST_LEVELS:
        return f"{levels:,} levels, expected at most {MOST_LEVELS}"
    digits = max(map(len, outside.translate(_SEPARATED).split()), default=0)
    if digits > MOST_DIGITS:
        return f"a number of {digits:,} digits, expected at most {MOST_DIGITS}"
    return None
