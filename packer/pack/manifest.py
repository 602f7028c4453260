"""Manifest: packer.json, what a pack is; written last, damaged by any changed byte.

Canonical JSON (sorted keys, no spaces, ASCII, one final newline) with these members:

    magic      "packer"                    version    1
    written_by "packer 0.1.0"              format     "lmdb" ...
    samples    number of samples           schema     field descriptions, see schema.py
    options    what the user asked for     source     {kind, samples, files, bytes, digest}
    parts      [{name, samples, bytes, sha256}]
    index      [{name, bytes, crc32, sha256}]
    extras     as index, the files under extras/; absent where there are none
    skipped    [[key, reason], ...]        incomplete [[key, what its files lacked], ...]
    pack_id    sha256 over the parts, the index, the extras and the options
    sha256     of this file with this value set to 64 zeros

magic, sha256 and this form are the same in every version, so that a damaged file is told from a newer one.
What it may cost whoever reads it is bounded before a value of it is made: see `excess`.
No time, host, absolute path or random value: the same input gives the same bytes.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from packer import codecs
from packer.errors import CorruptPack, InvalidRequest
from packer.files.safe_paths import open_file
from packer.files.storage_errors import failing
from packer.layouts.json_text import json_value
from packer.schema import Schema

NAME = "packer.json"
PACK_KIND = "pack"  # the kind of a source that is itself a pack
INDEX, EXTRAS = "index", "extras"  # folders in a pack
VERSION = 1
_MAX_INTEGER = 1 << 62
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ZEROS = "0" * 64


@dataclass(frozen=True)
class Part:
    """One file of the format: its name in the pack, samples in it, size, and sha256 of its bytes."""

    name: str
    samples: int
    bytes: int
    sha256: str

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> "Part":
        """From a JSON object; raises KeyError, TypeError or ValueError for one that packer did not write."""
        return cls(_file_name(item["name"]), _count(item["samples"]), _count(item["bytes"]), _digest(item["sha256"]))


@dataclass(frozen=True)
class IndexFile:
    """One .npy file: its name under index/ or extras/, size, crc32 (checked when opened) and sha256 (by verify)."""

    name: str
    bytes: int
    crc32: int
    sha256: str


_File = TypeVar("_File", Part, IndexFile)


@dataclass(frozen=True)
class Manifest:
    """The content of packer.json, without what is computed from it."""

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
    pack_id: str = ""

    @property
    def files(self) -> frozenset[str]:
        """Relative path of every file of the pack."""
        inner = {f"{INDEX}/{file.name}" for file in self.index} | {f"{EXTRAS}/{file.name}" for file in self.extras}
        return frozenset({NAME, *(part.name for part in self.parts), *inner})

    @property
    def validated(self) -> bool:
        """Whether each image whose bytes were kept was decoded strictly when it was packed."""
        return _validated(self.options)

    def sealed(self) -> "Manifest":
        """The manifest with its pack_id computed."""
        return replace(self, pack_id=_pack_id(self))

    def check(self) -> None:
        """Raise InvalidRequest where `read` would refuse it for what it costs, so that no such pack is made."""
        found = excess(self.to_bytes()) or _excess_of_options(self)
        if found is not None:
            raise InvalidRequest(
                f"{NAME} of this pack would have {found}: it lists samples that are left out, fields, classes, parts "
                "and options; make fewer of them, such as parts by a larger --part-size; docs/formats.md has the bounds"
            )

    def to_bytes(self) -> bytes:
        """The file's bytes, its own hash in them."""
        data = {
            "magic": "packer",
            "version": VERSION,
            "written_by": self.written_by,
            "format": self.format,
            "samples": self.samples,
            "schema": self.schema.to_json(),
            "options": self.options,
            "source": self.source,
            "parts": [asdict(part) for part in self.parts],
            "index": [asdict(file) for file in self.index],
            "skipped": [list(item) for item in self.skipped],
            "incomplete": [list(item) for item in self.incomplete],
            "pack_id": self.pack_id,
        }
        if self.extras:  # a pack without them has the bytes that it had before there were any
            data["extras"] = [asdict(file) for file in self.extras]
        return hashed(data)


