"""Decode: decodes an image file of any format. Images become RGB, depth and masks keep their stored values."""

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images.backends import strict_jpeg
from packer.images.file_types import check_end, jpeg, npy, sniff
from packer.images.file_types._header_record import Buffer, Header
from packer.images.strict_check import check_data as check_all_data
from packer.registry import import_or_explain
from packer.schema import MASK_DTYPES, PIXEL_KINDS
from packer.system.exact_casts import deliver, target

DecoderName = Literal["auto", "turbojpeg", "opencv"]
DCT = Literal["accurate", "fast"]
NAMES: tuple[DecoderName, ...] = get_args(DecoderName)
DCTS: tuple[DCT, ...] = get_args(DCT)

Pixels = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options for decoding all images of a field.

    Attributes:
        decoder: Library for JPEG. "turbojpeg" calls PyTurboJPEG, or simplejpeg if PyTurboJPEG does not work. "opencv"
            calls OpenCV. "auto" is "turbojpeg". They differ only in speed.
        dct: "accurate", or "fast" for libjpeg's faster inverse DCT (JDCT_IFAST), with chroma enlarged by copying
            samples. "fast" changes pixels slightly. It applies only to JPEG by libjpeg-turbo at full size.
        strict: True checks the data of the file before it is decoded. False is for files that were checked before. Even
            then, "turbojpeg" never returns a damaged image, and "opencv" rarely does.
        check_data: With strict, True checks the data of formats other than JPEG (see packer.images.strict_check). False
            checks only that these files are complete.
        trusted: True if a checksum proves that the file was decoded strictly before. A JPEG without restart markers is
            then decoded only down to the end of the needed part. False decodes all of it.
        interval_tables: True uses the file's table of restart intervals, which
            packer.images.restart_interval_table.check_table must have accepted. False searches the markers.

    Raises:
        InvalidRequest: The decoder or the dct is unknown.
    """

    decoder: DecoderName = "auto"
    dct: DCT = "accurate"
    strict: bool = True
    check_data: bool = True
    trusted: bool = False
    interval_tables: bool = False

    def __post_init__(self) -> None:
        if self.decoder not in NAMES:
            raise InvalidRequest(f"unknown decoder {self.decoder!r}; expected one of {', '.join(NAMES)}")
        if self.dct not in DCTS:
            raise InvalidRequest(f"unknown dct {self.dct!r}; expected one of {', '.join(DCTS)}")


DEFAULT_OPTIONS = DecodeOptions()


@functools.cache
def _opencv() -> ModuleType:
    """Import the OpenCV backend on first use. Headers and ordinary JPEGs do not need it."""
    return import_or_explain("packer.images.backends.opencv", "decoding images")


def decode(
    buffer: Buffer,
    kind: str,
    *,
    wide: bool = False,
    options: DecodeOptions = DEFAULT_OPTIONS,
    view: View | None = None,
    invalid: float | None = None,
    header: Header | None = None,
    out: Any = None,
) -> Pixels:
    """Decode one image file to memory that is not shared with `buffer`. EXIF orientation is ignored.

    Args:
        buffer: The file.
        kind: `image` returns uint8 (H, W, 3), RGB, 0-255: gray expanded, alpha dropped, palette and CMYK converted.
            `depth` returns (H, W) in the stored dtype with unchanged values. `mask` returns uint8 (H, W): gray scaled
            to 0-255, or the indices of a palette. Three channels that differ raise BadInput.
        wide: True accepts masks of 16 bit, and returns all masks as uint16 (H, W). False raises BadInput for them.
        options: Options of the field.
        view: Matrix and output size for `packer.geometry.warp.warp`; None for the stored pixels.
        invalid: Depth value of missing pixels, for the warp. With None, only values that are not finite are missing.
        header: Result of `sniff` for the same bytes. None calls `sniff`.
        out: C-contiguous memory with the shape and dtype of the result, which is filled and returned. A damaged JPEG
            leaves zeros in it. None for new memory.

    Raises:
        DamagedImage: The file is damaged.
        BadInput: The image does not fit the kind.
        InvalidRequest: `out` or the kind is wrong.
    """
    found = header or sniff(buffer)
    check_kind(found, kind, wide=wide)
    read = _jpeg if found.format == "jpeg" else _other
    is_widened = wide and found.dtype == "uint8"
    if not is_widened and (view is None or (kind == "image" and view.is_identity(found.height, found.width))):
        return read(buffer, found, kind, options=options, out=out)
    pixels = read(buffer, found, kind, options=options, out=None)
    if is_widened:
        pixels = pixels.astype(np.uint16)
    if view is None:
        return deliver(pixels, out=out)
    from packer.geometry.warp import warp  # loads OpenCV

    return warp(pixels, view, kind, invalid=invalid, out=out)


def describe(decoder: str = "auto") -> str:
    """Return names and versions of the JPEG libraries, such as "PyTurboJPEG 1.8.3, libjpeg-turbo 2.1.5".

    Raises:
        InvalidRequest: The decoder is unknown.
    """
    if decoder not in NAMES:
        raise InvalidRequest(f"unknown decoder {decoder!r}; expected one of {', '.join(NAMES)}")
    if decoder == "opencv":
        return str(_opencv().NAME)
    return strict_jpeg.describe(strict_jpeg.library())


def check_kind(found: Header, kind: str, *, wide: bool = False) -> None:
    """Raise BadInput if an image with this header does not fit the kind, or InvalidRequest for a kind without pixels.

    `wide` is that of `decode`.
    """
    if kind not in PIXEL_KINDS:
        raise InvalidRequest(f"cannot decode an image as kind {kind!r}; expected one of {', '.join(PIXEL_KINDS)}")
    what = f"{found.format.upper()} of {found.channels} channel{'s' * (found.channels != 1)} with {found.dtype} samples"
    if kind == "depth" and (found.channels != 1):
        raise BadInput(f"a {what} is not a depth: expected 1 channel; use kind image or mask")
    if kind == "mask" and wide and found.dtype in MASK_DTYPES:
        return
    if kind != "depth" and found.dtype != "uint8":
        instead = ""
        if kind == "mask" and found.dtype == "uint16":
            instead = ", or take it as it is: kind mask:uint16 in its --sidecar or --feature"
        elif kind == "mask" and not found.dtype.startswith("float"):  # a geometry would mix its values if it were depth
            instead = ", or keep it as it is, which no geometry moves: kind bytes in its --sidecar or --feature"
        elif found.channels == 1:
            instead = ", or, if it is a distance, pack it as depth: kind depth in its --sidecar or --feature"
        raise BadInput(
            f"a {what} is not of kind {kind}: expected {'16 bit at most' if wide else '8 bit'}, "
            f"which packer never makes by narrowing; convert it to {16 if wide else 8} bit{instead}"
        )


def _jpeg(buffer: Buffer, found: Header, kind: str, *, options: DecodeOptions, out: Any) -> Pixels:
    in_color = kind == "image" or found.channels > 1
    if found.cmyk or options.decoder == "opencv":
        if options.strict:
            buffer = strict_jpeg.check(buffer, found)
        pixels = _opencv().color(buffer, found) if in_color else _opencv().stored(buffer, found)
        return deliver(_as_kind(pixels, kind), out=out)
    size = (found.height, found.width)
    if in_color and kind != "image":
        pixels = np.empty((*size, 3), np.uint8)
        strict_jpeg.decode(buffer, found, pixels, fast_dct=options.dct == "fast")
        return deliver(_as_kind(pixels, kind), out=out)
    pixels = target((*size, 3) if in_color else size, np.uint8, out=out)
    strict_jpeg.decode(buffer, found, pixels.reshape(*size, -1), fast_dct=options.dct == "fast")
    return pixels if out is None else out


def _other(buffer: Buffer, found: Header, kind: str, *, options: DecodeOptions, out: Any) -> Pixels:
    if options.strict:
        check_end(buffer, found)
        if options.check_data:
            check_all_data(buffer, found)
    if found.format == "npy":
        pixels = npy.decode(buffer, found)
        if out is None:
            pixels = pixels.copy()
    elif kind == "image":
        pixels = _opencv().color(buffer, found)
    elif kind == "mask" and found.palette:
        pixels = _opencv().indices(buffer, found)
    else:
        pixels = _opencv().stored(buffer, found)
    return deliver(_as_kind(pixels, kind), out=out)


def _as_kind(pixels: Pixels, kind: str) -> Pixels:
    """Convert (H, W) or (H, W, C) to (H, W, 3) for an image, else to (H, W). Drop alpha, which is channel 2 or 4."""
    if kind == "image":
        if pixels.ndim == 2 or pixels.shape[2] == 1:
            return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
        return pixels[:, :, :3]
    if pixels.ndim == 2:
        return pixels
    first = pixels[:, :, 0]
    for channel in range(1, min(pixels.shape[2], 3)):
        if not np.array_equal(first, pixels[:, :, channel]):
            raise BadInput(
                f"an image of {pixels.shape[2]} channels that differ is not of kind {kind}: expected gray or a palette"
                + ("; masks in colors need a table: --mask-colors FILE" if kind == "mask" else "")
            )
    return first


# ---- validation


def validate(
    buffer: Buffer, kind: str, *, wide: bool = False, full: bool = True, header: Header | None = None
) -> Header:
    """Check that `decode(buffer, kind, wide=wide)` accepts a file, and return its header.

    Args:
        buffer: The file.
        kind: image, depth or mask.
        wide: True accepts masks of 16 bit. False raises BadInput for them.
        full: True checks the entropy-coded data of a JPEG, and decodes other formats (see packer.images.strict_check).
            False checks only the header and the end, so it finds a truncated file, but no damage in the middle. A JPEG
            without an end marker is always checked in full.
        header: Result of `sniff` for the same bytes. None calls `sniff`.

    Raises:
        DamagedImage, BadInput, InvalidRequest: `decode` would raise this error.
    """
    found = header or sniff(buffer)
    check_kind(found, kind, wide=wide)
    if found.format == "jpeg":
        gray = kind != "image" and found.channels > 1  # only the pixels show if the channels are equal
        if full and gray:
            decode(buffer, kind, header=found)
        elif full or not jpeg.has_end(buffer, found):
            strict_jpeg.check(buffer, found)
        return found
    check_end(buffer, found)
    if full:
        decode(buffer, kind, wide=wide, header=found)
    return found
