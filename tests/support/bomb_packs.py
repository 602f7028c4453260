"""Bombs: packs of a few MiB whose reading would cost gigabytes or minutes, if what they say were believed."""

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np

from packer.pack import manifest as manifests
from tests.support import (
    half_images,
    hostile_folders,
    hostile_hdf5,
    hostile_npy,
    hostile_parts,
    hostile_pth,
    hostile_values,
)
from tests.support.hostile_packs import Case, cases_of, in_index, in_manifest, in_part, part_of

MIB = 1 << 20
_TOO_LARGE = 31 * MIB  # below what packer.json may have


# ---- manifests


def with_text(put: Callable[[dict[str, Any]], Any], text: Callable[[], bytes]) -> Callable[[Path], None]:
    """packer.json with JSON text where `put` puts "@@", and hashes that fit: no object is made of the text here."""

    def make(pack: Path) -> None:
        path = pack / manifests.NAME
        data = json.loads(path.read_bytes())
        put(data)
        inner = text()
        files = [[file["name"], file["sha256"]] for file in (*data["parts"], *data["index"]) if isinstance(file, dict)]
        identity = manifests.canonical({"files": files, "options": data["options"]})
        data["pack_id"] = hashlib.sha256(identity.replace(b'"@@"', inner)).hexdigest()
        zeros = manifests.canonical({**data, "sha256": "0" * 64}).replace(b'"@@"', inner)
        found = hashlib.sha256(zeros).hexdigest().encode()
        path.write_bytes(zeros.replace(b'"sha256":"' + b"0" * 64, b'"sha256":"' + found))

    return make


def in_options(text: Callable[[], bytes]) -> Callable[[Path], None]:
    """As a member of the options, which are the user's and may be anything."""
    return with_text(lambda data: data["options"].update(more="@@"), text)


def repeated(item: bytes, size: int = _TOO_LARGE) -> Callable[[], bytes]:
    """A list of one item, over and over."""
    return lambda: b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