def _instead(path: Path) -> str:
    """What to do about something that is no pack."""
    from packer.sources import _recognition  # packs are read without it

    found = _recognition.recognize_records(path)
    if found is None:
        return "packer convert makes one"
    name, sentence = found
    return f"this is {sentence}: packer convert --from {name} packs it"


def read(folder: Path) -> Manifest:
    """The manifest of a pack.

    Raises CorruptPack, InvalidRequest where `folder` is no pack or a newer version, StorageError where it cannot be
    read.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        raise InvalidRequest(f"{folder}: not a pack: expected a folder with {NAME}; {_instead(folder)}")
    with open_file(path) as file, failing(path, "read"):
        raw = file.read(MOST_BYTES + 1)
    return parse(path, raw)


def parse(path: Path | str, raw: bytes) -> Manifest:
    """The manifest of a file's bytes; path: for messages. Raises CorruptPack, InvalidRequest for a newer version."""
    data = _parse(path, raw)
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise CorruptPack(f"{path}: hostile or damaged: version {version!r:.40}; copy or pack it again")
    if version > VERSION:
        raise InvalidRequest(f"{path}: version {version}, this packer reads up to {VERSION}; install a newer packer")
    manifest = _build(path, data)
    if manifest.to_bytes() != raw:  # whatever was not understood as it stands there: unknown members, other types
        raise CorruptPack(f"{path}: hostile or damaged: not what packer writes; copy or pack it again")
    return manifest


