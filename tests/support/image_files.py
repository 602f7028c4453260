"""Small image files of every form that the decoders meet, made by code; the pixels are noise over smooth colors."""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

Pixels = npt.NDArray[Any]

EOI = b"\xff\xd9"


def colors(seed: int = 0, *, height: int = 41, width: int = 67) -> Pixels:
    """uint8 (H, W, 3), RGB: smooth enough for JPEG, rough enough that every block has coefficients."""
    random = np.random.default_rng(seed)
    smooth = cv2.resize(random.integers(0, 256, (5, 7, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    rough = smooth.astype(np.int64) + random.integers(-12, 13, smooth.shape)
    return np.clip(rough, 0, 255).astype(np.uint8)


def grays(seed: int = 0, *, height: int = 41, width: int = 67) -> Pixels:
    """uint8 (H, W)."""
    return np.ascontiguousarray(colors(seed, height=height, width=width)[:, :, 1])


def with_pillow(pixels: Pixels, form: str, *, mode: str | None = None, **options: Any) -> bytes:
    """A file as Pillow writes it; `mode` names what the array is, where its shape does not tell."""
    file = io.BytesIO()
    height, width = pixels.shape[:2]
    image = Image.frombytes(mode, (width, height), pixels.tobytes()) if mode else Image.fromarray(pixels)
    image.save(file, form, **options)
    return file.getvalue()


def with_opencv(pixels: Pixels, suffix: str, *options: int) -> bytes:
    """A file as OpenCV writes it; the array is RGB."""
    done, data = cv2.imencode(suffix, pixels[:, :, ::-1] if pixels.ndim == 3 else pixels, list(options))
    if not done:
        raise ValueError(f"cannot encode {suffix}")
    return data.tobytes()


def jpeg(pixels: Pixels | None = None, *, sampling: str = "420", quality: int = 90) -> bytes:
    """A baseline JPEG; a gray one where the array is (H, W)."""
    pixels = colors() if pixels is None else pixels
    if pixels.ndim == 2:
        gray = np.ascontiguousarray(pixels[:, :, None])
        return simplejpeg.encode_jpeg(gray, quality=quality, colorspace="GRAY", colorsubsampling="Gray")
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=quality, colorsubsampling=sampling)


def progressive(pixels: Pixels | None = None) -> bytes:
    """A progressive JPEG, 4:2:0."""
    return with_pillow(colors() if pixels is None else pixels, "JPEG", progressive=True, quality=85, subsampling=2)


def cmyk() -> bytes:
    """A CMYK JPEG with Adobe's marker."""
    return with_pillow(np.dstack([colors(1), grays(2)]), "JPEG", mode="CMYK", quality=90)


def jpegs() -> dict[str, bytes]:
    """JPEG of every kind that is supported, by name."""
    made = {f"baseline {name}": jpeg(sampling=name) for name in ("444", "422", "420", "440", "411")}
    made |= {
        f"restarts {count}": with_opencv(colors(), ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, count) for count in (1, 5)
    }
    progressive_restarts = (cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 3)
    return made | {
        "gray": jpeg(grays()),
        "progressive": progressive(),
        "progressive gray": with_pillow(grays(), "JPEG", progressive=True),
        "progressive restarts": with_opencv(colors(), ".jpg", *progressive_restarts),
        "cmyk": cmyk(),
    }


def psnr(one: Pixels, other: Pixels) -> float:
    """Peak signal to noise in dB."""
    return float(10 * np.log10(255**2 / max(1e-9, np.mean((one.astype(float) - other) ** 2))))


def oriented(orientation: int, form: str = "JPEG", pixels: Pixels | None = None) -> bytes:
    """A file with that EXIF orientation, its pixels not turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return with_pillow(colors() if pixels is None else pixels, form, exif=exif)


def with_orientation(tiff: bytes, orientation: int) -> bytes:
    """A little-endian TIFF with an orientation tag added to its directory, which moves to the end of the file."""
    (at,) = struct.unpack_from("<I", tiff, 4)
    (count,) = struct.unpack_from("<H", tiff, at)
    entries = [tiff[at + 2 + 12 * i : at + 14 + 12 * i] for i in range(count)]
    entries = [entry for entry in entries if entry[:2] != b"\x12\x01"]
    entries = sorted([*entries, struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)], key=lambda e: e[1::-1])
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + b"\0\0\0\0"
    padded = tiff + b"\0" * (len(tiff) % 2)
    return padded[:4] + struct.pack("<I", len(padded)) + padded[8:] + directory


def palette_bmp(indices: Pixels, table: Pixels, *, bits: int) -> bytes:
    """A palette BMP of that many bits; table: (colors, 3), RGB. Pillow writes 8 bit only."""
    rows = _packed(indices[::-1], bits)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    colors = np.pad(table[:, ::-1], ((0, 0), (0, 1))).astype(np.uint8).tobytes()
    start, (height, width) = 54 + len(colors), indices.shape
    head = struct.pack("<2sIIIIiiHH6I", b"BM", start + rows.size, 0, start, 40, width, height, 1, bits, *[0] * 4,
                       len(table), 0)  # fmt: skip
    return head + colors + rows.tobytes()


def palette_tiff(indices: Pixels, table: Pixels, *, bits: int) -> bytes:
    """A palette TIFF of that many bits, not compressed; table: (2**bits, 3), RGB. Pillow writes 8 bit only."""
    rows, (height, width) = _packed(indices, bits), indices.shape
    colors = (table.T.astype("<u2") * 257).tobytes()
    start = 8 + 2 + 12 * 9 + 4
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 1, bits), (259, 3, 1, 1), (262, 3, 1, 3),
            (273, 4, 1, start + len(colors)), (278, 3, 1, height), (279, 4, 1, rows.size),
            (320, 3, 3 << bits, start)]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + colors + rows.tobytes()


def _packed(indices: Pixels, bits: int) -> Pixels:
    """Rows of bytes, the first pixel in the high bits."""
    each = np.unpackbits(indices.astype(np.uint8)[:, :, None], axis=2)[:, :, 8 - bits :]
    return np.packbits(each.reshape(indices.shape[0], -1), axis=1)


def palette_png(indices: Pixels, *, bits: int = 8, seed: int = 3) -> bytes:
    """A palette PNG whose entries are colors, one of them transparent."""
    count = 1 << bits
    image = Image.frombytes("P", indices.shape[::-1], indices.tobytes())
    image.putpalette(np.random.default_rng(seed).integers(0, 256, 3 * count, np.uint8).tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", bits=bits, transparency=0)
    return file.getvalue()


def npy(pixels: Pixels) -> bytes:
    """A NumPy array file; the data of objects is a pickle."""
    file = io.BytesIO()
    np.save(file, pixels)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """A PNG chunk."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_chunks(png: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, data offset and length of each chunk."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], at + 8, length
        at += 12 + length


def interlaced_png(pixels: Pixels) -> bytes:
    """A PNG of RGB pixels in Adam7's seven passes, which neither OpenCV nor Pillow writes."""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    rows = [row for y, x, down, across in passes for row in pixels[y::down, x::across] if row.size]
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def bomb(height: int, width: int) -> bytes:
    """A valid PNG, a few bytes per row of pixels, that announces an image of that size."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def lossless() -> dict[str, tuple[bytes, Pixels]]:
    """A file and its uint8 (H, W, 3) RGB pixels, for formats that keep them."""
    rgb, gray = colors(4), grays(5)
    rgba = np.dstack([rgb, gray])
    expanded = np.dstack([gray] * 3)
    return {
        "png": (with_pillow(rgb, "PNG"), rgb),
        "png gray": (with_pillow(gray, "PNG"), expanded),
        "png alpha": (with_pillow(rgba, "PNG"), rgb),
        "png gray alpha": (with_pillow(np.dstack([gray, gray]), "PNG", mode="LA"), expanded),
        "bmp": (with_pillow(rgb, "BMP"), rgb),
        "bmp alpha": (with_pillow(rgba, "BMP"), rgb),
        "bmp gray": (with_pillow(gray, "BMP"), expanded),
        "tiff": (with_pillow(rgb, "TIFF"), rgb),
        "tiff alpha": (with_pillow(rgba, "TIFF"), rgb),
        "tiff gray": (with_pillow(gray, "TIFF"), expanded),
        "tiff lzw": (with_opencv(rgb, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, 5), rgb),
        "webp": (with_pillow(rgb, "WEBP", lossless=True), rgb),
        "webp alpha": (with_pillow(rgba, "WEBP", lossless=True, exact=True), rgb),
        "ppm": (with_pillow(rgb, "PPM"), rgb),
        "pgm": (with_pillow(gray, "PPM"), expanded),
        "npy": (npy(rgb), rgb),
        "npy gray": (npy(gray), expanded),
        "npy alpha": (npy(rgba), rgb),
    }


def depths() -> dict[str, tuple[bytes, Pixels]]:
    """A file and its depth, NaN, infinity and -1 among the floats."""
    random = np.random.default_rng(6)
    meters = random.random((37, 53)).astype(np.float32) + 0.5
    meters[3:6, 4:9] = -1
    meters[0, :3] = np.nan, np.inf, -np.inf
    millimeters = random.integers(0, 65536, (37, 53), np.uint16)
    plain, lzw, predictor = 1, 5, 317
    return {
        "tiff": (with_opencv(meters, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, plain), meters),
        "tiff lzw predictor 1": (
            with_opencv(meters, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, lzw, predictor, 1),
            meters,
        ),
        "tiff lzw predictor 3": (with_opencv(meters, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, lzw), meters),
        "tiff 16 bit": (with_opencv(millimeters, ".tiff"), millimeters),
        "png 16 bit": (with_opencv(millimeters, ".png"), millimeters),
        "png 8 bit": (with_opencv(grays(), ".png"), grays()),
        "pgm 16 bit": (with_opencv(millimeters, ".pgm"), millimeters),
        "npy float16": (npy(meters.astype(np.float16)), meters.astype(np.float16)),
        "npy float64 big endian": (npy(meters.astype(">f8")), meters.astype(np.float64)),
        "npy Fortran order": (npy(np.asfortranarray(meters)), meters),
    }