def members(size: int = _TOO_LARGE) -> bytes:
    """An object of as many short names as fit, sorted."""
    return b"{" + b",".join(b'"%07x":0' % at for at in range(size // 12)) + b"}"


def fields(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"f{at:05d}", "kind": "text", "codec": "text", **more} for at in range(count)]


def of_source(value: Any, name: str = "bytes") -> Callable[[Path], None]:
    return in_manifest(lambda data: data["source"].update({"kind": "folder", "files": 3, name: value}))


def deep(levels: int) -> Callable[[], bytes]:
    return lambda: b'{"a":' * levels + b"1" + b"}" * levels


def generations(count: int) -> Any:
    """Options of a pack of a pack of a pack ..."""
    found: dict[str, Any] = {"source": {"kind": "folder"}, "validate": "full"}
    for _ in range(count):
        found = {"source": {"kind": "pack", "options": found, "pack_id": "0" * 64}}
    return found


MANIFESTS: dict[str, Callable[[Path], Any]] = {
    "63 MiB of empty lists": in_options(repeated(b"[]", 63 * MIB)),
    "31 MiB of empty lists": in_options(repeated(b"[]")),
    "31 MiB of empty objects": in_options(repeated(b"{}")),
    "31 MiB of lists in lists": in_options(repeated(b"[[[]]]")),
    "31 MiB of objects of one": in_options(repeated(b'{"a":{}}')),
    "31 MiB of names": in_options(members),
    "31 MiB of zeros": in_options(repeated(b"0")),
    "31 MiB of floats": in_options(repeated(b"1.5")),
    "31 MiB of texts": in_options(repeated(b'"\\ud83d\\ude00"')),
    "one text of 31 MiB": in_options(lambda: b'"\\ud83d\\ude00' + b"x" * _TOO_LARGE + b'"'),
    "one text of 31 MiB of quotes": in_options(lambda: b'"' + b'\\"' * (_TOO_LARGE // 2) + b'"'),
    "one name of 31 MiB": in_options(lambda: b'{"' + b"x" * _TOO_LARGE + b'":1}'),
    "a number of 4,000 digits": in_options(lambda: b"9" * 4000),
    "a list of numbers of 4,000 digits": in_options(repeated(b"9" * 4000)),
    "900 levels": in_options(deep(900)),
    "100,000 levels": in_options(deep(100_000)),
    "31 million brackets": in_options(lambda: b"[" * (_TOO_LARGE // 2) + b"]" * (_TOO_LARGE // 2)),
    "packs of packs of packs": in_manifest(lambda data: data.update(options=generations(400))),
    "4 million skipped": with_text(lambda data: data.update(skipped="@@"), repeated(b'["",""]')),
    "skipped that are empty": with_text(lambda data: data.update(skipped="@@"), repeated(b"[]")),
    "incomplete without end": with_text(lambda data: data.update(incomplete="@@"), repeated(b'["a","b"]')),
    "a reason of 31 MiB": with_text(
        lambda data: data.update(skipped="@@"), lambda: b'[["a","' + b"x" * _TOO_LARGE + b'"]]'
    ),
    "parts without end": with_text(
        lambda data: data.update(parts="@@"),
        repeated(b'{"bytes":0,"name":"a","samples":0,"sha256":"' + b"0" * 64 + b'"}'),
    ),
    "extras without end": with_text(
        lambda data: data.update(extras="@@"),
        repeated(b'{"bytes":0,"crc32":0,"name":"a","sha256":"' + b"0" * 64 + b'"}'),
    ),
    "fields without end": with_text(lambda data: data.update(schema="@@"), repeated(b"{}")),
    "10,000 fields": in_manifest(lambda data: data.update(schema=fields(10_000))),
    "10,000 columns": in_manifest(
        lambda data: data.update(schema=fields(10_000, kind="number", codec="number", dtype="int64", shape=[]))
    ),
    "5 million classes": with_text(
        lambda data: data["schema"].append(
            {"name": "c", "kind": "number", "codec": "number", "dtype": "int64", "shape": [], "classes": "@@"}
        ),
        repeated(b'"cat"'),
    ),
    "a class of 31 MiB": with_text(
        lambda data: data["schema"][2].update(classes="@@"), lambda: b'["' + b"x" * _TOO_LARGE + b'"]'
    ),
    "a codec of 31 MiB": with_text(
        lambda data: data["schema"][1].update(codec="@@"), lambda: b'"' + b"x" * _TOO_LARGE + b'"'
    ),
    "a wide value": in_manifest(
        lambda data: data["schema"][1].update(kind="image", codec="raw", dtype="uint8", shape=[1 << 19, 1 << 19, 3])
    ),
    "samples beyond number": in_manifest(
        lambda data: (data.update(samples=1 << 60), data["parts"][0].update(samples=1 << 60))
    ),
}
# what `info` and others show of the source, of other types than packer writes
SOURCES: dict[str, Callable[[Path], Any]] = {
    "bytes that are text": of_source("\x1b[2J"),
    "bytes of 400 digits": of_source(10**400),
    "bytes of 39 digits": of_source(10**39),
    "bytes that are a list": of_source([1]),
    "bytes negative": of_source(-1),
    "files that are an object": of_source({"a": 1}, "files"),
    "a kind that is a list": of_source(["folder"], "kind"),
    "left behind a text": of_source("x", "left_behind"),
    "left behind a number of texts": of_source({"files": "x", "bytes": 1}, "left_behind"),
    "left behind 10^30 files": of_source({"files": 10**30, "bytes": 1}, "left_behind"),
    "a source of lists": in_manifest(lambda data: data.update(source=[["kind", "folder"]])),
    "options of lists": in_manifest(lambda data: data.update(options=[["source", 1]])),
    "options whose source is text": in_manifest(lambda data: data["options"].update(source="folder")),
    "options whose source has other types": in_manifest(
        lambda data: (
            data["source"].update(kind="folder"),
            data["options"].update(
                source={"kind": ["pack"], "options": {"missing": 7}, "sidecars": 5, "splits": [1]}, validate=[]
            ),
        )
    ),
    "options of a folder that are numbers": in_manifest(
        lambda data: (
            data["source"].update(kind="folder"),
            data["options"].update(source={"kind": "folder", "options": {"missing": 7, "labels": 10**30}}),
        )
    ),
}


# ---- LMDB pages


class Pages:
    """The bytes of an LMDB file, page by page."""

    def __init__(self, page_bytes: int = 1 << 16) -> None:
        self.page_bytes = page_bytes
        self.pages: list[bytes] = [b"", b""]

    def branch(self, below: list[tuple[bytes, int]]) -> int:
        """A branch page; below: key and page of each node. Returns its number."""
        number, at = len(self.pages), self.page_bytes
        page = bytearray(self.page_bytes)
        struct.pack_into("<QHHH", page, 0, number, 0, 1, 16 + 2 * len(below))
        for place, (key, target) in enumerate(below):
            at -= 8 + len(key)
            node = struct.pack("<HHHH", target & 0xFFFF, target >> 16 & 0xFFFF, target >> 32, len(key)) + key
            page[at : at + len(node)] = node
            struct.pack_into("<H", page, 16 + 2 * place, at)
        self.pages.append(bytes(page))
        return number

    def leaf(self) -> int:
        """An empty leaf."""
        number = len(self.pages)
        self.pages.append(struct.pack("<QHHH", number, 0, 2, 16).ljust(self.page_bytes, b"\0"))
        return number

    def save(self, root: int, depth: int, entries: int = 13) -> Callable[[Path], None]:
        """Write the file, with this root."""

        def change(path: Path) -> None:
            free = struct.pack("<IHHQQQQQ", self.page_bytes, 8, 0, 0, 0, 0, 0, (1 << 64) - 1)
            main = struct.pack("<IHHQQQQQ", 0, 0, depth, 1, 1, 0, entries, root)
            metas = []
            for number in (0, 1):
                head = struct.pack("<QHHHH", number, 0, 8, 0, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 40)
                meta = head + free + main + struct.pack("<QQ", len(self.pages) - 1, number + 1)
                metas.append(meta.ljust(self.page_bytes, b"\0"))
            path.write_bytes(b"".join([*metas, *self.pages[2:]]))

        return change


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def fan_in(levels: int) -> Callable[[Path], None]:
    """Each node of a page leads to the same page below: 3600 times as many on each level."""
    pages = Pages()
    below = pages.leaf()
    for _ in range(levels):
        below = pages.branch([(key(at), below) for at in range(3600)])
    return pages.save(below, levels + 1)


def narrow_fan_in() -> Callable[[Path], None]:
    """The keys rise nevertheless, for the pages below have one node each, whose key is not looked at."""
    pages = Pages()
    below = pages.leaf()
    for _ in range(20):
        below = pages.branch([(b"", below)])
    return pages.save(pages.branch([(key(at), below) for at in range(3600)]), 22)


def chain() -> Callable[[Path], None]:
    """One page below the other, 31 times, each with 3600 nodes."""
    pages = Pages()
    below, other = pages.leaf(), pages.leaf()
    for _ in range(31):
        below = pages.branch([(b"", below), *((key(at), other) for at in range(1, 3600))])
    return pages.save(below, 32)


def circle(depth: int) -> Callable[[Path], None]:
    """A page below itself."""
    pages = Pages()
    return pages.save(pages.branch([(key(at), 2) for at in range(3600)]), depth)


def overlapping_keys() -> Callable[[Path], None]:
    """Nodes that lie over each other, with keys of 30 KB each: 20,000 of them in a page of 64 KiB."""
    pages = Pages()
    number, first = len(pages.pages), 16 + 2 * 10_000
    # the bytes are the same everywhere; the order of the keys is never looked at in time
    places = (first + 2 * (place % 6000) for place in range(10_000))
    head = struct.pack("<QHHH2x10000H", number, 0, 1, first, *places)
    pages.pages.append(head + struct.pack("<H", 30_000) * ((pages.page_bytes - first) // 2))
    return pages.save(number, 3)


def many_leaves() -> Callable[[Path], None]:
    """A sparse file of a terabyte: every page that a branch page names is in it, and all of them are empty."""
    pages = Pages()
    tops = []
    for top in range(100):
        tops.append(pages.branch([(key(top * 3600 + at), 2000 + top * 3600 + at) for at in range(3600)]))
    write = pages.save(pages.branch([(key(at * 3600), page) for at, page in enumerate(tops)]), 3)

    def change(path: Path) -> None:
        write(path)
        with path.open("r+b") as file:
            file.truncate(370_000 * pages.page_bytes)

    return change


def unhashed(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """The size fits what the manifest says, its hash does not: hashing a sparse terabyte is what nobody waits for."""

    def make(pack: Path) -> None:
        part = part_of(pack)
        change(part)
        in_manifest(lambda data: data["parts"][0].update(bytes=part.stat().st_size))(pack)

    return make


def sparse_value(size: int) -> Callable[[Path], None]:
    """A value of zeros in overflow pages that are holes of the file."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        end = -(-len(data) // 4096)
        at = data.rindex(struct.pack("<H", 8) + key(1)) - 6
        struct.pack_into("<HHH", data, at, size & 0xFFFF, size >> 16, 1)
        struct.pack_into("<Q", data, at + 16, end)
        data += struct.pack("<QHHI", end, 0, 4, (size + 16) // 4096 + 1)
        path.write_bytes(data)
        with path.open("r+b") as file:
            file.truncate((end + (size + 16) // 4096 + 1) * 4096)

    return change


LMDB: dict[str, Callable[[Path], Any]] = {
    "a fan of three levels": in_part(lambda path: fan_in(3)(path)),
    "a fan of 31 levels": in_part(lambda path: fan_in(31)(path)),
    "a fan whose keys rise": in_part(lambda path: narrow_fan_in()(path)),
    "a chain of 31 pages": in_part(lambda path: chain()(path)),
    "a circle of 3": in_part(lambda path: circle(3)(path)),
    "a circle of 32": in_part(lambda path: circle(32)(path)),
    "keys over each other": in_part(lambda path: overlapping_keys()(path)),
    "360,000 leaves": unhashed(lambda path: many_leaves()(path)),
    "a value of 700 MiB": in_part(sparse_value(700 * MIB)),
}


# ---- files


def sparse_image(size: int) -> Callable[[Path], None]:
    """A file of a bmp pack that is a hole of that size, as its table says."""

    def make(pack: Path) -> None:
        part = part_of(pack)
        with (part / hostile_folders.FILE).open("wb") as file:
            file.truncate(size)
        hostile_folders.rewritten(sizes__blob=np.asarray([0, size, 64], "<i8"))(part)
        in_manifest(lambda data: data["parts"][0].update(bytes=data["parts"][0]["bytes"] + size))(pack)

    return make


BMP: dict[str, Callable[[Path], Any]] = {
    "a file of 1 TiB": sparse_image(1 << 40),
    "a file of 3 GiB": sparse_image(3 << 30),
    "a file of 600 MiB": sparse_image(600 * MIB),
}


def npy_header(shape: str, descr: str = "|u1") -> bytes:
    return hostile_npy.header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", data=b"")


def sparse_index(pack: Path) -> None:
    """An index file of a terabyte that is a hole."""
    path = pack / "index/keys.npy"
    with path.open("wb") as file:
        file.write(npy_header(f"({(1 << 40) - 128},)"))
        file.truncate(1 << 40)
    in_manifest(lambda data: [entry.update(bytes=1 << 40) for entry in data["index"] if entry["name"] == "keys.npy"])(
        pack
    )


INDEX: dict[str, Callable[[Path], Any]] = {
    "10^18 keys": in_index("keys.npy", npy_header("(999999999999999999,)") + bytes(36)),
    "10^17 x 10^17 hashes": in_index(
        "crc32.npy", npy_header("(99999999999999999, 99999999999999999)", "<u4") + bytes(48)
    ),
    "10^18 x 0 hashes": in_index("crc32.npy", npy_header("(999999999999999999, 0)", "<u4")),
    "a shape of 60,000 lengths": in_index(
        "keys.npy", b"\x93NUMPY\x01\0\xff\xff" + (b"{'descr': '|u1', 'shape': (" + b"9," * 32_000).ljust(65535)
    ),
    "a hole of a terabyte": sparse_index,
}


def grown(name: str) -> Callable[[Path], None]:
    """A file of the pack that has become a hole of a terabyte behind its bytes, of which the manifest says nothing."""

    def make(pack: Path) -> None:
        (path,) = pack.glob(name)
        with path.open("r+b") as file:
            file.truncate(1 << 40)

    return make


UNNAMED: dict[str, Callable[[Path], Any]] = {
    "packer.json": grown("packer.json"),
    "a file of the index": grown("index/keys.npy"),
    "an image": grown(f"part-*/{hostile_folders.FILE}"),
}


# ---- zip archives


def entries(path: Path) -> list[tuple[str, bytes]]:
    return list(hostile_pth.entries(path).items())


def in_directory(offset: int, *numbers: int) -> Callable[[Path], None]:
    """The same numbers of 32 bits in every entry of the zip directory of a sound archive that Python wrote."""

    def change(path: Path) -> None:
        hostile_pth.zipped(path, entries(path))
        data = bytearray(path.read_bytes())
        at = struct.unpack_from("<I", data, len(data) - 6)[0]
        while data[at : at + 4] == b"PK\x01\x02":
            struct.pack_into(f"<{len(numbers)}I", data, at + offset, *numbers)
            at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
        path.write_bytes(data)

    return change


def zip64(size: int) -> Callable[[Path], None]:
    """An entry whose size is in a zip64 field."""

    def change(path: Path) -> None:
        items = entries(path)
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in items:
                archive.writestr(zipfile.ZipInfo(name), data)
            for info in archive.filelist:
                if info.filename.endswith("/1"):
                    info.file_size = info.compress_size = size

    return change


def many_entries(path: Path) -> None:
    more = ((f"a/data/{number + 100}", b"") for number in range(20_000))
    hostile_pth.zipped(path, [*entries(path), *more])


def deflated(path: Path) -> None:
    """A storage of 700 MiB of zeros in 700 KB."""
    items = dict(entries(path))
    items["a/data/1"] = bytes(700 * MIB)
    hostile_pth.zipped(path, list(items.items()), method=zipfile.ZIP_DEFLATED)


def end_of_zip64(path: Path) -> None:
    """The directory has 2^60 bytes and entries, by a zip64 end record."""
    items = entries(path)
    hostile_pth.zipped(path, items)
    data = path.read_bytes()
    at = struct.unpack_from("<I", data, len(data) - 6)[0]
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1 << 60, 1 << 60, 1 << 60, at)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, len(data) - 22, 1)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(data[:-22] + record + locator + end)


PTH: dict[str, Callable[[Path], Any]] = {
    "entries that are one": in_directory(42, 0),
    "entries of 4 GiB": in_directory(20, 0xFFFFFFFE, 0xFFFFFFFE),
    "an entry of 2^60 bytes": zip64(1 << 60),
    "an entry of 2^64 - 2 bytes": zip64((1 << 64) - 2),
    "a directory of 2^60 bytes": end_of_zip64,
    "20,000 entries more": many_entries,
    "700 MiB compressed": deflated,
}


# ---- HDF5


def label(shape: tuple[int, ...], **how: Any) -> Callable[[h5py.File], None]:
    """Labels of another shape, never written."""
    return hostile_hdf5.replaced("label", shape=shape, dtype="<i8", **how)


def user_block(path: Path) -> None:
    """512 bytes before the file itself, which HDF5 passes over."""
    path.write_bytes(b"#!/bin/sh\n".ljust(512, b"#") + path.read_bytes())


def in_itself(options: Any, file: h5py.File) -> None:
    """The bytes of another dataset of the file: 10,000 such fields would be 10,000 times the file."""
    options.set_external(str(file.filename).encode(), file["blob/offsets"].id.get_offset(), 32)


HDF5: dict[str, Callable[[h5py.File], Any]] = {
    "2^60 numbers never written": label((1 << 60,)),
    "2^60 numbers in chunks": label((1 << 60,), chunks=(1024,), compression="gzip"),
    "700 MiB in one chunk": hostile_hdf5.replaced(
        "blob/data", shape=(700 * MIB,), dtype="u1", chunks=(700 * MIB,), compression="gzip"
    ),
    "a chunk that is filled": label((3,), chunks=(3,), shuffle=True, fletcher32=True, fillvalue=1),
    "one place twice": hostile_hdf5.low_level("key/offsets", (4,), in_itself),
    "100,000 links": lambda file: [file["blob"].__setitem__(f"l{at}", h5py.SoftLink("/")) for at in range(100_000)],
    "an attribute of 63 KB": lambda file: file.attrs.create("packer", np.bytes_(b"x" * 63_000)),
    "32 dimensions of 2^59": label((*(1,) * 31, 1 << 59)),
}


# ---- images


def png_of_zeros(width: int, height: int) -> bytes:
    """A whole image, black, in a thousandth of its size."""
    packer = zlib.compressobj(9)
    row = bytes(1 + 3 * width)
    return hostile_values.png(width, height, b"".join(packer.compress(row) for _ in range(height)) + packer.flush())


def tiff(width: int, height: int, *, strips: int = 1) -> bytes:
    """A directory that announces an image of floats, and strips that are one, of nothing."""
    body = zlib.compress(bytes(1000))
    tags = {256: [width], 257: [height], 258: [64], 259: [8], 262: [1], 277: [1], 278: [max(1, height // strips)]}
    tags |= {273: [8] * strips, 279: [len(body)] * strips, 339: [3]}
    head = b"II*\0" + struct.pack("<I", 8 + len(body)) + body
    return head + half_images.directory(tags, "<", len(head))


def webp(width: int, height: int) -> bytes:
    """The header of a lossless one."""
    bits = (width - 1) | (height - 1) << 14
    body = b"\x2f" + struct.pack("<I", bits) + bytes(60)
    chunk = b"VP8L" + struct.pack("<I", len(body)) + body + b"\0" * (len(body) & 1)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def plain_webp(width: int, height: int) -> bytes:
    """A whole one, black, in a few KB."""
    found = cv2.imencode(".webp", np.zeros((height, width, 3), np.uint8), [cv2.IMWRITE_WEBP_QUALITY, 101])[1]
    return bytes(found)


IMAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "PNG that announces 100 MP": ("image", lambda: hostile_values.png(10_000, 10_000)),
    "PNG of 100 MP of zeros": ("image", lambda: png_of_zeros(10_000, 10_000)),
    "PNG of 1 row of 100 MP": ("image", lambda: png_of_zeros(100_000_000, 1)),
    "WebP that announces 100 MP": ("image", lambda: webp(10_000, 10_000)),
    "WebP that announces 268 MP": ("image", lambda: webp(16_384, 16_384)),
    "WebP of 99 MP": ("image", lambda: plain_webp(9_900, 10_000)),
    "JPEG that announces 100 MP": ("image", lambda: hostile_values.jpeg(10_000, 10_000)),
    "TIFF that announces 100 MP of doubles": ("depth", lambda: tiff(10_000, 10_000)),
    "TIFF of a million strips": ("depth", lambda: tiff(10, 1_000_000, strips=1_000_000)),
    "TIFF of 2^31 rows": ("depth", lambda: tiff(1, (1 << 31) - 1)),
    "npy of 10^17": ("depth", lambda: npy_header("(1000000000, 100000000)", "<f8")),
    "BMP that announces 100 MP": (
        "image",
        lambda: (
            b"BM"
            + struct.pack("<IHHI", 300_000_054, 0, 0, 54)
            + struct.pack("<Iiihh6I", 40, 10_000, 10_000, 1, 24, 0, 300_000_000, 0, 0, 0, 0)
        ),
    ),
    "PPM that announces 100 MP": ("image", lambda: b"P6 10000 10000 255\n" + bytes(1000)),
    "lengths of 100 MP": ("ragged", lambda: struct.pack("<3I", 10_000, 10_000, 3) + bytes(1000)),
}


def image_in(format: str, name: str) -> Callable[[Path], None]:
    field, value = IMAGES[name]
    return lambda pack: hostile_values.with_value(field, value(), format=format)(pack)


# ---- all of them


def cases() -> list[Case]:
    """All of them; expect: "any" where some commands do not come to what is forged, else every reading is refused."""
    found = cases_of("manifest", MANIFESTS) + cases_of("source", SOURCES, expect="any")
    found += cases_of("lmdb", LMDB) + cases_of("bmp", BMP, base="bmp", expect="any")
    found += cases_of("index", INDEX) + cases_of("grown", UNNAMED, base="bmp", expect="any")
    zips = {name: hostile_parts.as_torch_names_it(make) for name, make in PTH.items()}
    found += cases_of("pth", zips, base="pth")
    found += cases_of("hdf5", {name: in_part(hostile_parts.hdf5(make)) for name, make in HDF5.items()}, base="hdf5")
    found += cases_of("hdf5", {"a user block": in_part(user_block)}, base="hdf5", expect="any")
    few = ("PNG of 100 MP of zeros", "TIFF that announces 100 MP of doubles")
    for format, names in {"lmdb": tuple(IMAGES), "hdf5": few, "pth": few, "bmp": few}.items():
        table = {name: image_in(format, name) for name in names}
        found += cases_of(f"image in {format}", table, base="", expect="any")
    return found
