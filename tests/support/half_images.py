"""Images of every form that OpenCV and Pillow write, and damage to their data."""

import io
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image

from tests.support import image_files
from tests.support.image_files import with_opencv as _with_opencv
from tests.support.image_files import with_pillow as _with_pillow

_TIFF_NAMES = {
    "lzw": "tiff_lzw",
    "deflate": "tiff_adobe_deflate",
    "old deflate": "tiff_deflate",
    "packbits": "packbits",
}
CODES = {"lzw": 5, "deflate": 8, "old deflate": 32946, "packbits": 32773}
_TYPES = {"uint8": 1, "uint16": 1, "float32": 3}  # TIFF's SampleFormat
_PREDICTOR, _ROWS = 317, 278


class Damaged(NamedTuple):
    """A damaged file. how: flip, zeros, noise, cut, hole or ones. at: the first byte that differs, or is missing."""

    data: bytes
    how: str
    at: int


@dataclass(frozen=True)
class Form:
    """An image of one form. kind: what to read it as.

    It is made when it is first asked for: every process of a run collects the tests and runs but some of them.
    """

    kind: str
    make: Callable[[], bytes]

    @cached_property
    def file(self) -> bytes:
        return self.make()


def photo(height: int, width: int, dtype: str, *, channels: int = 1) -> image_files.Pixels:
    """Smooth colors with a little noise; (H, W) for one channel."""
    pixels = image_files.colors(8, height=height, width=width)[:, :, :channels]
    pixels = pixels[:, :, 0] if channels == 1 else pixels
    scale = {"uint8": 1, "uint16": 200, "float32": 0.01}[dtype]
    return np.ascontiguousarray((pixels * np.float64(scale)).astype(dtype))


