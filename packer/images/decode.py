"""Decode: an image file of any format -> pixels, images as RGB, depth and masks as stored; and strict validation."""

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images.backends import strict_jpeg
from packer.images.headers import check_end, jpeg, npy, sniff
from packer.images.headers._header_record import Buffer, Header
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
    """How images are decoded. One object serves all images of a field; raises InvalidRequest for an unknown name.

    decoder: turbojpeg is PyTurboJPEG where it works, else simplejpeg; opencv is OpenCV; auto is turbojpeg. They differ
      in speed only, and only for JPEG.
    dct: "fast" is libjpeg's quicker inverse DCT (JDCT_IFAST), and chroma enlarged by copies of its samples instead of
      filtered: 43 to 44 dB from the accurate pixels; for JPEG by libjpeg-turbo only, at its full size.
    strict: False says that these very bytes were validated before, so that OpenCV need not be checked by a second
      decode. What is damaged never comes back as an image with turbojpeg, and mostly not with opencv.
    check_data: with strict, read the data of every other format too, beside OpenCV, which notices less: see
      packer.images.strict_check. False looks at their ends only.
    trusted: the bytes are those of a file that was decoded strictly once, says a checksum. A JPEG without restart
      markers may then be truncated below the part that is wanted.
    interval_tables: a table of restart intervals in the file has passed
    packer.images.restart_interval_table.check_table.
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
    """The OpenCV backend, loaded when first needed: headers and ordinary JPEGs do not need it."""
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
    """The pixels of one image file, never a view of `buffer`.

    kind: image gives uint8 (H, W, 3), RGB, 0-255: gray expanded, alpha dropped, palette and CMYK converted.
      depth gives (H, W) in the stored dtype, every value and NaN as it is.
      mask gives uint8 (H, W): gray as it is, 1 bit as 0 and 255, a palette as its indices, 2 and 4 bit gray scaled
      to 0-255, three channels only if they are equal.
    wide: a mask may have 16 bit and comes as uint16 (H, W), whatever its file has. Nothing is narrowed without it.
    header: what `sniff` says of these very bytes, where the caller has asked already.
    view, invalid: the result is `packer.geometry.warp.warp`ed with them. EXIF orientation is always left to the caller.
    out: C-contiguous memory of exactly the result's shape and dtype; it is filled and returned. Zeros are left in it
      where a JPEG turns out to be damaged.
    Raises DamagedImage; BadInput for an image that is no such kind; InvalidRequest for a wrong `out` or kind.
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
    """Names and versions of what decodes JPEG, such as "PyTurboJPEG 1.8.3, libjpeg-turbo 2.1.5"; raises
    InvalidRequest.
    """
    if decoder not in NAMES:
        raise InvalidRequest(f"unknown decoder {decoder!r}; expected one of {', '.join(NAMES)}")
    if decoder == "opencv":
        return str(_opencv().NAME)
    return strict_jpeg.describe(strict_jpeg.library())


def check_kind(found: Header, kind: str, *, wide: bool = False) -> None:
    """Raise BadInput where an image with that header cannot be of the kind, InvalidRequest for a kind of no pixels.

    wide: a mask of 16 bit may.
    """
    if kind not in PIXEL_KINDS:
        raise InvalidRequest(f"cannot decode an image as kind {kind!r}; expected one of {', '.join(PIXEL_KINDS)}")
    what = f"{found.format.upper()} of {found.channels} channel{'s' * (found.channels != 1)} with {found.dtype} samples"
    if kind == "depth" and (found.channels != 1):
        raise BadInput(f"a {what} is no depth: expected 1 channel; use kind image or mask")
    if kind == "mask" and wide and found.dtype in MASK_DTYPES:
        return
    if kind != "depth" and found.dtype != "uint8":
        instead = ""
        if kind == "mask" and found.dtype == "uint16":
            instead = ", or take it as it is: kind mask:uint16 in its --sidecar or --features"
        elif kind == "mask" and not found.dtype.startswith("float"):  # whose values a geometry would mix in a depth
            instead = ", or keep it as it is, which no geometry moves: kind bytes in its --sidecar or --features"
        elif found.channels == 1:
            instead = ", or, if it is a distance, pack it as depth: kind depth in its --sidecar or --features"
        raise BadInput(
            f"a {what} is no {kind}: expected {'16 bit at most' if wide else '8 bit'}, which packer never makes by "
            f"narrowing; convert it to {16 if wide else 8} bit{instead}"
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
    """(H, W) or (H, W, C) as (H, W, 3) for an image, else as (H, W); alpha, a second or fourth channel, is dropped."""
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
                f"an image of {pixels.shape[2]} channels that differ is no {kind}: expected gray or a palette"
                + ("; masks in colors need a table: --mask-colors FILE" if kind == "mask" else "")
            )
    return first


# ---- whether a file is what it announces


def validate(
    buffer: Buffer, kind: str, *, wide: bool = False, full: bool = True, header: Header | None = None
) -> Header:
    """The header of a file that `decode(buffer, kind, wide=wide)` takes; raises DamagedImage, BadInput or
    InvalidRequest as that does.

    full: read all of it: a JPEG's entropy-coded data (which is all that libjpeg ever warns about), of other formats
      the pixels and the data, see packer.images.strict_check. One outcome, whichever JPEG library is installed.
      False looks at the header and at the end only: a truncated file is found, damage in the middle is not. A JPEG
      without its end marker is read in full, since then only its data can tell whether more is missing.
    header: what sniff(buffer) gave, where the caller has it.
    """
    found = header or sniff(buffer)
    check_kind(found, kind, wide=wide)
    if found.format == "jpeg":
        gray = kind != "image" and found.channels > 1  # whether the channels are equal is not in the header
        if full and gray:
            decode(buffer, kind, header=found)
        elif full or not jpeg.has_end(buffer, found):
            strict_jpeg.check(buffer, found)
        return found
    check_end(buffer, found)
    if full:
        decode(buffer, kind, wide=wide, header=found)
    return found