def _parse(path: Path | str, raw: bytes) -> dict[str, Any]:
    """The JSON object, its hash checked."""
    found = excess(raw)
    if found is not None:
        raise CorruptPack(f"{path}: hostile or damaged: {found}; copy or pack it again")
    try:
        # as ASCII: json would take UTF-16 too, in which quotes are not where the bounds saw them
        data = json_value(raw.decode("ascii"))
        magic = data.get("magic") if isinstance(data, dict) else None
        if magic != "packer":
            raise ValueError(f"magic {magic!r:.40}, not 'packer'")
        own = data.get("sha256")
        if type(own) is not str or own != _hash_of(raw.replace(_hash_member(own), _hash_member(_ZEROS))):
            raise ValueError("its sha256 is not what it says")
    except (ValueError, RecursionError) as error:  # both also from encoding, such as for 1e999
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
            index=_distinct([_index_file(item) for item in data["index"]]),
            written_by=_text(data["written_by"]),
            skipped=tuple((_text(key), _text(reason)) for key, reason in data["skipped"]),
            incomplete=tuple((_text(key), _text(reason)) for key, reason in data["incomplete"]),
            extras=_distinct([_index_file(item) for item in data.get("extras", ())]),
            pack_id=_text(data["pack_id"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptPack(f"{path}: hostile or damaged: {error!s:.200}; copy or pack it again") from error
    found = _excess_of_options(manifest)
    if found is not None:
        raise CorruptPack(f"{path}: hostile or damaged: {found}; copy or pack it again")
    if sum(part.samples for part in manifest.parts) != manifest.samples or manifest.pack_id != _pack_id(manifest):
        raise CorruptPack(f"{path}: hostile or damaged: counts or pack id do not fit the parts; copy or pack it again")
    return manifest


def _source(value: Any) -> dict[str, Any]:
    """What packer itself reads of it has the type that packer writes; the other members are only shown."""
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
    """As `_source`: of what was asked of the source, and of the sources of packs that were made of packs."""
    options = asked = _object(value)
    while "source" in asked:
        source = _object(asked["source"])
        asked = _object(source.get("options", {}))
        for text in (source.get("kind", ""), *_list(source.get("sidecars", []))):
            _text(text)
        if source.get("kind") != PACK_KIND:
            break
    return options


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {value!r:.40}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r:.40}")
    return value


def _index_file(item: dict[str, Any]) -> IndexFile:
    return IndexFile(_file_name(item["name"]), _count(item["bytes"]), _count(item["crc32"]), _digest(item["sha256"]))


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


def canonical(data: dict[str, Any]) -> bytes:
    """Canonical JSON, as the module describes it; raises ValueError for what is no JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)  # ASCII: names may be no UTF-8
    return text.encode("ascii") + b"\n"


def hashed(data: dict[str, Any]) -> bytes:
    """Canonical JSON with its own sha256 among the members."""
    own = _hash_of(canonical({**data, "sha256": _ZEROS}))
    return canonical({**data, "sha256": own})


def _hash_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _hash_member(value: str) -> bytes:
    return canonical({"sha256": value})[1:-2]


def _excess_of_options(manifest: Manifest) -> str | None:
    """What options or source have beyond their bounds."""
    for name, value in (("options", manifest.options), ("source", manifest.source)):
        size = len(canonical(value))
        if size > MOST_OPTIONS_BYTES:
            return f"{size:,} bytes of {name}, expected at most {MOST_OPTIONS_BYTES:,}"
    return None


def _validated(options: Any) -> bool:
    """As the options say; for packs made of packs those of the first one, since the later ones copy what they keep."""
    while isinstance(options, dict) and isinstance(source := options.get("source"), dict) and "kind" in source:
        if source["kind"] != PACK_KIND:
            return bool(options.get("validate") == "full")
        options = source.get("options")
    return False


def _pack_id(manifest: Manifest) -> str:
    files: Sequence[Part | IndexFile] = (*manifest.parts, *manifest.index, *manifest.extras)
    digests = [[file.name, file.sha256] for file in files]
    return hashlib.sha256(canonical({"files": digests, "options": manifest.options})).hexdigest()


# ---- bounds: what reading a manifest may cost, in one place, for the reader and the writer alike
#
# JSON of 64 MiB can be 21 million lists of 64 bytes each, a text with one emoji takes four bytes per character, and
# whoever parses deep nesting does it by recursion. So the bytes are looked at before an object is made of them: a few
# passes of C over them, next to nothing for the few KB that most packs have. What honest packs need, and what is
# allowed:
#
#     bytes     32 MiB      13 MB for 100,000 samples left out with the reasons that damaged files give, 5 MB for
#                           40,000 parts (10 TB), 3.6 MB for 100,000 classes, 0.8 MB for 10,000 fields
#     values    1,000,000   commas, colons and opening brackets: 3 for a sample that was left out, 8 for a part, 4 to 12
#                           for a field, 1 for a class
#     levels    256         two for each generation of a pack of a pack of a pack; 6 else
#     text      64 KiB      as JSON; a key or path has at most 4 KB, a reason is cut to 4,000 characters
#     number    40 digits   64 bits have 20, a float 24
#     options   1 MiB       and so what was asked of the source; they come in each pack that is made of this one

MOST_BYTES = 32 << 20
MOST_VALUES = 1_000_000
MOST_LEVELS = 256
MOST_TEXT_BYTES = 64 << 10
MOST_DIGITS = 40
MOST_OPTIONS_BYTES = 1 << 20

_STRUCTURE = b",:[{"
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_NOT_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))


def excess(raw: bytes) -> str | None:
    """What a manifest's bytes have beyond the bounds, in words; None where nothing is. Makes no object of a value."""
    if len(raw) > MOST_BYTES:
        return f"more than {MOST_BYTES:,} bytes"
    # of the same length, so that quotes that are left begin and end texts
    pieces = raw.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"', 2 * MOST_VALUES + 2)
    texts, outside = pieces[1::2], pieces[::2]
    if len(texts) > MOST_VALUES:
        return f"more than {MOST_VALUES:,} texts"
    if max(map(len, texts), default=0) > MOST_TEXT_BYTES:
        return f"a text of {max(map(len, texts)):,} bytes, expected at most {MOST_TEXT_BYTES:,}"
    return _excess_of_structure(b'"'.join(outside))


def _excess_of_structure(outside: bytes) -> str | None:
    """outside: the bytes without the content of texts."""
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


_SEPARATED = bytes.maketrans(b',:[]{}"', b" " * 7)