def flat(height: int, width: int) -> image_files.Pixels:
    """uint8 (H, W): broad bands, as of a mask."""
    rows, columns = np.indices((height, width))
    return ((rows + columns) // 40 * 20 % 256).astype(np.uint8)


def packed(pixels: image_files.Pixels, compression: str) -> bytes:
    """The data of one strip, as Pillow writes it."""
    file = image_files.with_pillow(pixels, "TIFF", compression=_TIFF_NAMES[compression], tiffinfo={_ROWS: len(pixels)})
    with Image.open(io.BytesIO(file)) as image:
        (at,), (size,) = image.tag_v2[273], image.tag_v2[279]
    return file[at : at + size]


def tiff(
    pixels: image_files.Pixels,
    compression: str,
    *,
    order: str = "<",
    tile: tuple[int, int] | None = None,
    rows: int = 0,
    planes: bool = False,
    head_first: bool = False,
) -> bytes:
    """A TIFF whose strips or tiles Pillow has compressed; in tiles, planes, big-endian, or its directory first."""
    height, width = pixels.shape[:2]
    samples = pixels.shape[2] if pixels.ndim == 3 else 1
    split = [pixels[:, :, k] for k in range(samples)] if planes else [pixels]
    pieces = []
    for plane in split:
        if tile is None:
            pieces += [plane[at : at + (rows or height)] for at in range(0, height, rows or height)]
            continue
        across, down = -(-width // tile[1]), -(-height // tile[0])
        padding = ((0, down * tile[0] - height), (0, across * tile[1] - width), *[(0, 0)] * (plane.ndim - 2))
        full = np.pad(plane, padding, "edge")
        pieces += [
            full[y : y + tile[0], x : x + tile[1]]
            for y in range(0, down * tile[0], tile[0])
            for x in range(0, across * tile[1], tile[1])
        ]
    data = [packed(_ordered(np.ascontiguousarray(piece), order), compression) for piece in pieces]
    tags: dict[int, list[int]] = {256: [width], 257: [height], 258: [pixels.dtype.itemsize * 8] * samples}
    tags |= {259: [CODES[compression]], 262: [2 if samples == 3 else 1], 277: [samples]}
    tags |= {284: [2 if planes else 1], 339: [_TYPES[pixels.dtype.name]] * samples}
    tags |= {322: [tile[1]], 323: [tile[0]]} if tile else {_ROWS: [rows or height]}
    offsets, sizes = (324, 325) if tile else (273, 279)
    tags[sizes] = [len(piece) for piece in data]
    tags[offsets] = [0] * len(data)
    starts = np.cumsum([0, *map(len, data)])[:-1]
    head_bytes = len(directory(tags, order, 8))
    tags[offsets] = [int(start) + 8 + (head_bytes if head_first else 0) for start in starts]
    at = 8 if head_first else 8 + sum(map(len, data))
    head, body = directory(tags, order, at), b"".join(data)
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "I", at) + (head + body if head_first else body + head)


def _ordered(pixels: image_files.Pixels, order: str) -> image_files.Pixels:
    """The same numbers, in memory in that byte order: Pillow compresses bytes as they lie there."""
    return pixels.astype(pixels.dtype.newbyteorder(order)).view(pixels.dtype)


def directory(tags: dict[int, list[int]], order: str, at: int) -> bytes:
    """A directory of numbers of 32 bits for the offset `at`, with what does not fit behind it."""
    after = at + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(numbers) > 1:
            packed, values = struct.pack(order + "I", after + len(values)), values + packed
        entries += struct.pack(order + "HHI", tag, 4, len(numbers)) + packed
    return struct.pack(order + "H", len(tags)) + entries + bytes(4) + values


def _compression(file: bytes) -> int:
    with Image.open(io.BytesIO(file)) as image:
        return int(image.tag_v2[259])


def tiffs(height: int = 120, width: int = 151) -> dict[str, Form]:
    """Compressed TIFFs, by name."""
    grays = {name: photo(height, width, name) for name in _TYPES} | {"flat": flat(height, width)}
    grays["rgb"] = photo(height, width, "uint8", channels=3)
    found: dict[str, Form] = {}
    for name, pixels in grays.items():
        kind = "image" if pixels.dtype == np.uint8 else "depth"
        for compression in CODES:
            predictors = (1,) if compression == "packbits" else (1, 3) if name == "float32" else (1, 2)
            for predictor in predictors:
                make = partial(_of_opencv, pixels, compression, predictor)
                found[f"opencv {name} {compression} {predictor}"] = Form(kind, make)
            info = {_ROWS: 17} | ({_PREDICTOR: predictors[-1]} if compression != "packbits" else {})
            how = {"compression": _TIFF_NAMES[compression], "tiffinfo": info}
            found[f"pillow {name} {compression}"] = Form(kind, partial(_with_pillow, pixels, "TIFF", **how))
            for layout, options in _LAYOUTS.items():
                found[f"{layout} {name} {compression}"] = Form(kind, partial(tiff, pixels, compression, **options))
    for compression in CODES:
        make = partial(tiff, grays["rgb"], compression, planes=True, rows=50)
        found[f"planes {compression}"] = Form("image", make)
    for name, gray in (("pillow jpeg", "rgb"), ("pillow gray jpeg", "uint8")):
        found[name] = Form("image", partial(_with_pillow, grays[gray], "TIFF", compression="jpeg"))
    return found


def _of_opencv(pixels: image_files.Pixels, compression: str, predictor: int) -> bytes:
    code = CODES[compression]
    options = (cv2.IMWRITE_TIFF_COMPRESSION, code, cv2.IMWRITE_TIFF_PREDICTOR, predictor)
    file = _with_opencv(pixels, ".tiff", *options)
    assert _compression(file) == code, f"OpenCV wrote {compression} as {_compression(file)}"
    return file


_LAYOUTS: dict[str, dict[str, Any]] = {
    "one strip": {},
    "big-endian strips": {"order": ">", "rows": 17},
    "tiles": {"tile": (48, 64)},
    "big-endian tiles, directory first": {"order": ">", "tile": (48, 64), "head_first": True},
}


def others(height: int = 120, width: int = 151) -> dict[str, Form]:
    """Images of the other formats, by name; the first word of a name is the format."""
    rgb, gray = photo(height, width, "uint8", channels=3), photo(height, width, "uint8")
    deep, meters, bands = photo(height, width, "uint16"), photo(height, width, "float32"), flat(height, width)
    rgba, bilevel = np.dstack([rgb, bands]), gray // 128 * 255
    bands_rgb = np.dstack([bands] * 3)
    images = {f"jpeg {name}": make for name, make in _jpegs(rgb, gray).items()}
    for level in (0, 1, 9):
        images[f"png level {level}"] = partial(_with_opencv, rgb, ".png", cv2.IMWRITE_PNG_COMPRESSION, level)
    for strategy in range(5):
        images[f"png strategy {strategy}"] = partial(_with_opencv, rgb, ".png", cv2.IMWRITE_PNG_STRATEGY, strategy)
    images |= {
        "png alpha": partial(_with_pillow, rgba, "PNG"),
        "png palette": partial(image_files.palette_png, gray),
        "png interlaced": partial(image_files.interlaced_png, rgb),
    }
    for quality in (5, 50, 80, 100):
        make = partial(_with_opencv, rgb, ".webp", cv2.IMWRITE_WEBP_QUALITY, quality)
        images[f"webp lossy {quality}"] = make
    images |= {
        "webp lossy bands": partial(_with_pillow, bands_rgb, "WEBP", quality=70, method=6),
        "webp lossless": partial(_with_opencv, rgb, ".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
        "webp lossless bands": partial(_with_pillow, bands_rgb, "WEBP", lossless=True),
        "webp lossy alpha": partial(_with_pillow, rgba, "WEBP", quality=80),
        "webp lossless alpha": partial(_with_pillow, rgba, "WEBP", lossless=True, exact=True),
        "pnm text ppm": partial(_with_opencv, rgb, ".ppm", cv2.IMWRITE_PXM_BINARY, 0),
        "pnm text pgm": partial(_with_opencv, gray, ".pgm", cv2.IMWRITE_PXM_BINARY, 0),
        "plain ppm": partial(_with_opencv, rgb, ".ppm"),
        "plain pbm": partial(_with_pillow, bilevel, "PPM"),
        "plain bmp": partial(_with_opencv, rgb, ".bmp"),
        "plain bmp palette": partial(_with_pillow, bands, "BMP"),
    }
    masks = {
        "png palette mask": partial(image_files.palette_png, gray // 16, bits=4),
        "png bilevel": partial(_with_opencv, bilevel, ".png", cv2.IMWRITE_PNG_BILEVEL, 1),
        "pnm text pbm": partial(_with_opencv, bilevel, ".pbm", cv2.IMWRITE_PXM_BINARY, 0),
    }
    depths = {
        "png 16 bit": partial(_with_opencv, deep, ".png"),
        "plain pgm 16 bit": partial(_with_opencv, deep, ".pgm"),
        "plain npy": partial(image_files.npy, meters),
        "plain tiff": partial(_with_opencv, meters, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, 1),
    }
    by_kind = {"image": images, "mask": masks, "depth": depths}
    return {name: Form(kind, make) for kind, made in by_kind.items() for name, make in made.items()}


def _jpegs(rgb: image_files.Pixels, gray: image_files.Pixels) -> dict[str, Callable[[], bytes]]:
    """JPEG as OpenCV and Pillow write it."""
    made = {name: partial(image_files.jpeg, rgb, sampling=name) for name in ("444", "422", "420")}
    return {f"subsampling {name}": make for name, make in made.items()} | {
        "gray": partial(image_files.jpeg, gray),
        "progressive": partial(image_files.progressive, rgb),
        "progressive gray": partial(_with_pillow, gray, "JPEG", progressive=True),
        "restarts": partial(_with_opencv, rgb, ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 4),
        "optimized": partial(_with_opencv, rgb, ".jpg", cv2.IMWRITE_JPEG_OPTIMIZE, 1),
        "quality 30": partial(image_files.jpeg, rgb, quality=30),
    }


def halves(file: bytes, number: int, *, seed: int, start: int = 0) -> Iterator[Damaged]:
    """Half images: the file's end, from a byte in its middle on, is cut off, zeros or noise."""
    source = random.Random(seed)
    for count in range(number):
        at = source.randrange(start + (len(file) - start) // 10, start + (len(file) - start) * 9 // 10)
        how = ("zeros", "noise", "cut")[count % 3]
        rest = len(file) - at
        yield Damaged(file[:at] + {"zeros": bytes(rest), "noise": source.randbytes(rest), "cut": b""}[how], how, at)


def spots(file: bytes, number: int, *, seed: int, start: int = 0, end: int | None = None) -> Iterator[Damaged]:
    """Damage to a place: a flipped bit, or up to 512 bytes of zeros or ones."""
    source = random.Random(seed)
    end = len(file) if end is None else end
    for count in range(number):
        at = source.randrange(start, end)
        how, changed = ("flip", "hole", "ones")[count % 3], bytearray(file)
        if how == "flip":
            changed[at] ^= 1 << source.randrange(8)
        else:
            until = min(at + 512, end)
            changed[at:until] = (b"\0" if how == "hole" else b"\xff") * (until - at)
        if changed != file:
            yield Damaged(bytes(changed), how, at)
